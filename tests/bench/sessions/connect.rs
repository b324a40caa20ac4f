//! Time to connected, by step, from the start of the process (P20, lifecycle 1).

use std::time::Duration;

use anyhow::{Context, Result};
use kubebridge_tests::{daemon::Daemon, lab::Lab, parts::program, product::NAMESPACES};
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::Instant;

use crate::cluster::{Cluster, PATIENCE};
use crate::figures::{Sample, limit, milliseconds};

/// The gates of P20, and of lifecycle 1 for the first line.
const CONNECTED: Duration = Duration::from_secs(2);
const FIRST_LINE: Duration = Duration::from_secs(1);

/// Connects this many times and prints the figures; tells whether the limits were kept.
pub(crate) fn measure(times: u64) -> Result<bool> {
    let cluster = Cluster::start("traffic-manager-a")?;
    let mut whole = Sample::default();
    let mut first = Sample::default();
    let mut steps: Vec<(String, Sample)> = Vec::new();
    // The first one finds nothing in the machine's caches, as after a boot; it does not count.
    for time in 0..=times {
        let run = connect(&cluster.lab)?;
        if time == 0 {
            println!("the first of all: {:.0} ms", milliseconds(run.whole));
            continue;
        }
        whole.add(run.whole);
        first.add(run.first);
        for (step, took) in run.steps {
            match steps.iter_mut().find(|(known, _)| *known == step) {
                Some((_, sample)) => sample.add(took),
                None => {
                    let mut sample = Sample::default();
                    sample.add(took);
                    steps.push((step, sample));
                }
            }
        }
    }
    cluster.lab.finish();
    let row = |name: &str, sample: &Sample| {
        let [half, most, longest] = [
            sample.percentile(0.5),
            sample.percentile(0.95),
            sample.most(),
        ]
        .map(milliseconds);
        println!("{name:<14} {half:>7.0} {most:>7.0} {longest:>7.0}");
    };
    println!(
        "{} sessions, milliseconds: p50, p95, longest",
        whole.count()
    );
    for (step, sample) in &steps {
        row(step, sample);
    }
    row("first line", &first);
    row("connected", &whole);
    let [p95, line] = [whole.percentile(0.95), first.most()];
    let connected = limit(
        &format!("connected within {:.0} ms (p95)", milliseconds(p95)),
        p95 <= CONNECTED,
    );
    let line = limit(
        &format!("a first line after {:.0} ms at most", milliseconds(line)),
        line <= FIRST_LINE,
    );
    Ok(connected && line)
}

struct Run {
    first: Duration,
    whole: Duration,
    steps: Vec<(String, Duration)>,
}

fn connect(lab: &Lab) -> Result<Run> {
    let mut command = lab.laptop.on().command(program("kubebridge")?);
    command
        .env("KUBECONFIG", lab.api.kubeconfig("dev"))
        .args(["--progress", "json", "connect", "--foreground"])
        .args(NAMESPACES.iter().flat_map(|name| ["-n", name]));
    let begin = Instant::now();
    let session = Daemon::start("kubebridge-connect", &lab.logs(), command)?;
    session.until_says("{", PATIENCE)?;
    let first = begin.elapsed();
    session.until_says("{\"event\":\"connected\"", PATIENCE)?;
    let whole = begin.elapsed();
    let steps = session.log()?.lines().filter_map(step).collect();
    // The second cuts short that the resolver answers on.
    session.signal(Signal::TERM)?;
    let restored = "{\"event\":\"step\",\"step\":\"restore";
    session.until_says(restored, PATIENCE)?;
    session.signal(Signal::TERM)?;
    let ended = session.ended(PATIENCE)?;
    ended
        .success()
        .then_some(())
        .context("it did not end well")?;
    Ok(Run {
        first,
        whole,
        steps,
    })
}

fn step(line: &str) -> Option<(String, Duration)> {
    let line: Value = serde_json::from_str(line).ok()?;
    let step = line["step"].as_str()?;
    let millis = line["millis"].as_u64()?;
    Some((step.to_owned(), Duration::from_millis(millis)))
}
