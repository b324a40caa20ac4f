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

/// The 99th percentile, from the request to the API server until it is seen: three times what W13,
/// H1 and H2 allow, because a busy machine is no failure of ours. The figures are printed.
const LIMIT: Duration = Duration::from_secs(3);

#[test]
fn w13_a_changed_service_is_soon_right_on_the_laptop() -> Result<()> {
    let changes = match env::var("KUBEBRIDGE_CHANGES") {
        Ok(count) => count.parse().context("KUBEBRIDGE_CHANGES")?,
        Err(_) => CHANGES,
    };
    let lab = Lab::start()?;
    let _manager = Manager::start(&lab)?;
    let session = Session::connect(&lab, &[])?;
    let api = Api::start(&lab)?;
    let mut watcher = Watcher::new(lab.laptop.on(), &session.resolver()?)?;

    let mut seen = Vec::new();
    for number in 0..u16::try_from(changes.div_ceil(3))? {
        seen.extend(life_of_a_service(&api, &mut watcher, number)?);
    }
    let resolver = tell("session's resolver", seen.iter().map(|seen| seen.resolver));
    let hosts = tell("hosts file", seen.iter().map(|seen| seen.hosts));
    session.end_at_once()?;
    ensure!(resolver <= LIMIT && hosts <= LIMIT, "that is too late");
    lab.finish();
    Ok(())
}

/// Creates a Service, makes it again with another address, deletes it.
fn life_of_a_service(api: &Api<'_>, watcher: &mut Watcher, number: u16) -> Result<[Seen; 3]> {
    let name = format!("book-{number}");
    let [high, low] = number.to_be_bytes();
    let first = Ipv4Addr::new(10, 96, 16 + high, low);
    let second = Ipv4Addr::new(10, 96, 32 + high, low);
    let created = watcher.sees(api.create(&name, first)?, &name, Some(first))?;
    api.delete(&name)?;
    let changed = watcher.sees(api.create(&name, second)?, &name, Some(second))?;
    let deleted = watcher.sees(api.delete(&name)?, &name, None)?;
    Ok([created, changed, deleted])
}

/// Prints the figures and gives the 99th percentile.
#[expect(clippy::print_stderr, reason = "the figures are what is shown")]
fn tell(what: &str, times: impl Iterator<Item = Duration>) -> Duration {
    let mut times: Vec<Duration> = times.collect();
    times.sort();
    let percentile = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    eprintln!(
        "{what}: {} changes, p50 {:.0?}, p90 {:.0?}, p99 {:.0?}, longest {:.0?}",
        times.len(),
        percentile(50),
        percentile(90),
        percentile(99),
        percentile(100)
    );
    percentile(99)
}
