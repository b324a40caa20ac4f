//! Figures of the data plane: what a connection through each way to the cluster is like, in one run.
//!
//! The ways take turns, round after round, on the same path: no tunnel at all, kubebridge,
//! sshuttle, and packets over one TCP connection (what KubeVPN does, by a program of our own).
//! Goals P15 to P18 and P21. Needs root, and what `tests/bench/dataplane/setup` installs.
#![expect(clippy::print_stdout, reason = "figures are this program's output")]

mod measures;
mod table;
mod usage;
mod ways;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use kubebridge_tests::distance::Shape;

use measures::{Path, measure_near, measure_path};

/// The path of performance.md: 20 ms there and back, 100 Mbit/s.
const FAR: Shape = Shape {
    delay: Duration::from_millis(10),
    loss_ppm: 0,
    kbit: 100_000,
};

fn main() -> Result<()> {
    let word = std::env::args().nth(1);
    let rounds = std::env::var("KUBEBRIDGE_ROUNDS").ok();
    let rounds = match rounds {
        Some(text) => text.parse().context("KUBEBRIDGE_ROUNDS")?,
        None => 5,
    };
    match word.as_deref() {
        None => {
            near(rounds)?;
            far(rounds)
        }
        Some("near") => near(rounds),
        Some("far") => far(rounds),
        Some(other) => bail!("near, far or nothing; not {other}"),
    }
}

fn near(rounds: usize) -> Result<()> {
    println!("{}", measure_near(rounds)?);
    Ok(())
}

fn far(rounds: usize) -> Result<()> {
    let shape = |loss_ppm| Shape { loss_ppm, ..FAR };
    let paths = [
        Path {
            name: "20 ms, no loss",
            shape: shape(0),
        },
        Path {
            name: "20 ms, 0.1 %",
            shape: shape(1_000),
        },
        Path {
            name: "20 ms, 1 %",
            shape: shape(10_000),
        },
    ];
    println!("{}", measure_path(&paths, rounds)?);
    Ok(())
}
