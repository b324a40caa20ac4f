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
use self::purges::Purges;
use self::renewal::Renewing;

mod dependencies;
mod entry;
mod index;
mod key;
mod path;
mod purges;
mod renewal;
mod stale;
#[cfg(test)]
mod tests;

pub(crate) use dependencies::Dependencies;
pub(crate) use entry::Entry;
pub(crate) use key::{Key, Wants};
pub(crate) use path::Path;
pub(crate) use purges::Mark;

/// What an entry costs beside its bytes: key, counters, allocations (measured: performance.md, memory).
const ENTRY_OVERHEAD: usize = 160;

/// The answer cache.
pub(crate) struct Cache {
    map: AnswerMap,
    /// Where each answer that the map keeps is found by the names it rests on.
    index: Arc<Index>,
    /// What is being made anew has left its place in the map, and goes on being given.
    renewing: Renewing,
    purges: Purges,
    /// Shared while an answer gets its places in index and map, so that a flush finds it in both or in none.
    filling: RwLock<()>,
    /// Failures and stale answers made before it tell nothing any more.
    failures_from: RwLock<Option<Instant>>,
}

/// What a leader stands on.
#[derive(Debug)]
pub(crate) struct Ground {
    /// The answer there was, if its time is over and it has not been thrown out yet.
    pub(crate) expired: Option<Arc<Entry>>,
    /// When it began.
    pub(crate) mark: Mark,
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
            renewing: Renewing::default(),
            purges: Purges::default(),
            filling: RwLock::default(),
            failures_from: RwLock::default(),
        }
    }

    /// Returns a fresh answer.
    pub(crate) fn get(&self, key: &Key, now: Instant) -> Option<Arc<Entry>> {
        let present = self.map.get(key.as_bytes());
        present
            .or_else(|| self.renewing.get(key))
            .filter(|entry| entry.is_fresh(now) && !self.is_forgotten(entry))
    }

    /// Returns the fresh answer, the one that another caller is just making, or the one that `lead` makes.
    ///
    /// However many callers come while it is being made, `lead` runs once and all of them get its
    /// answer, also when it may not be kept. An answer overtaken by a purge is not kept either.
    pub(crate) async fn once<F: Future<Output = Entry>>(
        &self,
        key: &Key,
        lead: impl FnOnce(Ground) -> F,
    ) -> Arc<Entry> {
        loop {
            let (guard, expired) = match self.map.get_value_or_guard_async(key.as_bytes()).await {
                Ok(entry) if entry.serves_waiters(Instant::now()) && !self.is_forgotten(&entry) => {
                    return entry;
                }
                Ok(expired) => (self.place_of(key, &expired), Some(expired)),
                Err(guard) => (Some(guard), None),
            };
            let Some(guard) = guard else { continue };
            let mark = self.purges.mark();
            if let Some(expired) = &expired {
                self.index.remove(expired);
            }
            let entry = lead(Ground { expired, mark }).await;
            let entry = Arc::new(self.filed(key, entry, mark));
            self.fill(guard, &entry, mark);
            return entry;
        }
    }

    /// Puts a late answer in the place of the stale one that was given for want of it.
    pub(crate) fn supersede(&self, key: &Key, entry: Entry, mark: Mark) {
        let is_stale = |_: &Vec<u8>, present: &mut Arc<Entry>| {
            if present.is_stale() {
                EntryAction::ReplaceWithGuard
            } else {
                EntryAction::Retain(())
            }
        };
        let place = self
            .map
            .entry(key.as_bytes(), Some(Duration::ZERO), is_stale);
        if let EntryResult::Replaced(guard, stale) = place {
            self.index.remove(&stale);
            let entry = Arc::new(self.filed(key, entry, mark));
            self.fill(guard, &entry, mark);
        }
    }

    /// Says whether nothing that the answer rests on was purged after the mark.
    pub(crate) fn stands(&self, mark: Mark, entry: &Entry) -> bool {
        !self.purges.since(mark, entry.dependencies())
    }

    /// Takes the answer's place; `None` when it has left it or somebody else has it already.
    fn place_of(&self, key: &Key, entry: &Arc<Entry>) -> Option<Guard<'_>> {
        let is_it = |_: &Vec<u8>, present: &mut Arc<Entry>| {
            if Arc::ptr_eq(present, entry) {
                EntryAction::ReplaceWithGuard
            } else {
                EntryAction::Retain(())
            }
        };
        match self.map.entry(key.as_bytes(), Some(Duration::ZERO), is_it) {
            EntryResult::Replaced(guard, _) | EntryResult::Vacant(guard) => Some(guard),
            EntryResult::Retained(()) | EntryResult::Removed(..) | EntryResult::Timeout => None,
        }
    }

    /// Makes an answer ready to be kept under the key, if its ground has not shifted since the mark.
    fn filed(&self, key: &Key, mut entry: Entry, mark: Mark) -> Entry {
        entry.keep_under(key);
        if !self.stands(mark, &entry) {
            entry.do_not_keep();
        }
        entry
    }

    /// Gives an answer to everyone who waits for it, and keeps it if it may be kept.
    fn fill(&self, guard: Guard<'_>, entry: &Arc<Entry>, mark: Mark) {
        let filling = self.filling.read();
        if entry.is_kept() {
            self.index.add(entry);
        }
        let refused = guard.insert(Arc::clone(entry)).is_err();
        drop(filling);
        // A purge that came before the answer was in the index has not found it there.
        if refused || !entry.is_kept() || !self.stands(mark, entry) {
            self.forget(entry);
        }
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

    /// Gives no failure and no stale answer any more that was made before `now`: an upstream is back (K6).
    pub(crate) fn forget_failures(&self, now: Instant) {
        *self.failures_from.write() = Some(now);
    }

    fn is_forgotten(&self, entry: &Entry) -> bool {
        let is_older = |from: Instant| entry.made() < from;
        (entry.is_failure() || entry.is_stale()) && self.failures_from.read().is_some_and(is_older)
    }

    /// Removes everything, the places of answers that are being made too: who asks from now on waits for none of them.
    pub(crate) fn flush(&self) {
        let _nobody_fills = self.filling.write();
        self.purges.record(&Path::of(&Name::root()));
        self.map.clear();
        self.renewing.clear();
        self.index.clear();
    }

    fn forget(&self, entry: &Arc<Entry>) {
        let key = entry.key();
        let is_it = |present: &Arc<Entry>| Arc::ptr_eq(present, entry);
        self.map.remove_if(key.as_bytes(), is_it);
        self.renewing.remove(&key, entry);
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
