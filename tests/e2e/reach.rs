//! The way to the manager through the Kubernetes API: kubeconfig, port-forward, replaced Pods.

use std::time::Duration;

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    daemon::Daemon,
    dig::{Transport, dig},
    kubelet::Kubelet,
    lab::{AUTHORS, Lab},
    machine::http_ok,
    product::{Attempt, Manager, Session, must_be_as, status},
    snapshot::Snapshot,
    wait::until,
};

/// Far longer than anything here takes, on a busy machine too.
const START: Duration = Duration::from_secs(60);

/// What a user of the cluster may do, and nothing else: the Role that `install` gives.
const ROLE: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: kubebridge-client, namespace: kubebridge}
rules:
- {apiGroups: [''], resources: [pods], verbs: [get, list]}
- {apiGroups: [''], resources: [pods/portforward], verbs: [get, create]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: kubebridge-client, namespace: kubebridge}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: kubebridge-client}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: dev}]
";

/// The manager in a Pod of the node, and the user `dev`, who may reach it.
fn with_pod(lab: &Lab) -> Result<(Manager, Kubelet)> {
    let manager = Manager::start(lab)?;
    let kubelet = Kubelet::start(lab)?;
    kubelet.add_pod(lab, "traffic-manager-a", "127.0.0.1")?;
    kubelet.set_ready(lab, "traffic-manager-a", true)?;
    lab.api.apply(&lab.node, ROLE)?;
    Ok((manager, kubelet))
}

/// Shows that the lab's node is one: the real client forwards a port of a Pod on it.
#[test]
fn kubectl_forwards_a_port_of_the_managers_pod() -> Result<()> {
    let lab = Lab::start()?;
    let (_manager, _kubelet) = with_pod(&lab)?;

    let laptop = lab.laptop.on();
    let command = lab
        .api
        .port_forward(laptop, "traffic-manager-a", "17081:7081");
    let forward = Daemon::start("port-forward", &lab.logs(), command)?;
    forward.until_says("Forwarding from 127.0.0.1:17081", START)?;
    until("the manager through kubectl port-forward", START, || {
        http_ok(laptop, "127.0.0.1:17081", "/readyz")
    })?;

    lab.finish();
    Ok(())
}

#[test]
fn a_kubeconfig_alone_gives_working_names_with_the_smallest_role() -> Result<()> {
    let lab = Lab::start()?;
    let (manager, kubelet) = with_pod(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let session = connect(&lab)?;
    let mut checks = Checks::new();
    let said = session.said()?;
    for part in [
        "traffic-manager-a by API server https://198.51.100.10:6443 (context lab)",
        ", Kubernetes v1.",
        "open session: version ",
    ] {
        checks.that(part, contains(&said, part));
    }
    checks.that("a name", resolves(&lab, &session, "authors", AUTHORS));
    let standing = status(&lab)?;
    let shown = standing["credentials"]["user"].to_string();
    checks.that("status", contains(&shown, "dev"));

    // The Pod is replaced: another name, another address, the old one gone.
    manager.kill()?;
    kubelet.remove(&lab, "traffic-manager-a")?;
    kubelet.add_pod(&lab, "traffic-manager-b", "127.0.0.1")?;
    let manager = Manager::start_again(&lab)?;
    kubelet.set_ready(&lab, "traffic-manager-b", true)?;
    // A name that no stale answer has.
    create(&lab, "papers", "10.96.2.2")?;
    checks.that(
        "a name by the new pod",
        resolves(&lab, &session, "papers", "10.96.2.2"),
    );

    checks.that("the end", session.end_at_once());
    checks.that("after it", must_be_as(&lab, &before));
    drop(manager);
    checks.finish()?;
    lab.finish();
    Ok(())
}

fn connect(lab: &Lab) -> Result<Session<'_>> {
    let kubeconfig = lab.api.kubeconfig("dev");
    Attempt::start_by_kubeconfig(lab, &kubeconfig, &[], &[])?.connected()
}

fn resolves(lab: &Lab, session: &Session<'_>, name: &str, address: &str) -> Result<()> {
    let resolver = session.resolver()?;
    until(&format!("{name} by the session's resolver"), START, || {
        let got = dig(lab.laptop.on(), &resolver, Transport::Udp, name, "A")?;
        ensure!(
            got.to_string() == format!("NOERROR {name}. A {address}"),
            "{got}"
        );
        Ok(())
    })
}

fn create(lab: &Lab, name: &str, address: &str) -> Result<()> {
    let address = format!("--clusterip={address}");
    lab.kubectl(&["create", "service", "clusterip", name, "--tcp=80", &address])?;
    Ok(())
}

fn contains(text: &str, part: &str) -> Result<()> {
    ensure!(text.contains(part), "{part:?} is not in:\n{text}");
    Ok(())
}
