//! What processes use, as the kernel counts it.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};

/// Some processes, by their numbers.
#[derive(Debug, Clone)]
pub(crate) struct Processes(Vec<u32>);

impl Processes {
    /// All that run a program of this name in the process namespace of `inside`.
    pub(crate) fn named(name: &str, inside: u32) -> Result<Self> {
        let space = |process: u32| fs::read_link(format!("/proc/{process}/ns/pid"));
        let wanted = space(inside)?;
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?.file_name();
            let Some(process) = entry.to_str().and_then(|text| text.parse::<u32>().ok()) else {
                continue;
            };
            // One that ended in this moment is none.
            let program = fs::read_link(format!("/proc/{process}/exe")).unwrap_or_default();
            let is_there = space(process).is_ok_and(|space| space == wanted);
            if is_there && program.file_name().is_some_and(|found| found == name) {
                found.push(process);
            }
        }
        ensure!(!found.is_empty(), "no process of {name}");
        Ok(Self(found))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Their processor time so far, to the nanosecond.
    pub(crate) fn busy(&self) -> Result<Duration> {
        let mut nanos = 0;
        for process in &self.0 {
            for task in fs::read_dir(format!("/proc/{process}/task"))? {
                let path: PathBuf = task?.path().join("schedstat");
                // A thread that has just ended had nothing to do for long.
                let text = fs::read_to_string(path).unwrap_or_default();
                let busy = text.split_whitespace().next().map(str::parse::<u64>);
                nanos += busy.transpose()?.unwrap_or_default();
            }
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// Their resident memory now, and the most each ever had, in MB.
    pub(crate) fn memory(&self) -> Result<(f64, f64)> {
        let mut sum = (0.0, 0.0);
        for process in &self.0 {
            let status = fs::read_to_string(format!("/proc/{process}/status"))?;
            let of = |key: &str| -> Result<f64> {
                let line = status.lines().find_map(|line| line.strip_prefix(key));
                let text = line.with_context(|| format!("no {key}"))?;
                let kilobytes: f64 = text.trim().trim_end_matches(" kB").parse()?;
                Ok(kilobytes / 1024.0)
            };
            sum = (sum.0 + of("VmRSS:")?, sum.1 + of("VmHWM:")?);
        }
        Ok(sum)
    }
}
