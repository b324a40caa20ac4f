//! What is measured of a way.

use anyhow::{Context, Result};
use kubebridge_tests::distance::Shape;
use kubebridge_tests::pods::hold;

use crate::table::Table;
use crate::usage;
use crate::ways::{Bench, Way, lab};

/// How long one transfer takes, in seconds, on a path without a limit.
const NEAR_TIME: &str = "3";
/// The same far away, where a flow that lost something needs seconds to be as fast again.
const FAR_TIME: &str = "8";
/// Connections are opened for so many seconds, by so many at a time. Not longer: beyond a burst the
/// manager lets a session dial 2,000 times a second.
const RATE: [&str; 2] = ["1", "8"];
/// Round trips timed.
const PINGS: &str = "2000";
/// Flows of a transfer, beside the single one.
const FLOWS: u64 = 4;
/// Flows open and idle: sshuttle stops at some 500, as `select` does.
const IDLE: u32 = 300;

/// A path that differs from the others by its loss.
#[derive(Debug, Clone)]
pub(crate) struct Path {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    /// How many flows at once.
    pub(crate) flows: &'static [u64],
}

/// Without delay, loss or a rate: throughput, connections, round trips, CPU, memory.
pub(crate) fn measure_near(rounds: usize, table: &mut Table) -> Result<()> {
    let lab = lab(None)?;
    let mut bench = Bench::start(&lab)?;
    for round in 0..rounds {
        for way in turns(round) {
            near_once(&mut bench, way, table).with_context(|| way.name())?;
        }
    }
    for way in turns(0).filter(|way| !way.processes().is_empty()) {
        memory_of_idle(&mut bench, way, table).with_context(|| way.name())?;
    }
    drop(bench);
    lab.finish();
    Ok(())
}

/// The ways in another order each round.
fn turns(round: usize) -> impl Iterator<Item = Way> {
    let all = Way::wanted();
    let count = all.len();
    (0..count).map(move |number| all[(number + round) % count])
}

fn near_once(bench: &mut Bench<'_>, way: Way, table: &mut Table) -> Result<()> {
    let name = way.name();
    bench.turn(way)?;
    for (word, flows, column) in [
        ("down", 1, "down, 1 flow, Mbit/s"),
        ("down", FLOWS, "down, 4 flows"),
        ("up", 1, "up, 1 flow"),
        ("up", FLOWS, "up, 4 flows"),
    ] {
        let before = usage::cpu(bench.lab, way)?;
        let (rate, bytes) = transfer(bench, way, word, NEAR_TIME, flows)?;
        table.add(name, column, rate);
        let cost = (usage::cpu(bench.lab, way)? - before) * 1e9 / bytes;
        match (word, flows) {
            _ if way.processes().is_empty() => {}
            ("down", FLOWS) => table.add(name, "CPU s/GB down", cost),
            ("up", FLOWS) => table.add(name, "CPU s/GB up", cost),
            _ => {}
        }
    }
    let target = way.target();
    let said = bench.peer(&["rate", &target, RATE[0], RATE[1]])?;
    table.add(name, "connections/s", value(&said, "per_second=")?);
    let said = bench.peer(&["ping", &target, PINGS])?;
    table.add(name, "1 byte p50, us", value(&said, "p50_us=")?);
    table.add(name, "p99, us", value(&said, "p99_us=")?);
    Ok(())
}

/// Moves what there is time for, and gives the rate and the bytes.
fn transfer(
    bench: &Bench<'_>,
    way: Way,
    word: &str,
    seconds: &str,
    flows: u64,
) -> Result<(f64, f64)> {
    let word = format!("{word}-for");
    let said = bench.peer(&[&word, &way.target(), seconds, &flows.to_string()])?;
    // What is still on its way is not the next one's: this comes behind it.
    bench.reached(way)?;
    Ok((value(&said, "mbit=")?, value(&said, "bytes=")?))
}

fn value(said: &str, key: &str) -> Result<f64> {
    let found = said.split(' ').find_map(|word| word.strip_prefix(key));
    let found = found.with_context(|| format!("no {key} in {said:?}"))?;
    Ok(found.parse()?)
}

/// Opens many flows and leaves them alone.
fn memory_of_idle(bench: &mut Bench<'_>, way: Way, table: &mut Table) -> Result<()> {
    bench.turn(way)?;
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

/// With a delay: so many flows on each path.
pub(crate) fn measure_path(paths: &[Path], rounds: usize, table: &mut Table) -> Result<()> {
    let first = paths.first().context("no path")?;
    let mut lab = lab(Some(first.shape))?;
    let distance = lab.distance.take().context("no distance")?;
    let mut bench = Bench::start(&lab)?;
    for round in 0..rounds {
        for path in paths {
            distance.become_like(path.shape)?;
            for way in turns(round) {
                let row = format!("{}, {}", path.name, way.name());
                far_once(&mut bench, way, path, &row, table).with_context(|| row.clone())?;
            }
        }
    }
    drop(bench);
    lab.finish();
    Ok(())
}

fn far_once(
    bench: &mut Bench<'_>,
    way: Way,
    path: &Path,
    row: &str,
    table: &mut Table,
) -> Result<()> {
    bench.turn(way)?;
    for flows in path.flows {
        for (word, column) in [
            ("down", ["down, 1 flow, Mbit/s", "down, 4 flows, Mbit/s"]),
            ("up", ["up, 1 flow", "up, 4 flows"]),
        ] {
            let (rate, _) = transfer(bench, way, word, FAR_TIME, *flows)?;
            table.add(row, column[usize::from(*flows > 1)], rate);
        }
    }
    Ok(())
}
