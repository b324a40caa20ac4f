//! Finished answers as wire bytes, kept for their time, bounded by bytes and entries; and one resolution per key.
//!
//! The map is quick_cache's: its guard makes the first asker of a key the leader and lets the others
//! wait for the leader's value. It knows no lifetimes, so they are compared on reading. What an answer
//! says, and whether it may be kept, was decided before (`rewrite`).

use std::sync::Arc;

use parking_lot::RwLock;
use quick_cache::sync::{Cache as Map, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use tokio::time::Instant;

use crate::name::Name;

mod entry;
mod key;
mod purges;
#[cfg(test)]
mod tests;

pub(crate) use entry::{Dependencies, Entry};
pub(crate) use key::Key;
pub(crate) use purges::Purges;

/// What an entry costs beside its bytes: key, counters, allocations (measured: performance.md, memory).
const ENTRY_OVERHEAD: usize = 160;

/// The answer cache.
pub(crate) struct Cache {
    map: Map<Vec<u8>, Arc<Entry>, Weight>,
    purges: Purges,
    /// Failures made before it tell nothing any more.
    failures_from: RwLock<Option<Instant>>,
}

/// Weighs an entry by its bytes, and by no less than its share of the entries allowed, so that one bound serves for both.
#[derive(Debug, Clone)]
struct Weight {
    least: u64,
}

impl Weighter<Vec<u8>, Arc<Entry>> for Weight {
    fn weight(&self, key: &Vec<u8>, entry: &Arc<Entry>) -> u64 {
        let bytes = key.len() + entry.size() + ENTRY_OVERHEAD;
        u64::try_from(bytes).unwrap_or(u64::MAX).max(self.least)
    }
}

impl Cache {
    pub(crate) fn new(bytes: usize, entries: usize) -> Self {
        let entries = entries.max(1);
        let capacity = u64::try_from(bytes.max(1)).unwrap_or(u64::MAX);
        let least = (capacity / u64::try_from(entries).unwrap_or(u64::MAX)).max(1);
        let options = OptionsBuilder::new()
            .estimated_items_capacity(entries)
            .weight_capacity(capacity)
            .build()
            .expect("both capacities are set");
        let map = Map::with_options(
            options,
            Weight { least },
            DefaultHashBuilder::default(),
            DefaultLifecycle::default(),
        );
        Self {
            map,
            purges: Purges::default(),
            failures_from: RwLock::default(),
        }
    }

    /// Returns a fresh answer.
    pub(crate) fn get(&self, key: &Key, now: Instant) -> Option<Arc<Entry>> {
        self.map
            .get(key.as_bytes())
            .filter(|entry| entry.is_fresh(now) && !self.is_forgotten(entry))
    }

    /// Returns the fresh answer, the one that another caller is just making, or the one that `lead` makes.
    ///
    /// However many callers come while it is being made, `lead` runs once and all of them get its
    /// answer, also when it may not be kept. `lead` is told the state of purges at its start, so
    /// that an answer overtaken by a purge is not kept either.
    pub(crate) async fn once<F: Future<Output = Entry>>(
        &self,
        key: &Key,
        lead: impl FnOnce() -> F,
    ) -> Arc<Entry> {
        loop {
            match self.map.get_value_or_guard_async(key.as_bytes()).await {
                Ok(entry) if entry.serves_waiters(Instant::now()) && !self.is_forgotten(&entry) => {
                    return entry;
                }
                Ok(stale) => self.forget(key, &stale),
                Err(guard) => {
                    let mark = self.purges.mark();
                    let mut entry = lead().await;
                    if self.purges.since(mark, entry.dependencies()) {
                        entry.do_not_keep();
                    }
                    let entry = Arc::new(entry);
                    // A refusal means that a purge took the key away meanwhile; the waiters are served all the same.
                    let _ = guard.insert(Arc::clone(&entry));
                    if !entry.is_kept() || self.purges.since(mark, entry.dependencies()) {
                        self.forget(key, &entry);
                    }
                    return entry;
                }
            }
        }
    }

    /// Removes every entry whose answer could depend on `name` or on names below it.
    pub(crate) fn purge(&self, name: &Name) {
        self.purges.record(name);
        self.map
            .retain(|_, entry| !entry.dependencies().include(name));
    }

    /// Returns how many answers there are, and what they weigh.
    pub(crate) fn size(&self) -> (u64, u64) {
        let entries = u64::try_from(self.map.len()).unwrap_or(u64::MAX);
        (entries, self.map.weight())
    }

    /// Serves no failure any more that was made before `now`: an upstream is back (K6).
    pub(crate) fn forget_failures(&self, now: Instant) {
        *self.failures_from.write() = Some(now);
    }

    fn is_forgotten(&self, entry: &Entry) -> bool {
        entry.is_failure()
            && self
                .failures_from
                .read()
                .is_some_and(|from| entry.made() < from)
    }

    /// Removes everything.
    pub(crate) fn flush(&self) {
        self.purges.record(&Name::root());
        self.map.clear();
    }

    fn forget(&self, key: &Key, entry: &Arc<Entry>) {
        self.map
            .remove_if(key.as_bytes(), |present| Arc::ptr_eq(present, entry));
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("entries", &self.map.len())
            .field("bytes", &self.map.weight())
            .finish()
    }
}
