//! Remembers recent purges, so that an answer that was being made while its ground shifted is not kept.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::{Dependencies, Path};

/// How many purges are remembered. A flight lasts at most 4.5 s; one that saw more purges than this is simply not kept.
const REMEMBERED: usize = 1024;

/// A moment in the order of purges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark(u64);

/// The recent purges in order.
#[derive(Debug, Default)]
pub(crate) struct Purges(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    /// How many purges there ever were; the newest is last in `names`.
    count: u64,
    names: VecDeque<Path>,
}

impl Purges {
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.0.lock().count)
    }

    pub(crate) fn record(&self, name: &Path) {
        let mut log = self.0.lock();
        log.count += 1;
        log.names.push_back(name.clone());
        if log.names.len() > REMEMBERED {
            log.names.pop_front();
        }
    }

    /// Says whether something that the dependencies include was purged after the mark.
    pub(crate) fn since(&self, mark: Mark, dependencies: &Dependencies) -> bool {
        let log = self.0.lock();
        let newer = usize::try_from(log.count - mark.0).unwrap_or(usize::MAX);
        newer > log.names.len()
            || log
                .names
                .iter()
                .rev()
                .take(newer)
                .any(|name| dependencies.include(name))
    }
}
