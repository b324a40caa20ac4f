//! What is measured of a way.

use anyhow::{Context, Result};
use kubebridge_tests::distance::Shape;
use kubebridge_tests::pods::hold;

use crate::table::Table;
use crate::usage;
use crate::ways::{Bench, Way, lab};

/// Bytes of one transfer on a path without a limit: seconds for the slowest way.
const NEAR_BYTES: u64 = 200_000_000;
/// Bytes of one transfer at 100 Mbit/s: about 3 s.
const FAR_BYTES: u64 = 36_000_000;
/// Round trips timed.
const PINGS: &str = "2000";
/// Flows of a transfer, beside the single one.
const FLOWS: u64 = 4;
/// Flows open and idle: sshuttle stops at some 500, as `select` does.
const IDLE: u32 = 300;

/// A path that differs from the others by its loss.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Path {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
}

/// Without delay, loss or a rate: throughput, connections, round trips, CPU, memory.
pub(crate) fn measure_near(rounds: usize) -> Result<Table> {
    let lab = lab(None)?;
    let bench = Bench::start(&lab)?;
    let mut table = Table::default();
    for round in 0..rounds {
        for way in turns(round) {
            near_once(&bench, way, &mut table).with_context(|| way.name())?;
        }
    }
    for way in Way::ALL
        .into_iter()
        .filter(|way| !way.processes().is_empty())
    {
        memory_of_idle(&bench, way, &mut table).with_context(|| way.name())?;
    }
    drop(bench);
    lab.finish();
    Ok(table)
}

/// The ways in another order each round.
fn turns(round: usize) -> impl Iterator<Item = Way> {
    let count = Way::ALL.len();
    (0..count).map(move |number| Way::ALL[(number + round) % count])
}

fn near_once(bench: &Bench<'_>, way: Way, table: &mut Table) -> Result<()> {
    let name = way.name();
    for (word, flows, column) in [
        ("down", 1, "down, 1 flow, Mbit/s"),
        ("down", FLOWS, "down, 4 flows"),
        ("up", 1, "up, 1 flow"),
        ("up", FLOWS, "up, 4 flows"),
    ] {
        let before = usage::cpu(bench.lab, way)?;
        let rate = transfer(bench, way, word, NEAR_BYTES, flows)?;
        table.add(name, column, rate);
        let cost = (usage::cpu(bench.lab, way)? - before) * 1e9 / NEAR_BYTES as f64;
        match (word, flows) {
            ("down", FLOWS) => table.add(name, "CPU s/GB down", cost),
            ("up", FLOWS) => table.add(name, "CPU s/GB up", cost),
            _ => {}
        }
    }
    let target = way.target();
    let said = bench.peer(&["rate", &target, "3", "8"])?;
    table.add(name, "connections/s", value(&said, "per_second=")?);
    let said = bench.peer(&["ping", &target, PINGS])?;
    table.add(name, "1 byte p50, us", value(&said, "p50_us=")?);
    table.add(name, "p99, us", value(&said, "p99_us=")?);
    Ok(())
}

fn transfer(bench: &Bench<'_>, way: Way, word: &str, bytes: u64, flows: u64) -> Result<f64> {
    let each = (bytes / flows).to_string();
    let said = bench.peer(&[word, &way.target(), &each, &flows.to_string()])?;
    value(&said, "mbit=")
}

fn value(said: &str, key: &str) -> Result<f64> {
    let found = said.split(' ').find_map(|word| word.strip_prefix(key));
    let found = found.with_context(|| format!("no {key} in {said:?}"))?;
    Ok(found.parse()?)
}

/// Opens many flows and leaves them alone.
fn memory_of_idle(bench: &Bench<'_>, way: Way, table: &mut Table) -> Result<()> {
    let (laptop, node) = usage::memory(bench.lab, way)?;
    let words = ["idle", &way.target(), &IDLE.to_string()];
    let idle = hold(bench.lab.laptop.on(), &words, "open=")?;
    let (laptop_open, node_open) = usage::memory(bench.lab, way)?;
    idle.end()?;
    table.add(way.name(), "laptop, MB", laptop / 1024.0);
    table.add(way.name(), "node, MB", node / 1024.0);
    let each = |before: f64, after: f64| (after - before) / f64::from(IDLE);
    table.add(
        way.name(),
        "KB/idle flow, laptop",
        each(laptop, laptop_open),
    );
    table.add(way.name(), "KB/idle flow, node", each(node, node_open));
    Ok(())
}

/// With a delay and a rate: four flows, at each loss.
pub(crate) fn measure_path(paths: &[Path], rounds: usize) -> Result<Table> {
    let mut lab = lab(paths.first().map(|path| path.shape))?;
    let distance = lab.distance.take().context("no distance")?;
    let bench = Bench::start(&lab)?;
    let mut table = Table::default();
    for round in 0..rounds {
        for path in paths {
            distance.become_like(path.shape)?;
            for way in turns(round) {
                let row = format!("{}, {}", path.name, way.name());
                let told = || row.clone();
                let down = transfer(&bench, way, "down", FAR_BYTES, FLOWS).with_context(told)?;
                table.add(&row, "down, 4 flows, Mbit/s", down);
                let up = transfer(&bench, way, "up", FAR_BYTES, FLOWS).with_context(told)?;
                table.add(&row, "up, 4 flows", up);
            }
        }
    }
    drop(bench);
    lab.finish();
    Ok(table)
}
