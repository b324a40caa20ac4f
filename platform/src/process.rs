//! Which process owns a journal, in a way that survives reused process ids and reboots.

use std::fs;
use std::process;

use serde::{Deserialize, Serialize};

/// One process of one boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The process id.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
    /// The id of the boot it runs in; empty if unknown.
    pub boot: String,
}

impl Owner {
    /// Describes this process.
    pub fn current() -> Self {
        let pid = process::id();
        Self {
            pid,
            start: start_time(pid).unwrap_or(0),
            boot: boot_id(),
        }
    }

    /// Tells whether that process still runs.
    pub fn is_alive(&self) -> bool {
        self.is_this_boot() && start_time(self.pid) == Some(self.start)
    }

    /// Tells whether that process belongs to the running system.
    pub fn is_this_boot(&self) -> bool {
        self.boot == boot_id()
    }
}

/// Tells whether a process runs; one that has ended and was not waited for does not.
pub fn is_running(pid: u32) -> bool {
    start_time(pid).is_some()
}

fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Reads field 22 of `/proc/PID/stat`, counted behind the name, which may hold anything; `None`
/// also for a process that has ended and only waits for its parent to notice.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_whose_parent_has_not_noticed_its_end_is_not_alive() {
        let mut child = process::Command::new("sleep").arg("60").spawn().unwrap();
        let owner = Owner {
            pid: child.id(),
            start: start_time(child.id()).unwrap(),
            boot: boot_id(),
        };
        assert!(owner.is_alive());
        child.kill().unwrap();
        let exited =
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::waitid(rustix::process::WaitId::Pid(pid), exited).unwrap();
        assert!(!owner.is_alive());
        assert!(!is_running(owner.pid));
        child.wait().unwrap();
    }

    #[test]
    fn this_process_is_alive_and_its_predecessors_are_not() {
        let now = Owner::current();
        let later = now.start + 1;
        assert!(now.start > 0);
        assert!(now.is_alive());
        for gone in [
            Owner {
                start: later,
                ..now.clone()
            },
            Owner {
                boot: "another".to_owned(),
                ..now.clone()
            },
            Owner {
                pid: u32::MAX,
                ..now
            },
        ] {
            assert!(!gone.is_alive());
        }
    }
}
