//! Others change what a session set up: it is put right without another `connect`, and names
//! outside the cluster are answered throughout.

use std::{thread, time::Duration};

use anyhow::{Context, Result, anyhow, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::{AUTHORS, Lab, OUTSIDE_DNS},
    laptop::Hosts,
    lookup::Family,
    prober::{Prober, Question},
    product::{Manager, Session, must_be_as},
    snapshot::Snapshot,
    wait::{last, until},
};
use rustix::process::Signal;
use tokio::time::Instant;

/// The longest until all is as the session set it up: changes are gathered for 5 s at most, and a
/// busy machine gets four times that, which is still before the session looks by itself. The
/// figure itself is printed.
const PUT_RIGHT: Duration = Duration::from_secs(20);

/// The longest until a program that asked at once has its answer: it may have to wait until
/// systemd-resolved asks again, which it does after 5 s.
const ANSWERED: Duration = Duration::from_secs(30);

/// How long each fault is watched at the least.
const WATCHED: Duration = Duration::from_secs(2);

/// What somebody does to the laptop.
#[derive(Clone, Copy)]
enum Fault {
    /// systemd-resolved is ended by this signal and started again.
    Restart(Signal),
    /// The same, and what it had written down is gone.
    Forget,
    /// A command of the system.
    Command(&'static str),
}

const FAULTS: &[(&str, Fault)] = &[
    ("systemd-resolved restarted", Fault::Restart(Signal::TERM)),
    ("systemd-resolved killed", Fault::Restart(Signal::KILL)),
    ("systemd-resolved and its state lost", Fault::Forget),
    (
        "the link's DNS reverted",
        Fault::Command("resolvectl revert kb0"),
    ),
    (
        "the link's domains replaced",
        Fault::Command("resolvectl domain kb0 '~elsewhere.example'"),
    ),
    (
        "the link down and up",
        Fault::Command("ip link set kb0 down; sleep 0.3; ip link set kb0 up"),
    ),
    ("the link down", Fault::Command("ip link set kb0 down")),
    (
        "the link's addresses removed",
        Fault::Command("ip addr flush dev kb0"),
    ),
    ("the link deleted", Fault::Command("ip link del kb0")),
];

impl Fault {
    fn happens(self, lab: &Lab) -> Result<()> {
        match self {
            Self::Restart(signal) => {
                lab.laptop.end_resolved(signal)?;
                lab.laptop.start_resolved()
            }
            Self::Forget => {
                lab.laptop.end_resolved(Signal::KILL)?;
                lab.laptop
                    .on()
                    .shell("rm -rf /run/systemd/resolve/netif/*")?;
                lab.laptop.start_resolved()
            }
            Self::Command(line) => lab.laptop.on().shell(line).map(drop),
        }
    }

    /// The ways of outside names that the fault does not itself take away.
    fn leaves(self, session: &Session<'_>) -> Result<Vec<String>> {
        Ok(match self {
            // The session's resolver and the server it asks: nobody asks through the stub.
            Self::Restart(_) | Self::Forget => vec![session.resolver()?, OUTSIDE_DNS.to_owned()],
            // The stub, as most programs ask: it knows the outside server itself.
            Self::Command(_) => vec!["127.0.0.53".to_owned()],
        })
    }
}

#[test]
fn what_others_change_is_put_right_and_outside_names_never_fail() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let before = Snapshot::take(lab.laptop.on())?;
    let session = Session::connect(&lab, &[])?;
    let mut checks = Checks::new();

    for (what, fault) in FAULTS {
        checks.that(what, is_put_right(&lab, &session, what, *fault));
    }
    checks.that("the end", session.end_at_once());
    checks.that("after it", must_be_as(&lab, &before));

    checks.finish()?;
    lab.finish();
    Ok(())
}

/// Causes the fault, waits until the link is as it was, and has a program ask meanwhile.
fn is_put_right(lab: &Lab, session: &Session<'_>, what: &str, fault: Fault) -> Result<()> {
    let laptop = lab.laptop.on();
    answered(lab).context("before the fault")?;
    let settings = link_settings(lab)?;
    let servers = fault.leaves(session)?;
    let probers: Vec<Prober> = servers
        .iter()
        .map(|server| Prober::start(laptop, server, Question::Outside))
        .collect::<Result<_>>()?;
    fault.happens(lab)?;
    let begin = Instant::now();
    let (put_right, again) = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let wanted = "a cluster name by nss-resolve and by the stub";
            until(wanted, ANSWERED, || answered(lab)).map(|()| begin.elapsed())
        });
        let put_right = until("the link to be as it was", PUT_RIGHT, || {
            let now = link_settings(lab)?;
            ensure!(now == settings, "it is {now}, not {settings}");
            Ok(begin.elapsed())
        });
        let again = asking.join().map_err(|_| anyhow!("the asking thread died"));
        (put_right, again.flatten())
    });
    last(WATCHED.saturating_sub(begin.elapsed()));
    let mut reports = Vec::new();
    for (server, prober) in servers.iter().zip(probers) {
        let report = prober.finish()?;
        say(&format!("{what}: outside names at {server}: {report}"));
        reports.push(report);
    }
    let (put_right, again) = (put_right?, again?);
    say(&format!(
        "{what}: put right after {put_right:.1?}, a cluster name answered after {again:.1?}"
    ));
    for report in reports {
        report.must_be_without_failure()?;
    }
    Ok(())
}

/// What the system knows of our link, without its number: that may be another one.
fn link_settings(lab: &Lab) -> Result<String> {
    let mut settings = String::new();
    for question in ["dns", "domain", "default-route"] {
        let said = lab.laptop.on().output(&["resolvectl", question])?;
        let ours = said
            .lines()
            .filter_map(|line| line.find("(kb").map(|at| &line[at..]));
        settings.extend(ours.map(|line| format!("{question} {line}; ")));
    }
    let said = lab
        .laptop
        .on()
        .output(&["ip", "-br", "-4", "addr", "show"])?;
    let ours = said.lines().filter(|line| line.starts_with("kb"));
    settings.extend(ours.map(str::trim));
    Ok(settings)
}

#[expect(
    clippy::print_stderr,
    reason = "the times and counts are what is shown"
)]
fn say(text: &str) {
    eprintln!("{text}");
}

/// Fails unless programs find a cluster name. By a name that has no hosts line.
fn answered(lab: &Lab) -> Result<()> {
    let name = "authors.default.svc.cluster.local";
    let ways = [
        (Hosts::OnlyResolve, "nss-resolve"),
        (Hosts::Stub, "the stub"),
    ];
    for (hosts, way) in ways {
        let found = lab
            .lookup
            .glibc(&lab.laptop, hosts, Family::V4, &[name])?
            .of(name)?;
        ensure!(found == format!("= {AUTHORS}"), "by {way}: {found}");
    }
    Ok(())
}
