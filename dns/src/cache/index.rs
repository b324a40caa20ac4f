//! Which answers rest on a name: what a purge looks up instead of looking at every answer.
//!
//! Every answer that is kept stands here under each of its dependencies, from before it is in the
//! map until after it has left it, so the index is bounded by what bounds the map. It knows
//! nothing of keys and lifetimes.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::{Entry, Path};

/// Kept answers by the names they rest on.
///
/// The lock is taken under those of the map, when it evicts; so no call into the map is made under it.
#[derive(Debug, Default)]
pub(super) struct Index(Mutex<BTreeSet<Place>>);

/// An answer under one of its dependencies; without the answer, where the name's places begin.
#[derive(Debug, Clone)]
struct Place {
    path: Path,
    answer: Option<Arc<Entry>>,
}

impl Index {
    pub(super) fn add(&self, answer: &Arc<Entry>) {
        let places = places(answer);
        self.0.lock().extend(places);
    }

    pub(super) fn remove(&self, answer: &Arc<Entry>) {
        let mut all = self.0.lock();
        for place in places(answer) {
            all.remove(&place);
        }
    }

    /// Takes out all answers that rest on the name or on names below it.
    pub(super) fn take(&self, name: &Path) -> Vec<Arc<Entry>> {
        let mut all = self.0.lock();
        let begin = Place {
            path: name.clone(),
            answer: None,
        };
        let below = all
            .range(begin..)
            .take_while(|place| place.path.is_at_or_below(name));
        let mut found: Vec<Arc<Entry>> = below.filter_map(|place| place.answer.clone()).collect();
        found.sort_unstable_by_key(address);
        found.dedup_by(|one, other| Arc::ptr_eq(one, other));
        for place in found.iter().flat_map(places) {
            all.remove(&place);
        }
        found
    }

    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }

    #[cfg(test)]
    pub(super) fn holds(&self, answer: &Arc<Entry>) -> bool {
        let all = self.0.lock();
        places(answer).all(|place| all.contains(&place))
    }
}

fn places(answer: &Arc<Entry>) -> impl Iterator<Item = Place> {
    answer.dependencies().paths().iter().map(|path| Place {
        path: path.clone(),
        answer: Some(Arc::clone(answer)),
    })
}

fn address(answer: &Arc<Entry>) -> usize {
    Arc::as_ptr(answer).addr()
}

impl Ord for Place {
    /// By name; then by which answer it is, as a name may have several.
    fn cmp(&self, other: &Self) -> Ordering {
        let which = |place: &Self| place.answer.as_ref().map(address);
        (&self.path, which(self)).cmp(&(&other.path, which(other)))
    }
}

impl PartialOrd for Place {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Place {}
