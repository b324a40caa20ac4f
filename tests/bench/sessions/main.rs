//! What a session costs and how soon it is there (P20, P21, lifecycle 1 and 6), on real parts: a
//! Kubernetes API server, a node's port-forward, systemd-resolved.
//!
//! `session-figures connect [TIMES]` time to connected, by step · `idle [SECONDS]` processor time and
//! memory of a session that does nothing · `api [SECONDS]` what idle sessions cost the API server ·
//! `replaced [TIMES]` until names are answered by a new Pod of the manager. Without a word: all.
//! Ends with status 1 when a limit is missed. Needs root, `tests/setup`, and the two programs built
//! beside it; figures worth comparing need a release build and a machine with nothing else to do.
#![expect(clippy::print_stdout, reason = "figures are this program's output")]

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

mod api;
mod cluster;
mod connect;
mod figures;
mod idle;
mod laptops;
mod replaced;
mod usage;

/// Measures and prints; tells whether the limits were kept.
type Measure = fn(u64) -> Result<bool>;

/// What is measured, by its word, with the number it takes and what that is unless given.
const ALL: [(&str, u64, Measure); 4] = [
    ("connect", 30, connect::measure),
    ("idle", 60, idle::measure),
    ("api", 120, api::measure),
    ("replaced", 10, replaced::measure),
];

fn main() -> Result<ExitCode> {
    let mut words = std::env::args().skip(1);
    let wanted = words.next();
    let number = words.next().map(|text| text.parse()).transpose();
    let number: Option<u64> = number.context("a number is expected")?;
    let mut kept = true;
    let mut any = false;
    for (word, usual, measure) in ALL {
        if wanted.as_deref().is_none_or(|wanted| wanted == word) {
            any = true;
            kept &= measure(number.unwrap_or(usual))?;
        }
    }
    if !any {
        bail!("unknown: {wanted:?}; there are connect, idle, api, replaced");
    }
    let load = std::fs::read_to_string("/proc/loadavg")?;
    println!("load of the machine: {}", load.trim());
    Ok(if kept {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
