//! The manager is killed and replaced, and the way to it is cut: outside names never fail, status
//! says so, and the session finds back by itself, with what changed meanwhile.

use std::{fs, net::Ipv4Addr, time::Duration};

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    lab::{AUTHORS, Lab},
    machine::Machine,
    prober::{Prober, Question, Report},
    product::{Manager, Session, must_be_as, status},
    snapshot::Snapshot,
    wait::{last, until},
};
use tokio::time::Instant;

/// When status has to say that something is wrong: three times what lifecycle 5 allows, because a
/// busy machine is no failure of ours. The figure itself is printed.
const NOTICED: Duration = Duration::from_secs(45);

/// When all is answered again after the manager or the way to it is back: six times what lifecycle
/// 4 and 6 and W8 allow, for the same reason.
const BACK: Duration = Duration::from_secs(30);

/// How long the way is cut.
const CUT: Duration = Duration::from_secs(20);

const CLUSTER_NAME: Question = Question::Name("authors", Ipv4Addr::new(10, 96, 1, 1));

#[test]
fn a_replaced_manager_is_found_again_with_what_changed_meanwhile() -> Result<()> {
    let lab = Lab::start()?;
    let manager = Manager::start(&lab)?;
    create(&lab, "books", "10.96.2.1")?;
    let before = Snapshot::take(lab.laptop.on())?;
    let session = Session::connect(&lab, &[])?;
    let resolver = session.resolver()?;
    let mut checks = Checks::new();
    checks.that(
        "books at first",
        shows(&lab, &resolver, "books", Some("10.96.2.1"), BACK),
    );
    let asked = Asked::start(lab.laptop.on(), &resolver)?;

    manager.kill()?;
    let replaced = back_after(&lab, "replaced at once", || Manager::start_again(&lab));
    match replaced {
        Ok(manager) => manager.kill()?,
        Err(error) => checks.that("replaced", Err(error)),
    }
    // Its Services change while nobody watches.
    lab.kubectl(&["delete", "service", "books"])?;
    create(&lab, "papers", "10.96.2.2")?;
    let manager = Manager::start_again(&lab)?;
    let begin = Instant::now();
    checks.that("books is gone", shows(&lab, &resolver, "books", None, BACK));
    checks.that(
        "papers is there",
        shows(&lab, &resolver, "papers", Some("10.96.2.2"), BACK),
    );
    checks.that(
        "authors stays",
        shows(&lab, &resolver, "authors", Some(AUTHORS), BACK),
    );
    tell("changes made while it was away show after", begin.elapsed());

    asked.finish(&mut checks)?;
    checks.that("the end", session.end_at_once());
    checks.that("after it", must_be_as(&lab, &before));
    drop(manager);
    checks.finish()?;
    lab.finish();
    Ok(())
}

#[test]
fn a_way_that_refuses_is_seen_and_taken_again_when_it_is_back() -> Result<()> {
    a_cut_way("reject with tcp reset")
}

#[test]
fn a_way_that_swallows_all_is_seen_and_taken_again_when_it_is_back() -> Result<()> {
    a_cut_way("drop")
}

/// What is asked every 10 ms while it happens.
struct Asked {
    outside: Prober,
    through_stub: Prober,
    inside: Prober,
}

impl Asked {
    fn start(laptop: &Machine, resolver: &str) -> Result<Self> {
        let asked = Self {
            outside: Prober::start(laptop, resolver, Question::Outside)?,
            through_stub: Prober::start(laptop, "127.0.0.53", Question::Outside)?,
            inside: Prober::start(laptop, resolver, CLUSTER_NAME)?,
        };
        // A name that was never answered has no last answer to be given.
        asked.inside.answered(BACK)?;
        Ok(asked)
    }

    /// Fails the checks if an outside name did, or if it was ever said that the Service is not
    /// there. Questions on their way when the manager falls silent do fail.
    fn finish(self, checks: &mut Checks) -> Result<()> {
        for (what, prober) in [
            ("outside names at our resolver", self.outside),
            ("outside names at the stub", self.through_stub),
        ] {
            let report = prober.finish()?;
            say(what, &report);
            checks.that(what, report.must_be_without_failure());
        }
        let inside = self.inside.finish()?;
        say("a cluster name", &inside);
        checks.that("a cluster name is never denied", inside.must_not_deny());
        Ok(())
    }
}

/// Cuts the way to the manager for a while by a firewall rule that does `verdict`.
fn a_cut_way(verdict: &str) -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let laptop = lab.laptop.on();
    let before = Snapshot::take(laptop)?;
    let session = Session::connect(&lab, &[])?;
    let resolver = session.resolver()?;
    let during = Snapshot::take(laptop)?;
    let mut checks = Checks::new();
    let asked = Asked::start(laptop, &resolver)?;

    let port = lab.relay.address().port();
    let begin = Instant::now();
    laptop.shell(&format!(
        "nft add table inet cut
nft add chain inet cut out '{{ type filter hook output priority 0; }}'
nft add rule inet cut out tcp dport {port} {verdict}
nft add rule inet cut out tcp sport {port} {verdict}"
    ))?;
    let noticed = until("status to be degraded", NOTICED, || {
        state_is(&lab, "degraded")
    });
    tell(
        &format!("{verdict}: status says degraded after"),
        begin.elapsed(),
    );
    checks.that("degraded", noticed);
    checks.that(
        "nothing of the system is touched meanwhile",
        Snapshot::take(laptop)?.must_equal(&during),
    );
    last(CUT.saturating_sub(begin.elapsed()));
    laptop.shell("nft delete table inet cut")?;
    checks.that(
        "the way is back",
        back_after(&lab, &format!("{verdict} for {CUT:?}"), || Ok(())),
    );
    checks.that(
        "authors",
        shows(&lab, &resolver, "authors", Some(AUTHORS), BACK),
    );

    asked.finish(&mut checks)?;
    checks.that("the end", session.end_at_once());
    checks.that("after it", must_be_as(&lab, &before));
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// Waits until status says that the session is well again, from the moment `repair` is done.
fn back_after<T>(lab: &Lab, what: &str, repair: impl FnOnce() -> Result<T>) -> Result<T> {
    let repaired = repair()?;
    let begin = Instant::now();
    let back = until("status to be connected", BACK, || {
        state_is(lab, "connected")
    });
    tell(
        &format!("{what}: status says connected after"),
        begin.elapsed(),
    );
    back?;
    Ok(repaired)
}

fn state_is(lab: &Lab, wanted: &str) -> Result<()> {
    let status = status(lab)?;
    ensure!(status["state"] == wanted, "status says {status}");
    Ok(())
}

fn create(lab: &Lab, name: &str, address: &str) -> Result<()> {
    let address = format!("--clusterip={address}");
    lab.kubectl(&["create", "service", "clusterip", name, "--tcp=80", &address])?;
    Ok(())
}

/// Waits until the resolver and the hosts file say `address` of `name`, or nothing.
fn shows(
    lab: &Lab,
    resolver: &str,
    name: &str,
    address: Option<&str>,
    limit: Duration,
) -> Result<()> {
    let wanted = match address {
        Some(address) => format!("NOERROR {name}. A {address}"),
        None => "NXDOMAIN".to_owned(),
    };
    until(&format!("{wanted} of {name}"), limit, || {
        let got = dig(lab.laptop.on(), resolver, Transport::Udp, name, "A")?;
        ensure!(got.to_string() == wanted, "{got}");
        let hosts = fs::read_to_string(lab.laptop.on().path("/etc/hosts"))?;
        let there = hosts.lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.contains(&name) && address.is_none_or(|address| words.contains(&address))
        });
        ensure!(there == address.is_some(), "the hosts file has {hosts}");
        Ok(())
    })
}

#[expect(clippy::print_stderr, reason = "the counts are what is shown")]
fn say(what: &str, report: &Report) {
    eprintln!("{what}: {report}");
}

#[expect(clippy::print_stderr, reason = "the times are what is shown")]
fn tell(what: &str, time: Duration) {
    eprintln!("{what} {time:.1?}");
}
