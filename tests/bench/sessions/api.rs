//! What idle sessions cost the API server: requests by its own metrics, and its processor time.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result};
use kubebridge_tests::{lab::Lab, wait::last};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::laptops::Laptop;
use crate::usage::Processes;

/// Until what connecting stirred up has settled.
const SETTLED: Duration = Duration::from_secs(10);

/// How many sessions there are in each turn; the first is what the cluster costs by itself.
const SESSIONS: [usize; 3] = [0, 1, 10];

/// What the API server did in a window.
struct Window {
    requests: BTreeMap<String, f64>,
    busy: f64,
    minutes: f64,
}

/// Watches the API server with no, one and ten idle sessions, for so many seconds each.
pub(crate) fn measure(seconds: u64) -> Result<bool> {
    let cluster = Cluster::start("traffic-manager-a")?;
    let lab = &cluster.lab;
    let mut laptops = Vec::new();
    let mut quiet: Option<Window> = None;
    for sessions in SESSIONS {
        for number in laptops.len()..sessions {
            laptops.push(Laptop::start(lab, number)?);
        }
        last(SETTLED);
        let window = watch(lab, Duration::from_secs(seconds))?;
        println!(
            "{sessions} idle sessions, {seconds} s: {:.1} requests a minute, {:.2} % of a processor",
            window.requests.values().sum::<f64>() / window.minutes,
            window.busy * 100.0,
        );
        for (what, count) in window.requests.iter().filter(|(_, count)| **count > 0.0) {
            println!("    {what} {:.1} a minute", count / window.minutes);
        }
        match &quiet {
            Some(quiet) => tell_each(sessions, &window, quiet),
            None => quiet = Some(window),
        }
    }
    laptops.into_iter().try_for_each(Laptop::end)?;
    cluster.lab.finish();
    Ok(true)
}

#[expect(clippy::cast_precision_loss, reason = "a handful of sessions")]
fn tell_each(sessions: usize, window: &Window, quiet: &Window) {
    let a_minute = |window: &Window| window.requests.values().sum::<f64>() / window.minutes;
    let each = |more: f64| more / sessions as f64;
    println!(
        "    each session: {:+.2} requests a minute, {:+.3} % of a processor",
        each(a_minute(window) - a_minute(quiet)),
        each((window.busy - quiet.busy) * 100.0),
    );
}

fn watch(lab: &Lab, time: Duration) -> Result<Window> {
    let server = Processes::named("kube-apiserver", lab.node.process())?;
    let before = requests(lab)?;
    let (busy, begin) = (server.busy()?, Instant::now());
    last(time);
    let passed = begin.elapsed();
    let busy = server.busy()?.saturating_sub(busy);
    let mut requests = requests(lab)?;
    for (what, count) in &mut requests {
        *count -= before.get(what).copied().unwrap_or_default();
    }
    Ok(Window {
        requests,
        busy: busy.as_secs_f64() / passed.as_secs_f64(),
        minutes: passed.as_secs_f64() / 60.0,
    })
}

/// `apiserver_request_total` by verb and resource, without the server's requests to itself (leases
/// and the like) and without ours for these figures.
fn requests(lab: &Lab) -> Result<BTreeMap<String, f64>> {
    let text = lab.kubectl(&["get", "--raw", "/metrics"])?;
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("apiserver_request_total{") else {
            continue;
        };
        let (labels, count) = rest.rsplit_once("} ").context("no count")?;
        let label = |name: &str| {
            let (_, rest) = labels.split_once(&format!("{name}=\""))?;
            Some(rest.split('"').next().unwrap_or_default())
        };
        let part = |name| label(name).unwrap_or_default();
        let (verb, resource) = (part("verb"), part("resource"));
        if resource.is_empty() || resource == "leases" {
            continue;
        }
        let what = match part("subresource") {
            "" => format!("{verb} {resource}"),
            subresource => format!("{verb} {resource}/{subresource}"),
        };
        *counts.entry(what).or_insert(0.0) += count.trim().parse::<f64>()?;
    }
    Ok(counts)
}
