//! Which changes of the upstreams the cache has been told of.
//!
//! Compared at each query, so it is read by all threads and written only when something changed.

use std::sync::atomic::{AtomicU64, Ordering};

/// The changes noticed so far.
#[derive(Debug, Default)]
pub(super) struct Noticed {
    pub(super) replaced: Count,
    pub(super) recoveries: Count,
}

/// A count of changes as it was when last looked at.
#[derive(Debug, Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Says whether the count is another one than last time, to the first who asks.
    pub(super) fn is_news(&self, count: u64) -> bool {
        self.0.load(Ordering::Acquire) != count && self.0.swap(count, Ordering::AcqRel) != count
    }
}
