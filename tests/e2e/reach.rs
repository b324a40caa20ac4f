//! The way to the manager through the Kubernetes API: port-forward, replaced Pods, missing rights.

use std::time::Duration;

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    daemon::Daemon,
    dig::{Transport, dig},
    kubelet::Kubelet,
    lab::{AUTHORS, Lab},
    machine::http_ok,
    product::{Attempt, Manager, NAMESPACES, Session, must_be_as, status},
    snapshot::Snapshot,
    wait::until,
};

/// Far longer than anything here takes, on a busy machine too.
const START: Duration = Duration::from_secs(60);

/// A right as RBAC has it: namespace, resource, verb.
pub(crate) type Right = (&'static str, &'static str, &'static str);

/// What a user of the cluster needs, and nothing else.
pub(crate) const RIGHTS: [Right; 5] = [
    ("kubebridge", "pods", "list"),
    ("kubebridge", "pods/portforward", "get"),
    ("kubebridge", "pods/portforward", "create"),
    ("default", "serviceaccounts/token", "create"),
    ("shop", "serviceaccounts/token", "create"),
];

/// Gives the user `dev` these rights and no others.
pub(crate) fn grant(lab: &Lab, rights: &[Right]) -> Result<()> {
    let mut manifests = Vec::new();
    for namespace in ["kubebridge", "default", "shop"] {
        let of_it = rights.iter().filter(|right| right.0 == namespace);
        let rules = of_it.map(|(_, resource, verb)| {
            format!("{{apiGroups: [''], resources: [{resource}], verbs: [{verb}]}}")
        });
        let rules = rules.collect::<Vec<_>>().join(", ");
        manifests.push(format!(
            "apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: kubebridge-client, namespace: {namespace}}}
rules: [{rules}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: kubebridge-client, namespace: {namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: kubebridge-client}}
subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: dev}}]
"
        ));
    }
    lab.api.apply(&lab.node, &manifests.join("---\n"))
}

/// The manager in a Pod of the node, and the user `dev`, who may reach it.
pub(crate) fn with_pod(lab: &Lab) -> Result<(Manager, Kubelet)> {
    let manager = Manager::start(lab)?;
    let kubelet = Kubelet::start(lab)?;
    kubelet.add_pod(lab, "traffic-manager-a", "127.0.0.1")?;
    kubelet.set_ready(lab, "traffic-manager-a", true)?;
    lab.api.access_accounts(&lab.node, &NAMESPACES)?;
    grant(lab, &RIGHTS)?;
    Ok((manager, kubelet))
}

/// Shows that the lab's node is one: the real client forwards a port of a Pod on it.
#[test]
fn kubectl_forwards_a_port_of_the_managers_pod() -> Result<()> {
    let lab = Lab::start()?;
    let (_manager, _kubelet) = with_pod(&lab)?;

    let laptop = lab.laptop.on();
    let pod = "traffic-manager-a";
    let command = lab.api.port_forward(laptop, pod, "17081:7081");
    let forward = Daemon::start("port-forward", &lab.logs(), command)?;
    forward.until_says("Forwarding from 127.0.0.1:17081", START)?;
    until("the manager through kubectl port-forward", START, || {
        http_ok(laptop, "127.0.0.1:17081", "/readyz")
    })?;

    lab.finish();
    Ok(())
}

#[test]
fn a_kubeconfig_alone_gives_names_also_from_a_new_pod_and_another_replica() -> Result<()> {
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
    let credentials = status(&lab)?["credentials"].to_string();
    checks.that("status", contains(&credentials, r#""user":"dev""#));

    // Replaced: the old Pod is gone, a new one of another name is there.
    manager.kill()?;
    kubelet.remove(&lab, "traffic-manager-a")?;
    kubelet.add_pod(&lab, "traffic-manager-b", "127.0.0.1")?;
    let manager = Manager::start_again(&lab)?;
    kubelet.set_ready(&lab, "traffic-manager-b", true)?;
    // A name that no stale answer has.
    create(&lab, "papers", "10.96.2.2")?;
    let papers = resolves(&lab, &session, "papers", "10.96.2.2");
    checks.that("a name by the new pod", papers);

    // Drained: the Pod of the session ends while another is ready.
    kubelet.add_pod(&lab, "traffic-manager-c", "127.0.0.2")?;
    let replica = Manager::start_replica(&lab, "127.0.0.2")?;
    kubelet.set_ready(&lab, "traffic-manager-c", true)?;
    kubelet.terminate(&lab, "traffic-manager-b")?;
    manager.kill()?;
    create(&lab, "books", "10.96.2.3")?;
    let books = resolves(&lab, &session, "books", "10.96.2.3");
    checks.that("a name by the other replica", books);

    checks.that("the end", session.end_at_once());
    checks.that("after it", must_be_as(&lab, &before));
    drop(replica);
    checks.finish()?;
    lab.finish();
    Ok(())
}

#[test]
fn each_thing_that_is_missing_in_the_cluster_is_named_and_nothing_is_changed() -> Result<()> {
    let lab = Lab::start()?;
    let (_manager, kubelet) = with_pod(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();
    for (place, (namespace, resource, verb)) in RIGHTS.iter().enumerate() {
        let mut rights = RIGHTS.to_vec();
        rights.remove(place);
        grant(&lab, &rights)?;
        let words = format!(
            "user dev of context lab may not: {verb} {resource} in namespace {namespace}\n"
        );
        checks.that(
            &words,
            refused(
                &lab,
                77,
                &[&words, "hint: have the cluster's administrator"],
            ),
        );
    }
    grant(&lab, &RIGHTS)?;

    let account = [
        "delete",
        "serviceaccount",
        "kubebridge-access",
        "-n",
        "shop",
    ];
    lab.kubectl(&account)?;
    let words = [
        "namespace shop has no ServiceAccount kubebridge-access",
        "hint: kubebridge install --namespace shop",
    ];
    checks.that("a namespace without us", refused(&lab, 69, &words));

    kubelet.set_ready(&lab, "traffic-manager-a", false)?;
    let words = ["no traffic-manager is ready: traffic-manager-a is not ready"];
    checks.that("a pod that is not ready", refused(&lab, 69, &words));

    kubelet.remove(&lab, "traffic-manager-a")?;
    let words = [
        "there is no traffic-manager in namespace kubebridge",
        "hint: kubebridge install",
    ];
    checks.that("no manager", refused(&lab, 69, &words));

    lab.api.kill_api()?;
    let words = [
        "https://198.51.100.10:6443: ",
        "hint: is the cluster up, and the VPN? kubectl --context lab version",
    ];
    checks.that("no API server", refused(&lab, 69, &words));

    checks.that("after it", must_be_as(&lab, &before));
    checks.finish()?;
    lab.finish();
    Ok(())
}

fn connect(lab: &Lab) -> Result<Session<'_>> {
    let kubeconfig = lab.api.kubeconfig("dev");
    Attempt::start_by_kubeconfig(lab, &kubeconfig, &[], &[])?.connected()
}

/// Fails unless `connect` ends with this exit code and says all of `words`.
fn refused(lab: &Lab, code: i32, words: &[&str]) -> Result<()> {
    let kubeconfig = lab.api.kubeconfig("dev");
    let attempt = Attempt::start_by_kubeconfig(lab, &kubeconfig, &[], &[])?;
    let status = attempt.ended()?;
    let said = attempt.said()?;
    ensure!(
        status.code() == Some(code),
        "it ended with {status}:\n{said}"
    );
    words.iter().try_for_each(|part| contains(&said, part))
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

pub(crate) fn contains(text: &str, part: &str) -> Result<()> {
    ensure!(text.contains(part), "{part:?} is not in:\n{text}");
    Ok(())
}
