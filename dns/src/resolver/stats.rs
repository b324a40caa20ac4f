//! What a resolver counts, for metrics, and the deadline that may change while it runs.
//!
//! Numbers only: no name and no client is remembered here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{LONGEST_TOTAL, Resolver};

/// Numbers of a resolver as they are now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Queries answered from the cache since the start.
    pub cache_hits: u64,
    /// Queries the cache had no fresh answer for since the start.
    pub cache_misses: u64,
    /// Answers in the cache.
    pub cache_entries: u64,
    /// Bytes they are counted as.
    pub cache_bytes: u64,
    /// Queries that wait for a resolution.
    pub waiting: u64,
    /// Resolutions and queries turned away since the start because there were too many already.
    pub shed: u64,
    /// Stale answers made since the start, each given to whoever asked for half a minute.
    pub stale: u64,
    /// Answers made anew before their time was over since the start.
    pub renewed: u64,
}

/// Counts the look-ups in the cache.
#[derive(Debug, Default)]
pub(super) struct Counts {
    hits: AtomicU64,
    misses: AtomicU64,
    shed: AtomicU64,
    stale: AtomicU64,
    renewed: AtomicU64,
}

/// A duration of whole microseconds that may be replaced.
#[derive(Debug)]
pub(super) struct AtomicDuration(AtomicU64);

impl Counts {
    pub(super) fn looked_up(&self, hit: bool) {
        let count = if hit { &self.hits } else { &self.misses };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn shed(&self) {
        self.shed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn gave_stale(&self) {
        self.stale.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn renewed(&self) {
        self.renewed.fetch_add(1, Ordering::Relaxed);
    }
}

impl AtomicDuration {
    pub(super) fn new(duration: Duration) -> Self {
        Self(AtomicU64::new(micros(duration)))
    }

    pub(super) fn get(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }
}

impl Resolver {
    /// Returns what was counted so far.
    pub fn stats(&self) -> Stats {
        let (entries, bytes) = self.engine.cache.size();
        let counts = &self.engine.counts;
        Stats {
            cache_hits: counts.hits.load(Ordering::Relaxed),
            cache_misses: counts.misses.load(Ordering::Relaxed),
            cache_entries: entries,
            cache_bytes: bytes,
            waiting: (super::MOST_WAITING - self.waiting.available_permits()) as u64,
            shed: counts.shed.load(Ordering::Relaxed),
            stale: counts.stale.load(Ordering::Relaxed),
            renewed: counts.renewed.load(Ordering::Relaxed),
        }
    }

    /// Replaces the time a query may take in all; queries under way keep theirs.
    pub fn set_total(&self, total: Duration) {
        let total = micros(total.min(LONGEST_TOTAL));
        self.engine.total.0.store(total, Ordering::Relaxed);
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
