//! Installing by `kubebridge install` into a real control plane: what a newcomer does, what is
//! refused, what is removed.

mod chart;
mod objects;
mod refusals;
mod rights;
mod upgrade;

use std::{
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Result, bail, ensure};
use kubebridge_tests::{
    checks::Checks,
    controllers::Controllers,
    daemon::Daemon,
    dig::{Transport, dig},
    kubelet::Kubelet,
    lab::{AUTHORS, Lab},
    parts::program,
    pod::Pod,
    product::{Attempt, MANAGER_DNS},
    wait::until,
};
use serde_json::Value;

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

/// The same, which must be refused with this exit code and all of `words`.
fn refused_as(lab: &Lab, user: &str, words: &[&str], code: i32, parts: &[&str]) -> Result<()> {
    let said = run_as(lab, user, words)?;
    let err = String::from_utf8_lossy(&said.stderr);
    ensure!(
        said.status.code() == Some(code),
        "{words:?} ended with {}:\n{err}",
        said.status
    );
    parts.iter().try_for_each(|part| contains(&err, part))
}

/// The objects of a variant, as the command prints them for programs.
fn manifest(words: &[&str]) -> Result<Vec<Value>> {
    let said = Command::new(program("kubebridge")?)
        .env_clear()
        .args(["manifest", "-o", "json"])
        .args(words)
        .output()?;
    let err = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "manifest {words:?}: {err}");
    let mut list: Value = serde_json::from_slice(&said.stdout)?;
    match list["items"].take() {
        Value::Array(items) => Ok(items),
        other => bail!("no list: {other}"),
    }
}

#[test]
fn install_and_connect_are_all_a_newcomer_needs_and_uninstall_leaves_nothing() -> Result<()> {
    installed_used_and_removed(&[], |_, _| Ok(()))
}

#[test]
fn install_the_cluster_wide_variant_gives_the_manager_all_it_asks_for() -> Result<()> {
    let flags = ["--all-namespaces", "--dns-service"];
    installed_used_and_removed(&flags, |lab, pod| {
        let name = "authors.default.svc.cluster.local";
        let got = dig(&lab.node, MANAGER_DNS, Transport::Tcp, name, "A")?;
        ensure!(got.to_string().contains(AUTHORS), "{got}");
        let log = pod.log()?.to_lowercase();
        let refused: Vec<_> = log
            .lines()
            .filter(|line| line.contains("forbidden"))
            .collect();
        ensure!(refused.is_empty(), "{refused:#?}");
        Ok(())
    })
}

/// Installs with more `flags`, connects as a user without other rights, looks at the running
/// manager, installs again, and removes all.
fn installed_used_and_removed(
    flags: &[&str],
    look: impl FnOnce(&Lab, &Pod) -> Result<()>,
) -> Result<()> {
    let lab = Lab::start()?;
    let kubelet = Kubelet::start_alone(&lab)?;
    let _controllers = Controllers::start(&lab)?;
    let before = objects(&lab)?;
    let mut checks = Checks::new();

    let words = ["install", "-n", "default", "-n", "shop", "--image", IMAGE];
    let words = [&words[..], &["--allow-user", "dev"], flags].concat();
    let installing = start(&lab, "admin", &words)?;
    let pod = Pod::run(&lab, &kubelet)?;
    let status = installing.ended(START)?;
    let said = installing.log()?;
    ensure!(status.success(), "install ended with {status}:\n{said}");
    for part in [
        "Deployment kubebridge/traffic-manager: created",
        "managers: 1 ready",
        "next: kubebridge connect -n default -n shop",
    ] {
        checks.that(part, contains(&said, part));
    }

    let attempt = Attempt::start_by_kubeconfig(&lab, &lab.api.kubeconfig("dev"), &[], &[])?;
    let session = attempt.connected()?;
    checks.that("a name", resolves(&lab, &session.resolver()?, "authors"));
    checks.that("the manager", look(&lab, &pod));
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
    let after = objects(&lab)?.join("\n");
    checks.equal("the cluster after it", Ok(after), &before.join("\n"));
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
