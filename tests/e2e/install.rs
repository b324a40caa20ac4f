//! Installing by `kubebridge install` into a real control plane: what a newcomer does, what is
//! refused, what is removed.

use std::{process::Output, time::Duration};

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    controllers::Controllers,
    daemon::Daemon,
    dig::{Transport, dig},
    kubelet::Kubelet,
    lab::{AUTHORS, Lab},
    parts::program,
    pod::Pod,
    product::Attempt,
    wait::until,
};

use crate::reach::contains;

/// Far longer than anything here takes, on a busy machine too.
const START: Duration = Duration::from_secs(90);

/// Where no image is: the node of the lab runs none.
const IMAGE: &str = "registry.invalid/kubebridge/traffic-manager@sha256:\
    0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Everything in the cluster but what comes and goes by itself: kind, place and identity.
fn objects(lab: &Lab) -> Result<Vec<String>> {
    let kinds = lab.kubectl(&["api-resources", "--verbs=list", "-o", "name"])?;
    let passing = |kind: &&str| {
        ["events", "leases", "componentstatuses"]
            .iter()
            .any(|name| kind.starts_with(name))
    };
    let kinds: Vec<_> = kinds.lines().filter(|kind| !passing(kind)).collect();
    let columns = "custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name,U:.metadata.uid";
    let words = ["get", "-A", "--no-headers", "-o", columns];
    let listed = lab.kubectl(&[&words[..], &[&kinds.join(",")]].concat())?;
    let lines = listed.lines();
    let mut lines: Vec<_> = lines
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    lines.sort();
    Ok(lines)
}

/// Runs a command of `kubebridge` on the laptop as a user of the cluster.
fn run_as(lab: &Lab, user: &str, words: &[&str]) -> Result<Output> {
    let kubeconfig = lab.api.kubeconfig(user).display().to_string();
    let kubeconfig = ["--kubeconfig", &kubeconfig];
    kubebridge_tests::product::kubebridge(lab, &[words, &kubeconfig].concat())
}

/// The same, which must succeed; what it said to people and to programs.
fn done_as(lab: &Lab, user: &str, words: &[&str]) -> Result<(String, String)> {
    let said = run_as(lab, user, words)?;
    let out = String::from_utf8_lossy(&said.stdout).into_owned();
    let err = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(said.status.success(), "{words:?}: {}: {err}", said.status);
    Ok((err, out))
}

/// Starts a command of `kubebridge` that waits for something.
fn start(lab: &Lab, user: &str, words: &[&str]) -> Result<Daemon> {
    let mut command = lab.laptop.on().command(program("kubebridge")?);
    command
        .env("KUBECONFIG", lab.api.kubeconfig(user))
        .args(words);
    Daemon::start(&format!("kubebridge-{}", words[0]), &lab.logs(), command)
}

#[test]
fn install_and_connect_are_all_a_newcomer_needs_and_uninstall_leaves_nothing() -> Result<()> {
    let lab = Lab::start()?;
    let kubelet = Kubelet::start_alone(&lab)?;
    let _controllers = Controllers::start(&lab)?;
    let before = objects(&lab)?;
    let mut checks = Checks::new();

    let words = ["-n", "default", "-n", "shop", "--image", IMAGE];
    let allow = ["--allow-user", "dev"];
    let words = [&["install"][..], &words, &allow].concat();
    let installing = start(&lab, "admin", &words)?;
    let pod = Pod::run(&lab, &kubelet)?;
    let status = installing.ended(START)?;
    let said = installing.log()?;
    ensure!(status.success(), "install ended with {status}:\n{said}");
    for part in [
        "Deployment kubebridge/traffic-manager: created",
        "managers: 1 ready",
    ] {
        checks.that(part, contains(&said, part));
    }

    let attempt = Attempt::start_by_kubeconfig(&lab, &lab.api.kubeconfig("dev"), &[], &[])?;
    let session = attempt.connected()?;
    checks.that("a name", resolves(&lab, &session.resolver()?, "authors"));
    checks.that("the session's end", session.end_at_once());

    let (again, _) = done_as(&lab, "admin", &[&words[..], &["--wait", "0s"]].concat())?;
    let changed = again.lines().filter(|line| {
        [": created", ": changed", ": removed"]
            .iter()
            .any(|end| line.ends_with(end))
    });
    checks.equal("a second install", Ok(changed.collect()), "");

    let removing = start(&lab, "admin", &["uninstall"])?;
    pod.end(&lab, &kubelet)?;
    let status = removing.ended(START)?;
    let said = removing.log()?;
    ensure!(status.success(), "uninstall ended with {status}:\n{said}");
    let after = objects(&lab)?;
    checks.equal(
        "the cluster after it",
        Ok(after.join("\n")),
        &before.join("\n"),
    );
    checks.finish()?;
    lab.finish();
    Ok(())
}

fn resolves(lab: &Lab, resolver: &str, name: &str) -> Result<()> {
    until(&format!("{name} by the session's resolver"), START, || {
        let got = dig(lab.laptop.on(), resolver, Transport::Udp, name, "A")?;
        let wanted = format!("NOERROR {name}. A {AUTHORS}");
        ensure!(got.to_string() == wanted, "{got}");
        Ok(())
    })
}
