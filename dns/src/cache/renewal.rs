//! Answers that are made anew before their time is over, and go on being given meanwhile.
//!
//! The renewal has the answer's place in the map, so that it is the flight of everyone who asks when
//! the old answer's time is over; until then the old one is found here.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Cache, Entry, Key};

/// Answers shorter-lived than this are not renewed: their last tenth is less than a second, and what
/// their owner wants is to be asked often.
const SHORTEST: u32 = 10;
/// Hits that show that an answer is wanted again and again.
const WANTED: u32 = 2;

/// The answers that are being made anew, by their keys. Bounded by who may renew.
#[derive(Debug, Default)]
pub(super) struct Renewing(Mutex<HashMap<Vec<u8>, Arc<Entry>>>);

impl Renewing {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.0.lock().get(key.as_bytes()).cloned()
    }

    pub(super) fn remove(&self, key: &Key, entry: &Arc<Entry>) {
        let mut all = self.0.lock();
        if all
            .get(key.as_bytes())
            .is_some_and(|present| Arc::ptr_eq(present, entry))
        {
            all.remove(key.as_bytes());
        }
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    fn insert<'a>(&'a self, key: &'a Key, entry: &'a Arc<Entry>) -> Leaving<'a> {
        let mut all = self.0.lock();
        all.insert(key.as_bytes().to_vec(), Arc::clone(entry));
        Leaving {
            renewing: self,
            key,
            entry,
        }
    }
}

/// Takes an answer out of those that are being made anew, also when that is broken off.
struct Leaving<'a> {
    renewing: &'a Renewing,
    key: &'a Key,
    entry: &'a Arc<Entry>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.renewing.remove(self.key, self.entry);
    }
}

impl Cache {
    /// Makes an answer anew in the background; `make` returns nothing when the present one shall stay.
    pub(crate) async fn renew<F: Future<Output = Option<Entry>>>(
        &self,
        key: &Key,
        present: &Arc<Entry>,
        make: impl FnOnce() -> F,
    ) {
        let mark = self.purges.mark();
        let leaving = self.renewing.insert(key, present);
        // The index keeps finding the present answer for purges until the new one is there.
        let Some(guard) = self.place_of(key, present) else {
            return;
        };
        let entry = match make().await {
            Some(entry) => Arc::new(self.filed(key, entry, mark)),
            None => Arc::clone(present),
        };
        self.fill(guard, &entry, mark);
        drop(leaving);
        if !Arc::ptr_eq(&entry, present) {
            self.index.remove(present);
        }
    }
}

impl Entry {
    /// Counts a hit, and says whether it is time to make the answer anew: once for each answer, at a
    /// hit in the last tenth of its time.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        if self.keep < SHORTEST || !self.is_answer() || self.is_stale() {
            return false;
        }
        // Counted no further than it matters, so that an answer much asked for is not written to.
        let wanted = self.hits.load(Ordering::Relaxed) >= WANTED
            || self.hits.fetch_add(1, Ordering::Relaxed) + 1 >= WANTED;
        wanted && self.is_in_its_last_tenth(now) && !self.was_due.swap(true, Ordering::Relaxed)
    }

    /// Makes it due once more: there was no room to renew it now.
    pub(crate) fn put_off(&self) {
        self.was_due.store(false, Ordering::Relaxed);
    }

    fn is_in_its_last_tenth(&self, now: Instant) -> bool {
        let age = now.saturating_duration_since(self.made);
        age.as_secs_f64() >= f64::from(self.keep) * 0.9
    }
}
