//! With a session: one that is well, one that died, one whose routes somebody took.

use std::time::Duration;

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::Lab,
    product::{Manager, Session, kubebridge_output},
    wait::until,
};

use super::doctor;

const START: Duration = Duration::from_secs(60);

/// A VPN whose rule comes before the main table, for the cluster's packets alone: a route for
/// everything says nothing of who has an address, so that no overlap is found.
const VPN: &str = "ip tuntap add tun0 mode tun; ip addr add 10.8.0.2/32 dev tun0; \
                   ip link set tun0 up; ip route add default dev tun0 table 52; \
                   ip rule add pref 100 to 10.96.0.0/16 lookup 52";

#[test]
fn lifecycle_11_a_session_that_is_well_has_nothing_to_complain_of() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let session = Session::connect(&lab, &["--include-cidr", "10.96.0.0/16"])?;
    let laptop = lab.laptop.on();
    let said = until("all to be well", START, || {
        let said = doctor(laptop, &["--probe", "www.example.org"])?;
        let troubles = said.troubles();
        ensure!(troubles.is_empty(), "{troubles:?}");
        Ok(said)
    })?;
    let mut checks = Checks::new();
    let resolver = session.resolver()?;
    let ways = [
        "getaddrinfo: ",
        "systemd-resolved by D-Bus: ",
        "127.0.0.53 by UDP: ",
        "127.0.0.53 by TCP: ",
    ];
    let own = [
        format!("{resolver} by UDP: "),
        format!("{resolver} by TCP: "),
    ];
    let own = own.iter().map(String::as_str);
    let ways: Vec<_> = ways.into_iter().chain(own).collect();
    checks.that("an outside name", said.must("answers", "ok", "same", &ways));
    for (check, found) in [
        ("dns-backend", "resolved"),
        ("leftovers", "none"),
        ("other-tools", "none"),
        ("session", "connected"),
        ("tunnel", "up"),
        ("data-connections", "unused"),
        ("flows", "well"),
        ("session-routes", "in-force"),
        ("session-dns", "answers"),
        ("kubernetes", "synced"),
        ("authorisation", "good"),
        ("machine-changes", "as-wanted"),
    ] {
        checks.that(check, said.must(check, "ok", found, &[]));
    }
    checks.that("its exit code", said.ends(0));
    let text = kubebridge_output(&lab, &["doctor"])?;
    checks.that("text", {
        let line = text.lines().find(|line| line.starts_with("session-dns"));
        (|| {
            ensure!(line.is_some_and(|line| line.contains(" ok ")), "{text}");
            Ok(())
        })()
    });

    laptop.shell(VPN)?;
    let said = doctor(laptop, &["--probe", "www.example.org"])?;
    let words = ["packets to 10.96.0.0/16 go by tun0", "ip rule"];
    checks.that(
        "a rule that takes the session's packets",
        said.must("session-routes", "fail", "lost-to-another", &words),
    );
    checks.that("the exit code of that", said.ends(71));
    laptop.shell("ip rule del pref 100; ip link del tun0")?;
    session.end_at_once()?;
    checks.finish()?;
    lab.finish();
    Ok(())
}

#[test]
fn lifecycle_11_what_a_killed_session_left_is_told_with_what_repairs_it() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let laptop = lab.laptop.on();
    Session::connect(&lab, &[])?.kill()?;
    let said = doctor(laptop, &["--probe", "www.example.org"])?;
    let words = ["lines in the hosts file", "sudo kubebridge recover"];
    said.must("leftovers", "fail", "dead-session", &words)?;
    said.must("session", "skipped", "skipped", &[])?;
    said.ends(71)?;

    kubebridge_output(&lab, &["recover"])?;
    let said = doctor(laptop, &["--probe", "www.example.org"])?;
    said.must("leftovers", "ok", "none", &[])?;
    said.ends(0)?;
    lab.finish();
    Ok(())
}

#[test]
fn lifecycle_11_a_manager_that_is_gone_is_told_from_a_machine_that_is_wrong() -> Result<()> {
    let lab = Lab::start()?;
    let manager = Manager::start(&lab)?;
    let session = Session::connect(&lab, &["--include-cidr", "10.96.0.0/16"])?;
    let laptop = lab.laptop.on();
    manager.kill()?;
    until("the session to notice", START, || {
        let said = doctor(laptop, &["--probe", "www.example.org"])?;
        said.must("tunnel", "fail", "down", &["has not answered"])?;
        said.must("session", "fail", "degraded", &["kubectl"])?;
        said.must("session-routes", "ok", "in-force", &[])?;
        said.must("answers", "ok", "same", &[])?;
        said.ends(69)
    })?;
    session.end_at_once()?;
    lab.finish();
    Ok(())
}
