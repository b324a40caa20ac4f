//! What a process uses, as the kernel counts it.

use std::{fmt, fs};

use anyhow::{Context, Result};

/// What a process uses at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Kilobytes of its memory that are in the machine's.
    pub resident: u64,
    /// Open files, sockets among them.
    pub files: u64,
    /// Threads.
    pub threads: u64,
}

impl Usage {
    /// Looks at a process.
    pub fn of(process: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let number = |key: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let text = line.with_context(|| format!("no {key} in {status}"))?;
            Ok(text.trim().trim_end_matches(" kB").parse()?)
        };
        Ok(Self {
            resident: number("VmRSS:")?,
            files: fs::read_dir(format!("/proc/{process}/fd"))?.count() as u64,
            threads: number("Threads:")?,
        })
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = self.resident as f64 / 1024.0;
        let Self { files, threads, .. } = self;
        write!(
            formatter,
            "{megabytes:.1} MB resident, {files} files, {threads} threads"
        )
    }
}
