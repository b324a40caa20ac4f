//! What the processes of a way cost: CPU time and memory, on both machines together.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use kubebridge_tests::lab::Lab;

use crate::ways::Way;

/// Clock ticks a second in `/proc/PID/stat`, the same on every Linux.
const TICKS: f64 = 100.0;

/// CPU seconds so far of a way's processes.
pub(crate) fn cpu(lab: &Lab, way: Way) -> Result<f64> {
    let mut seconds = 0.0;
    for process in processes(way, &[lab.laptop.on().process(), lab.node.process()])? {
        // It may have ended since.
        let Ok(stat) = fs::read_to_string(process.join("stat")) else {
            continue;
        };
        let (_, rest) = stat.rsplit_once(") ").context("no stat")?;
        let fields: Vec<&str> = rest.split(' ').collect();
        let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
        seconds += ticks / TICKS;
    }
    Ok(seconds)
}

/// Kilobytes in memory of a way's processes on the laptop, and on the node.
pub(crate) fn memory(lab: &Lab, way: Way) -> Result<(f64, f64)> {
    let of = |machine: u32| -> Result<f64> {
        let mut kilobytes = 0.0;
        for process in processes(way, &[machine])? {
            let status = fs::read_to_string(process.join("status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
            let number = line.and_then(|line| line.split_whitespace().next());
            kilobytes += number.map_or(Ok(0.0), str::parse)?;
        }
        Ok(kilobytes)
    };
    Ok((of(lab.laptop.on().process())?, of(lab.node.process())?))
}

/// The folders in /proc of a way's processes in the networks of these.
fn processes(way: Way, machines: &[u32]) -> Result<Vec<std::path::PathBuf>> {
    let network = |process: &Path| fs::read_link(process.join("ns/net")).ok();
    let wanted: Vec<_> = machines
        .iter()
        .filter_map(|process| network(Path::new(&format!("/proc/{process}"))))
        .collect();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let process = entry?.path();
        let is_there = network(&process).is_some_and(|network| wanted.contains(&network));
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let is_ours = way
            .processes()
            .iter()
            .any(|word| name.trim().starts_with(word));
        if is_there && is_ours {
            found.push(process);
        }
    }
    Ok(found)
}
