//! How soon a Service that was created, changed or deleted is right on the laptop.
//!
//! Few changes by default; `KUBEBRIDGE_CHANGES=300 tests/run -- figures --no-capture` makes the
//! figures of docs/figures.md.

use std::{env, net::Ipv4Addr, time::Duration};

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    changes::{Api, Seen, Watcher},
    lab::Lab,
    product::{Manager, Session},
};

/// How many changes are made unless more are asked for.
const CHANGES: usize = 45;

/// The 99th percentile, from the request to the API server until it is seen: ten times what W13, H1
/// and H2 allow, because a busy machine is no failure of ours, nor a disk that takes its time to
/// write the hosts file through. The figures are printed.
const LIMIT: Duration = Duration::from_secs(10);

/// The same where systemd-resolved reads the hosts file: it looks for changes every 2 s. Five times
/// what D23 and W13 allow.
const RESOLVED_LIMIT: Duration = Duration::from_secs(15);

/// Where systemd-resolved answers.
const STUB: &str = "127.0.0.53";

#[test]
fn w13_a_changed_service_is_soon_right_on_the_laptop() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let session = Session::connect(&lab, &[])?;
    let servers = [&*session.resolver()?, STUB];
    let seen = lives_of_services(&lab, Watcher::new(lab.laptop.on(), servers)?)?;

    let resolver = tell(
        "session's resolver",
        seen.iter().map(|seen| seen.servers[0]),
    );
    let hosts = tell("hosts file", seen.iter().map(|seen| seen.hosts));
    let stub = tell("systemd-resolved", seen.iter().map(|seen| seen.servers[1]));
    session.end_at_once()?;
    ensure!(resolver <= LIMIT && hosts <= LIMIT, "that is too late");
    ensure!(stub <= RESOLVED_LIMIT, "that is too late");
    lab.finish();
    Ok(())
}

/// D23: without DNS settings, what systemd-resolved says of a Service is what it read in the hosts
/// file.
#[test]
fn w13_hosts_lines_are_soon_right_as_systemd_resolved_reads_them() -> Result<()> {
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let session = Session::connect(&lab, &["--dns", "hosts-only"])?;
    let watcher = Watcher::new(lab.laptop.on(), [STUB])?;
    let seen = lives_of_services(&lab, watcher)?;

    let hosts = tell("hosts file", seen.iter().map(|seen| seen.hosts));
    let stub = tell(
        "hosts file as systemd-resolved reads it",
        seen.iter().map(|seen| seen.servers[0]),
    );
    session.end_at_once()?;
    ensure!(hosts <= LIMIT && stub <= RESOLVED_LIMIT, "that is too late");
    lab.finish();
    Ok(())
}

/// Creates, changes and deletes Services one after the other.
fn lives_of_services<const SERVERS: usize>(
    lab: &Lab,
    mut watcher: Watcher<SERVERS>,
) -> Result<Vec<Seen<SERVERS>>> {
    let changes = match env::var("KUBEBRIDGE_CHANGES") {
        Ok(count) => count.parse().context("KUBEBRIDGE_CHANGES")?,
        Err(_) => CHANGES,
    };
    let api = Api::start(lab)?;
    let mut seen = Vec::new();
    for number in 0..u16::try_from(changes.div_ceil(3))? {
        seen.extend(life_of_a_service(&api, &mut watcher, number)?);
    }
    Ok(seen)
}

/// Creates a Service, makes it again with another address, deletes it.
fn life_of_a_service<const SERVERS: usize>(
    api: &Api<'_>,
    watcher: &mut Watcher<SERVERS>,
    number: u16,
) -> Result<[Seen<SERVERS>; 3]> {
    let name = format!("book-{number}");
    // With a dot: the stub of systemd-resolved refuses a single label that is in no hosts file.
    let asked = format!("{name}.default");
    let [high, low] = number.to_be_bytes();
    let first = Ipv4Addr::new(10, 96, 16 + high, low);
    let second = Ipv4Addr::new(10, 96, 32 + high, low);
    let created = watcher.sees(api.create(&name, first)?, &asked, Some(first))?;
    api.delete(&name)?;
    let changed = watcher.sees(api.create(&name, second)?, &asked, Some(second))?;
    let deleted = watcher.sees(api.delete(&name)?, &asked, None)?;
    Ok([created, changed, deleted])
}

/// Prints the figures and gives the 99th percentile.
#[expect(clippy::print_stderr, reason = "the figures are what is shown")]
fn tell(what: &str, times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    let percentile = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    let [p50, p90, p99, longest] = [50, 90, 99, 100].map(|percent| percentile(percent).as_millis());
    eprintln!(
        "{what}: {} changes, p50 {p50} ms, p90 {p90} ms, p99 {p99} ms, longest {longest} ms",
        times.len()
    );
    percentile(99)
}
