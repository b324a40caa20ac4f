//! How much memory all flows of a process may hold together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory that flows share: what they may receive beyond the least window, and what they keep to
/// send again beyond as much. Clones share.
///
/// The least window of each flow is not counted: that the number of flows is bounded bounds it.
#[derive(Debug, Clone)]
pub struct Budget {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    total: usize,
    used: AtomicUsize,
}

impl Budget {
    /// Makes a budget of so many octets.
    #[must_use]
    pub fn new(total: usize) -> Self {
        let used = AtomicUsize::new(0);
        Self {
            shared: Arc::new(Shared { total, used }),
        }
    }

    /// Returns how many octets there are in all.
    #[must_use]
    pub fn total(&self) -> usize {
        self.shared.total
    }

    /// Returns how many octets are taken.
    #[must_use]
    pub fn used(&self) -> usize {
        self.shared.used.load(Ordering::Relaxed)
    }

    /// Whether what is taken should be given back where it can be: three quarters are gone.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.used() >= self.total() / 4 * 3
    }

    /// Starts a share that has nothing yet.
    #[must_use]
    pub(super) fn share(&self) -> Share {
        Share {
            budget: self.clone(),
            taken: 0,
        }
    }
}

/// What one holder has taken of a [`Budget`]; it is given back when this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    budget: Budget,
    taken: usize,
}

impl Share {
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(super) fn taken(&self) -> usize {
        self.taken
    }

    /// Makes the share this large where there is room; a smaller one always succeeds.
    pub(super) fn resize(&mut self, wanted: usize) -> bool {
        let used = &self.budget.shared.used;
        if let Some(more) = wanted.checked_sub(self.taken) {
            let total = self.budget.shared.total;
            let taking = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(more).filter(|used| *used <= total)
            });
            if taking.is_err() {
                return false;
            }
        } else {
            used.fetch_sub(self.taken - wanted, Ordering::Relaxed);
        }
        self.taken = wanted;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_take_more_than_there_is() {
        let budget = Budget::new(100);
        let (mut one, mut other) = (budget.share(), budget.share());

        assert!(one.resize(60));
        assert!(!other.resize(50));
        assert_eq!((budget.used(), other.taken()), (60, 0));
        assert!(other.resize(40));
        assert!(budget.is_short());
        assert!(one.resize(10));
        assert_eq!(budget.used(), 50);
    }

    #[test]
    fn what_a_holder_took_is_given_back_with_it() {
        let budget = Budget::new(100);
        let mut share = budget.share();
        assert!(share.resize(80));

        drop(share);

        assert_eq!(budget.used(), 0);
        assert!(!budget.is_short());
    }
}
