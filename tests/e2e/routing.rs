//! What the laptop's networks do to the routes of a session: found out before anything is changed,
//! both named, and what helps helps.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::Lab,
    product::{Attempt, Manager, Session, kubebridge_output},
    snapshot::Snapshot,
    wait::until,
};
use serde_json::Value;

/// How long a session may take to put a route back, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A bridge of a container engine, in the middle of the cluster's Services.
const BRIDGE: &str = "ip link add docker0 type bridge; ip addr add 10.96.64.1/18 dev docker0; \
                      ip link set docker0 up";

/// A VPN that has more than all of them.
const VPN: &str = "ip tuntap add tun0 mode tun; ip addr add 10.8.0.2/32 dev tun0; \
                   ip link set tun0 up; ip route add 10.96.0.0/12 dev tun0";

/// Ends a session at once, and gives what it said.
fn said_until_its_end(session: Session<'_>) -> Result<String> {
    let ended = session.ending();
    ended.signal(rustix::process::Signal::INT)?;
    ended.signal(rustix::process::Signal::INT)?;
    ended.ended()?;
    ended.said()
}

#[test]
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
    let said = said_until_its_end(session)?;
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

/// A VPN with routes of its own inside the cluster's Services, a name server among them.
const NARROW: &str = "ip route add 10.96.77.0/24 dev tun0; ip route add 10.96.0.53/32 dev tun0";

#[test]
fn w9_take_cidr_has_the_cluster_win_over_a_wider_vpn_route_and_over_nothing_else() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let laptop = lab.laptop.on();
    let mut checks = Checks::new();
    laptop.shell(VPN)?;
    laptop.shell(NARROW)?;
    let before = Snapshot::take(laptop)?;

    let attempt = Attempt::start(&lab, &["--include-cidr", "10.96.0.0/16"])?;
    let status = attempt.ended()?;
    let said = attempt.said()?;
    checks.that("without the flag it is refused, and named", {
        let named = said.contains("--take-cidr 10.96.0.0/16 takes it from 10.96.0.0/12");
        (status.code() == Some(73) && named)
            .then_some(())
            .with_context(|| format!("{status}: {said}"))
    });

    let session = Attempt::start(&lab, &["--take-cidr", "10.96.0.0/16"])?.connected()?;
    for (address, link) in [
        ("10.96.3.1", "kb0"),
        ("10.96.200.1", "kb0"),
        ("10.96.77.1", "tun0"),
        ("10.96.0.53", "tun0"),
        ("10.97.0.1", "tun0"),
        ("192.0.2.1", "eth0"),
    ] {
        let route = laptop.output(&["ip", "route", "get", address]);
        checks.that(format!("the way to {address}"), {
            let wanted = format!(" dev {link} ");
            route.and_then(|route| {
                ensure!(route.contains(&wanted), "not by {link}: {route}");
                Ok(())
            })
        });
    }
    let told = kubebridge_output(&lab, &["status", "-o", "json"])?;
    let told: Value = serde_json::from_str(&told).context("status")?;
    checks.equal(
        "status has both routes",
        Ok(told["sessions"][0]["routing"]["taken"].to_string()),
        r#"[{"ours":"10.96.0.0/16","theirs":"10.96.0.0/12","via":"tun0"}]"#,
    );
    // A route that somebody removes is put back: whoever guards the machine knows of the flag, too.
    laptop.shell("ip route flush proto 107")?;
    let back = until("the routes to be put back", PATIENCE, || {
        let route = laptop.output(&["ip", "route", "get", "10.96.200.1"])?;
        ensure!(route.contains(" dev kb0 "), "{route}");
        Ok(())
    });
    checks.that("routes are put back", back);
    let said = said_until_its_end(session)?;
    checks.that("both routes are named", {
        let words =
            "10.96.0.0/16 overlaps the route 10.96.0.0/12 dev tun0: packets to 10.96.0.0/16";
        said.contains(words).then_some(()).context(said.clone())
    });
    checks.that(
        "nothing is left",
        Snapshot::take(laptop)?.must_equal(&before),
    );
    checks.finish()?;
    lab.finish();
    Ok(())
}
