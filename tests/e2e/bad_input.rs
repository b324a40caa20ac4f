//! What cannot work is said in one line with the way out, ends with its exit code, and changes
//! nothing on the laptop.

use std::fs;

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::{AUTHORS, Lab},
    laptop::Hosts,
    lookup::Family,
    product::{
        Attempt, Manager, OtherManager, Session, kubebridge, kubebridge_as_nobody,
        kubebridge_output, must_be_as, token_flags,
    },
    snapshot::Snapshot,
};
use rustix::process::Signal;

#[test]
fn what_cannot_work_is_refused_with_its_exit_code_and_changes_nothing() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let laptop = lab.laptop.on();
    let before = Snapshot::take(laptop)?;
    let mut checks = Checks::new();

    let manager = lab.relay.address().to_string();
    let connect = [
        "--progress",
        "quiet",
        "connect",
        "--foreground",
        "--manager",
    ];
    let token = token_flags(&lab, &["default"])?.concat();
    let good = [&connect[..], &[&manager, "-n", "default", &token]].concat();

    refused_words(&lab, &[&connect[..], &[&manager]].concat(), &mut checks)?;
    let nobody_there = [&connect[..], &["127.0.0.1:9", "-n", "default"]].concat();
    let said = kubebridge(&lab, &nobody_there)?;
    checks.that(
        "a manager that is not there",
        is_refused(&said, 69, "127.0.0.1:9"),
    );
    let said = kubebridge_as_nobody(&lab, &good)?;
    checks.that("not root", is_refused(&said, 77, "root"));
    checks.that("nothing changed", must_be_as(&lab, &before));

    checks.that("without systemd-resolved", without_resolved(&lab, &good));
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// The manager says another version than the client's, which is 0.1.
#[test]
fn w16_a_manager_of_another_version_is_told_of_or_refused() -> Result<()> {
    let lab = Lab::start()?;
    let before = Snapshot::take(lab.laptop.on())?;
    let mut checks = Checks::new();
    for (version, shown, warned) in [
        ("0.4.0", "the manager is newer by 3 minor versions", false),
        ("0.5.0", "the manager is newer by 4 minor versions", true),
        ("0.0.9", "the manager is older by 1 minor version", false),
        ("9.0.0", "the manager is newer by a major version", true),
    ] {
        let manager = OtherManager::start(&lab, version, None)?;
        checks.that(version, skew_is_told(&lab, version, shown, warned));
        manager.end()?;
        checks.that(format!("after {version}"), must_be_as(&lab, &before));
    }

    let manager = OtherManager::start(&lab, "0.5.0", Some("0.3.0"))?;
    let address = lab.relay.address().to_string();
    let words = [
        "--progress",
        "quiet",
        "connect",
        "--foreground",
        "-n=default",
    ];
    let said = kubebridge(&lab, &[&words[..], &["--manager", &address]].concat())?;
    checks.that(
        "a client that is too old",
        is_refused(&said, 1, "0.3.0 and above").and_then(|()| {
            let error = String::from_utf8_lossy(&said.stderr).into_owned();
            ensure!(error.contains("\nhint: upgrade"), "no way out: {error}");
            Ok(())
        }),
    );
    checks.that("nothing changed", must_be_as(&lab, &before));
    manager.end()?;
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// Connects all the same, and finds `shown` in the status, and in a warning if `warned`.
fn skew_is_told(lab: &Lab, version: &str, shown: &str, warned: bool) -> Result<()> {
    let attempt = Attempt::start(lab, &[])?;
    attempt.says("connected")?;
    let said = attempt.said()?;
    let session = attempt.connected()?;
    let status = kubebridge_output(lab, &["status"])?;
    session.end_at_once()?;
    let line = format!("(version {version}); {shown}");
    ensure!(
        status.contains(&line),
        "status does not say {line}: {status}"
    );
    let warning = format!("warning: the manager is version {version}, ");
    let has_warning = said.lines().any(|line| line.starts_with(&warning));
    ensure!(has_warning == warned, "a warning: {has_warning}; {said}");
    Ok(())
}

/// Arguments and files that are wrong in themselves.
fn refused_words(lab: &Lab, connect: &[&str], checks: &mut Checks) -> Result<()> {
    let unknown_key = config(lab, "unknown", "namespce: default\n")?;
    let broken = config(lab, "broken", "namespace: [default\n")?;
    for (what, words, code, told) in [
        ("a bad namespace", ["-n", "Bad_Name"], 64, "Bad_Name"),
        ("a namespace with a dot", ["-n", "a.b"], 64, "a.b"),
        ("an empty namespace", ["-n", ""], 64, "namespace"),
        (
            "an unknown flag",
            ["-n=default", "--hots=off"],
            64,
            "--hots",
        ),
        (
            "an unknown key",
            ["--config", &unknown_key],
            78,
            "namespace",
        ),
        ("a file that is no YAML", ["--config", &broken], 78, &broken),
        (
            "a file that is not there",
            ["--config", "/nowhere"],
            78,
            "/nowhere",
        ),
    ] {
        let said = kubebridge(lab, &[connect, &words].concat())?;
        checks.that(what, is_refused(&said, code, told));
    }
    Ok(())
}

/// A machine with a plain resolv.conf: hosts lines are all there can be.
fn without_resolved(lab: &Lab, words: &[&str]) -> Result<()> {
    let laptop = lab.laptop.on();
    lab.laptop.end_resolved(Signal::TERM)?;
    laptop.shell(
        "rm /etc/resolv.conf
echo 'nameserver 192.0.2.53' >/etc/resolv.conf
sed -i 's/^hosts:.*/hosts: files dns/' /etc/nsswitch.conf",
    )?;
    let before = Snapshot::take_without_resolved(laptop)?;
    let asked = [words, &["--dns", "resolved"]].concat();
    is_refused(&kubebridge(lab, &asked)?, 71, "--dns hosts-only")?;
    Snapshot::take_without_resolved(laptop)?.must_equal(&before)?;

    let attempt = Attempt::start(lab, &[])?;
    attempt.says("connected")?;
    let said = attempt.said()?;
    let session: Session<'_> = attempt.connected()?;
    let found = lab.lookup.glibc(
        &lab.laptop,
        Hosts::Stub,
        Family::V4,
        &["authors.default", "www.example.org"],
    );
    session.end_at_once()?;
    let found = found?;
    ensure!(
        said.lines()
            .any(|line| line.starts_with("warning: ") && line.contains("hosts")),
        "it does not warn: {said}"
    );
    for (name, wanted) in [
        ("authors.default", format!("= {AUTHORS}")),
        ("www.example.org", "= 203.0.113.81".to_owned()),
    ] {
        let got = found.of(name)?;
        ensure!(got == wanted, "{name} {got}");
    }
    Snapshot::take_without_resolved(laptop)?.must_equal(&before)
}

/// Fails unless a command ended with `code` and one line, which tells `told`, and maybe a hint.
fn is_refused(said: &std::process::Output, code: i32, told: &str) -> Result<()> {
    let error = String::from_utf8_lossy(&said.stderr).into_owned();
    ensure!(
        said.status.code() == Some(code),
        "it ended with {}, not {code}: {error}",
        said.status
    );
    let lines: Vec<&str> = error.lines().collect();
    let short = match lines.as_slice() {
        [_] => true,
        [_, hint] => hint.starts_with("hint: "),
        _ => false,
    };
    ensure!(short, "it is not one line and a hint: {error}");
    ensure!(error.contains(told), "it does not tell {told:?}: {error}");
    ensure!(said.stdout.is_empty(), "it has data: {said:?}");
    Ok(())
}

fn config(lab: &Lab, name: &str, text: &str) -> Result<String> {
    let path = lab.logs().join(format!("{name}.yaml"));
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}
