//! What a session costs the laptop while it does nothing (P21).

use std::time::Duration;

use anyhow::Result;
use kubebridge_tests::{product::Attempt, wait::last};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::figures::limit;
use crate::usage::Processes;

/// The gates of P21.
const MOST_CPU: f64 = 0.5;
const MOST_MEMORY: f64 = 60.0;

/// Until what connecting stirred up has settled: the second look, the idle connections.
const SETTLED: Duration = Duration::from_secs(10);

/// Watches a connected session for so long; tells whether the limits were kept.
pub(crate) fn measure(seconds: u64) -> Result<bool> {
    let cluster = Cluster::start("traffic-manager-a")?;
    let kubeconfig = cluster.lab.api.kubeconfig("dev");
    let session =
        Attempt::start_by_kubeconfig(&cluster.lab, &kubeconfig, &[("RUST_LOG", "warn")], &[])?;
    let session = session.connected()?;
    last(SETTLED);
    let processes = Processes::named("kubebridge", cluster.lab.laptop.on().process())?;
    let (before, begin) = (processes.busy()?, Instant::now());
    last(Duration::from_secs(seconds));
    let busy = processes.busy()?.saturating_sub(before);
    let share = busy.as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0;
    let (now, most) = processes.memory()?;
    println!(
        "an idle session, {} processes, for {seconds} s: {:.1} ms of processor time",
        processes.count(),
        busy.as_secs_f64() * 1000.0
    );
    let cpu = limit(&format!("{share:.3} % of a processor"), share <= MOST_CPU);
    let memory = limit(
        &format!("RSS {now:.1} MB, at most {most:.1} MB"),
        most <= MOST_MEMORY,
    );
    session.end_at_once()?;
    cluster.lab.finish();
    Ok(cpu && memory)
}
