//! What overload does to the traffic-manager (D16, K11): 5,000 queries a second of names nobody has
//! asked before, into an upstream that is silent, beside 500 a second of names that are cached.
//!
//! Starts the real program as a process of its own, on loopback, with an upstream of its own that
//! answers the cached names once and keeps silent about all others. Prints memory, sockets, how soon
//! cached names are answered, the slowest answer of all, and what was shed; ends with status 1 when a
//! limit is missed. Takes about 20 s. Needs nothing but the two programs, and figures worth
//! comparing need a release build and a machine with nothing else to do.
#![expect(clippy::print_stdout, reason = "figures are this program's output")]

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};

use self::load::{Answers, Load};
use self::manager::{Manager, Usage};
use self::upstream::Upstream;

mod load;
mod manager;
mod upstream;

/// Names that are cached, and how many of them are asked for in a second.
const CACHED: usize = 200;
const CACHED_RATE: u32 = 500;
/// Names that nobody has asked before, in a second, for this long.
const UNIQUE_RATE: u32 = 5_000;
const FLOOD: Duration = Duration::from_secs(10);
/// The total deadline of a query as the manager is started here, which is the default.
const TOTAL: Duration = Duration::from_secs(2);

/// The limits of `dns-resolution`: memory, sockets, and how soon a cached name is answered.
const MOST_MEMORY: f64 = 64.0;
const MOST_SOCKETS: usize = 1024;
const CACHED_P99: Duration = Duration::from_millis(5);
/// What the way to the manager and back, and a busy machine, may add to the total deadline.
const ON_THE_WAY: Duration = Duration::from_millis(250);

fn main() -> Result<ExitCode> {
    let upstream = Upstream::start()?;
    let mut manager = Manager::start(upstream.address)?;
    warm(&manager)?;
    let before = manager.usage()?;
    let unique = Load::start(manager.dns, UNIQUE_RATE, FLOOD, unique_name)?;
    let cached = Load::start(manager.dns, CACHED_RATE, FLOOD, cached_name)?;
    let most = manager.watch(FLOOD)?;
    // Everything that is to be answered is answered by then.
    std::thread::sleep(TOTAL + ON_THE_WAY);
    let (unique, cached) = (unique.end()?, cached.end()?);
    let missed = report(&before, &most, &unique, &cached, manager.shed()?);
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("load of the machine: {}", load.trim());
    Ok(if missed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Half of them have four candidates, as short names do in a pod, and half have one.
fn unique_name(number: usize) -> String {
    if number.is_multiple_of(2) {
        format!("u{number}")
    } else {
        format!("u{number}.default.svc.cluster.local")
    }
}

fn cached_name(number: usize) -> String {
    upstream::known(number % CACHED)
}

/// Has every cached name asked for, until all are answered.
fn warm(manager: &Manager) -> Result<()> {
    for _ in 0..20 {
        let warming = Load::start(manager.dns, 1000, Duration::from_millis(300), cached_name)?;
        std::thread::sleep(Duration::from_millis(600));
        let answers = warming.end()?;
        if answers.good == answers.sent {
            return Ok(());
        }
    }
    bail!("the names that are to be cached are not answered")
}

/// Prints the figures; tells whether a limit was missed.
fn report(before: &Usage, most: &Usage, unique: &Answers, cached: &Answers, shed: u64) -> bool {
    println!(
        "{} unique names at {:.0}/s into a silent upstream, {} queries for {CACHED} cached names at {:.0}/s",
        unique.sent, unique.rate, cached.sent, cached.rate
    );
    println!(
        "CPU of the manager: {:.1} s of {:.1} s",
        most.cpu - before.cpu,
        FLOOD.as_secs_f64()
    );
    println!(
        "shed: {shed} resolutions of {} (answered SERVFAIL at once, not stored)",
        unique.sent
    );
    let memory = most.memory / 1024.0;
    let slowest = unique.slowest().max(cached.slowest());
    let p99 = cached.percentile(0.99);
    let unanswered = unique.unanswered() + cached.unanswered();
    let checks = [
        (
            format!(
                "RSS at most {memory:.1} MB ({:.1} MB before)",
                before.memory / 1024.0
            ),
            memory <= MOST_MEMORY,
        ),
        (
            format!("sockets at most {}", most.sockets),
            most.sockets <= MOST_SOCKETS,
        ),
        (
            format!(
                "cached names: p50 {:.2} ms, p99 {:.2} ms, {} of {} answered well",
                milliseconds(cached.percentile(0.5)),
                milliseconds(p99),
                cached.good,
                cached.sent
            ),
            p99 <= CACHED_P99 && cached.good == cached.sent,
        ),
        (
            format!(
                "slowest answer {:.0} ms, {unanswered} unanswered",
                milliseconds(slowest)
            ),
            slowest <= TOTAL + ON_THE_WAY && unanswered == 0,
        ),
    ];
    for (words, kept) in &checks {
        println!("{} {words}", if *kept { "ok    " } else { "MISSED" });
    }
    checks.iter().any(|(_, kept)| !kept)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
