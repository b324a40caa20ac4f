//! Other ways to run `connect`, and what it refuses: each with its exit code, and nothing changed.

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::{AUTHORS, Lab},
    laptop::Hosts,
    lookup::Family,
    product::{Manager, Session, kubebridge, token_flags},
    snapshot::Snapshot,
};

#[test]
fn connect_without_dns_uses_hosts_lines_and_refusals_change_nothing() -> Result<()> {
    let lab = Lab::start()?;
    let laptop = lab.laptop.on();
    let before = Snapshot::take(laptop)?;
    let mut checks = Checks::new();
    let relay = lab.relay.address().to_string();
    let connect = [
        "connect",
        "--foreground",
        "-n",
        "default",
        "--manager",
        &relay,
    ];

    checks.that("no manager", ends_with(&lab, &connect, 69));
    checks.that(
        "a network address without TLS",
        ends_with(&lab, &["connect", "--manager", "10.0.0.7:7080"], 64),
    );
    let later = [&connect[..], &["--retake"]].concat();
    checks.that("a flag that is not built yet", ends_with(&lab, &later, 64));
    checks.that(
        "nothing changed",
        Snapshot::take(laptop)?.must_equal(&before),
    );

    let _manager = Manager::start(&lab)?;
    let session = Session::connect(&lab, &["--dns", "hosts-only"])?;
    let tokens = token_flags(&lab, &["default"])?;
    let second = [&connect[..], &[tokens[0].as_str()]].concat();
    checks.that("a second session", ends_with(&lab, &second, 73));
    let during = Snapshot::take(laptop)?;
    checks.that("DNS settings with --dns hosts-only", {
        // Link 2 (eth0):
        let domains = during.of("resolvectl domain")?;
        match domains.lines().all(|line| line.ends_with(':')) {
            true => Ok(()),
            false => Err(anyhow::anyhow!("there are some: {domains}")),
        }
    });
    checks.equal(
        "a cluster name with --dns hosts-only",
        lab.lookup
            .glibc(
                &lab.laptop,
                Hosts::OnlyFiles,
                Family::V4,
                &["authors.default"],
            )
            .and_then(|found| found.of("authors.default")),
        &format!("= {AUTHORS}"),
    );
    checks.that("disconnect", session.disconnect());
    checks.that(
        "after disconnect",
        Snapshot::take(laptop)?.must_equal(&before),
    );

    checks.finish()?;
    lab.finish();
    Ok(())
}

fn ends_with(lab: &Lab, words: &[&str], code: i32) -> Result<()> {
    let said = kubebridge(lab, words)?;
    let error = String::from_utf8_lossy(&said.stderr);
    ensure!(
        said.status.code() == Some(code),
        "{words:?} ended with {}, not {code}: {error}",
        said.status
    );
    ensure!(!error.trim().is_empty(), "it does not say why");
    Ok(())
}
