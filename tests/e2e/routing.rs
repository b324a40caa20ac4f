//! What the laptop's networks do to the routes of a session: found out before anything is changed,
//! both named, and what helps helps.

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::Lab,
    product::{Attempt, Manager, kubebridge_output},
    snapshot::Snapshot,
};
use serde_json::Value;

/// A bridge of a container engine, in the middle of the cluster's Services.
const BRIDGE: &str = "ip link add docker0 type bridge; ip addr add 10.96.64.1/18 dev docker0; \
                      ip link set docker0 up";

/// A VPN that has more than all of them.
const VPN: &str = "ip tuntap add tun0 mode tun; ip addr add 10.8.0.2/32 dev tun0; \
                   ip link set tun0 up; ip route add 10.96.0.0/12 dev tun0";

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "one machine, one overlap after the other"
)]
fn lifecycle_16_an_overlap_is_named_before_the_link_and_exclude_cidr_helps() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let laptop = lab.laptop.on();
    let mut checks = Checks::new();
    let network = ["--include-cidr", "10.96.0.0/16"];

    laptop.shell(BRIDGE)?;
    let attempt = Attempt::start(&lab, &network)?;
    let session = attempt.connected()?;
    let status = kubebridge_output(&lab, &["status", "-o", "json"])?;
    let status: Value = serde_json::from_str(&status).context("status")?;
    let routing = &status["sessions"][0]["routing"];
    let networks = routing["networks"].as_array().context("networks")?;
    let networks: Vec<_> = networks
        .iter()
        .filter_map(|one| one["network"].as_str())
        .collect();
    checks.equal(
        "a bridge in the middle is a hole",
        Ok(networks.join(" ")),
        "10.96.0.0/18 10.96.128.0/17",
    );
    checks.equal(
        "the hole has its link",
        Ok(routing["overlaps"].to_string()),
        r#"[{"ours":"10.96.0.0/16","theirs":"10.96.64.0/18","via":"docker0"}]"#,
    );
    let ended = session.ending();
    ended.signal(rustix::process::Signal::INT)?;
    ended.signal(rustix::process::Signal::INT)?;
    ended.ended()?;
    let said = ended.said()?;
    checks.that("both routes are named", {
        let line = said.lines().find(|line| line.contains("dev docker0"));
        let line = line.unwrap_or_default();
        let both = line.contains("10.96.0.0/16") && line.contains("10.96.64.0/18");
        both.then_some(()).context(said.clone())
    });

    laptop.shell(VPN)?;
    let before = Snapshot::take(laptop)?;
    let attempt = Attempt::start(&lab, &network)?;
    let status = attempt.ended()?;
    let said = attempt.said()?;
    checks.that("a network that is taken whole is an error", {
        let words = ["nothing is left of 10.96.0.0/16", "10.96.0.0/12 dev tun0"];
        let hint = "hint: --exclude-cidr 10.96.0.0/16";
        let all = words.iter().chain([&hint]).all(|word| said.contains(word));
        (status.code() == Some(73) && all)
            .then_some(())
            .with_context(|| format!("{status}: {said}"))
    });
    checks.that("no link was made", {
        let early = !said.contains("\nlink: ");
        early.then_some(()).context(said)
    });
    checks.that(
        "nothing changed",
        Snapshot::take(laptop)?.must_equal(&before),
    );

    let helped = Attempt::start(
        &lab,
        &[&network[..], &["--exclude-cidr", "10.96.0.0/16"]].concat(),
    )?;
    let session = helped.connected()?;
    let status = kubebridge_output(&lab, &["status", "-o", "json"])?;
    let status: Value = serde_json::from_str(&status).context("status")?;
    checks.that("nothing of it is routed with --exclude-cidr", {
        let networks = &status["sessions"][0]["routing"]["networks"];
        let none = networks.as_array().is_some_and(Vec::is_empty);
        (|| {
            ensure!(none, "{networks}");
            Ok(())
        })()
    });
    session.end_at_once()?;
    checks.that(
        "nothing is left",
        Snapshot::take(laptop)?.must_equal(&before),
    );
    checks.finish()?;
    lab.finish();
    Ok(())
}
