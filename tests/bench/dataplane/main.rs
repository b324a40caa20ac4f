//! Figures of the data plane: what a connection through each way to the cluster is like, in one run.
//!
//! The ways take turns, round after round, on the same path: no tunnel at all, kubebridge, the same
//! with all flows over one connection (what Telepresence does), sshuttle, and packets over one TCP
//! connection (what KubeVPN does, by a program of our own).
//! Goals P15 to P18. Needs root, what `tests/bench/dataplane/setup` installs, and a release build.
//!
//! `dataplane-figures near [ROUNDS]` throughput, connections, round trips, memory on a path without a limit ·
//! `far [ROUNDS [LOSS]]` one flow and four at 20 ms and 100 Mbit/s, at each loss or at one (in a million) ·
//! `wide [ROUNDS]` 20 ms without a limit · `stay` makes the ways and stays until its input ends, for
//! a look at them with other tools. `KUBEBRIDGE_WAYS` leaves some out; with
//! `KUBEBRIDGE_SAMPLES=FILE` what was measured is kept there, and counts in the next run.
#![expect(clippy::print_stdout, reason = "figures are this program's output")]

mod measures;
mod table;
mod usage;
mod ways;

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kubebridge_tests::distance::Shape;

use measures::{Path, measure_near, measure_path};
use table::Table;
use ways::{Bench, Way, lab};

/// The path of performance.md: 20 ms there and back, 100 Mbit/s.
const FAR: Shape = Shape {
    delay: Duration::from_millis(10),
    loss_ppm: 0,
    kbit: 100_000,
};

/// Rounds, unless told otherwise.
const ROUNDS: usize = 5;

fn main() -> Result<()> {
    ensure!(
        !cfg!(debug_assertions),
        "figures of a debug build say nothing: cargo build --release --workspace --bins"
    );
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (what, rest) = words.split_first().unwrap_or((&"", &[]));
    let number = |place: usize| rest.get(place).map(|text| text.parse::<u32>()).transpose();
    let rounds = number(0).context("ROUNDS")?;
    let rounds = rounds.map_or(ROUNDS, |rounds| rounds as usize);
    let file = std::env::var_os("KUBEBRIDGE_SAMPLES");
    let mut table = match &file {
        Some(file) => Table::load(file.as_ref())?,
        None => Table::default(),
    };
    let measured = match *what {
        "near" => measure_near(rounds, &mut table),
        "far" => measure_path(&far(number(1).context("LOSS")?), rounds, &mut table),
        "wide" => measure_path(&wide(), rounds, &mut table),
        "stay" => return stay(),
        other => bail!("near, far, wide or stay; not {other:?}"),
    };
    // What came before a failure is not lost.
    if let Some(file) = file {
        table.save(file.as_ref())?;
    }
    println!("{table}");
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("load of the machine: {}", load.trim());
    measured
}

fn stay() -> Result<()> {
    let lab = lab(None)?;
    let bench = Bench::start(&lab)?;
    for way in Way::wanted() {
        println!("{}: {}", way.name(), way.target());
    }
    let laptop = bench.lab.laptop.on().process();
    println!("the laptop is where process {laptop} is");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
    drop(bench);
    lab.finish();
    Ok(())
}

fn far(loss: Option<u32>) -> Vec<Path> {
    let all = [0, 1_000, 10_000];
    let wanted = all
        .into_iter()
        .filter(|one| loss.is_none_or(|loss| loss == *one));
    let path = |loss_ppm: u32| Path {
        name: format!("20 ms, 100 Mbit/s, {} % loss", f64::from(loss_ppm) / 1e4),
        shape: Shape { loss_ppm, ..FAR },
        flows: &[1, 4],
    };
    wanted.map(path).collect()
}

fn wide() -> Vec<Path> {
    let shape = Shape { kbit: 0, ..FAR };
    vec![Path {
        name: "20 ms, no limit".to_owned(),
        shape,
        flows: &[1, 4],
    }]
}
