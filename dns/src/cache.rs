//! Finished answers as wire bytes, kept for their time, bounded by bytes and entries; and one resolution per key.
//!
//! The map is quick_cache's: its guard makes the first asker of a key the leader and lets the others
//! wait for the leader's value. It knows no lifetimes, so they are compared on reading. What an answer
//! says, and whether it may be kept, was decided before (`rewrite`).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use quick_cache::sync::{Cache as Map, EntryAction, EntryResult};
use quick_cache::{DefaultHashBuilder, Lifecycle, OptionsBuilder, Weighter};
use tokio::time::Instant;

use crate::name::Name;

use self::index::Index;

mod dependencies;
mod entry;
mod index;
mod key;
mod path;
mod purges;
#[cfg(test)]
mod tests;

pub(crate) use dependencies::Dependencies;
pub(crate) use entry::Entry;
pub(crate) use key::Key;
pub(crate) use path::Path;
pub(crate) use purges::{Mark, Purges};

/// What an entry costs beside its bytes: key, counters, allocations (measured: performance.md, memory).
const ENTRY_OVERHEAD: usize = 160;

/// The answer cache.
pub(crate) struct Cache {
    map: AnswerMap,
    /// Where each answer that the map keeps is found by the names it rests on.
    index: Arc<Index>,
    purges: Purges,
    /// Shared while an answer gets its places in index and map, so that a flush finds it in both or in none.
    filling: RwLock<()>,
}

type AnswerMap = Map<Vec<u8>, Arc<Entry>, Weight, DefaultHashBuilder, Unindex>;
type Guard<'a> = quick_cache::sync::PlaceholderGuard<
    'a,
    Vec<u8>,
    Arc<Entry>,
    Weight,
    DefaultHashBuilder,
    Unindex,
>;

/// Takes what the map throws out from the index too.
#[derive(Debug, Clone)]
struct Unindex(Arc<Index>);

impl Lifecycle<Vec<u8>, Arc<Entry>> for Unindex {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _: Vec<u8>, entry: Arc<Entry>) {
        self.0.remove(&entry);
    }
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
        let index = Arc::new(Index::default());
        let map = Map::with_options(
            options,
            Weight { least },
            DefaultHashBuilder::default(),
            Unindex(Arc::clone(&index)),
        );
        Self {
            map,
            index,
            purges: Purges::default(),
            filling: RwLock::default(),
        }
    }

    /// Returns a fresh answer.
    pub(crate) fn get(&self, key: &Key, now: Instant) -> Option<Arc<Entry>> {
        self.map
            .get(key.as_bytes())
            .filter(|entry| entry.is_fresh(now))
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
            let guard = match self.map.get_value_or_guard_async(key.as_bytes()).await {
                Ok(entry) if entry.serves_waiters(Instant::now()) => return entry,
                Ok(expired) => self.replace(key, &expired),
                Err(guard) => Some(guard),
            };
            let Some(guard) = guard else { continue };
            let mark = self.purges.mark();
            let mut entry = lead().await;
            if self.purges.since(mark, entry.dependencies()) {
                entry.do_not_keep();
            }
            return self.fill(guard, key, entry, mark);
        }
    }

    /// Takes an expired answer's place; `None` when it has left it or somebody else has it already.
    fn replace(&self, key: &Key, expired: &Arc<Entry>) -> Option<Guard<'_>> {
        let is_it = |_: &Vec<u8>, present: &mut Arc<Entry>| {
            if Arc::ptr_eq(present, expired) {
                EntryAction::ReplaceWithGuard
            } else {
                EntryAction::Retain(())
            }
        };
        match self.map.entry(key.as_bytes(), Some(Duration::ZERO), is_it) {
            EntryResult::Replaced(guard, old) => {
                self.index.remove(&old);
                Some(guard)
            }
            EntryResult::Vacant(guard) => Some(guard),
            EntryResult::Retained(()) | EntryResult::Removed(..) | EntryResult::Timeout => None,
        }
    }

    /// Gives an answer to everyone who waits for it, and keeps it if it may be kept.
    fn fill(&self, guard: Guard<'_>, key: &Key, mut entry: Entry, mark: Mark) -> Arc<Entry> {
        entry.keep_under(key);
        let entry = Arc::new(entry);
        let filling = self.filling.read();
        if entry.is_kept() {
            self.index.add(&entry);
        }
        let refused = guard.insert(Arc::clone(&entry)).is_err();
        drop(filling);
        // A purge that came before the answer was in the index has not found it there.
        if refused || !entry.is_kept() || self.purges.since(mark, entry.dependencies()) {
            self.forget(&entry);
        }
        entry
    }

    /// Removes every entry whose answer could depend on `name` or on names below it.
    pub(crate) fn purge(&self, name: &Name) {
        let name = Path::of(name);
        // First, so that an answer which is not in the index yet learns of it when it gets there.
        self.purges.record(&name);
        for entry in self.index.take(&name) {
            self.forget(&entry);
        }
    }

    /// Returns how many answers there are, and what they weigh.
    pub(crate) fn size(&self) -> (u64, u64) {
        let entries = u64::try_from(self.map.len()).unwrap_or(u64::MAX);
        (entries, self.map.weight())
    }

    /// Removes everything, the places of answers that are being made too: who asks from now on waits for none of them.
    pub(crate) fn flush(&self) {
        let _nobody_fills = self.filling.write();
        self.purges.record(&Path::of(&Name::root()));
        self.map.clear();
        self.index.clear();
    }

    fn forget(&self, entry: &Arc<Entry>) {
        let is_it = |present: &Arc<Entry>| Arc::ptr_eq(present, entry);
        self.map.remove_if(entry.key().as_bytes(), is_it);
        self.index.remove(entry);
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
