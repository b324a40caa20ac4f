//! Whom to ask first, and when the next: pure.
//!
//! Three policies, one mechanism: upstreams stand in a row, and each is given a time before the next is
//! asked beside it. It does not know what a reply means, nor which upstreams may be asked at all.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::upstreams::Member;

#[cfg(test)]
mod tests;

/// How long an upstream of an ordered set is given before the next is asked beside it (design §3, Upstreams).
pub(crate) const HEDGE: Duration = Duration::from_millis(300);

/// Chooses how the upstreams are asked about a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FanoutPolicy {
    /// All at once: fastest, and right even where one of them does not know the name.
    #[default]
    All,
    /// The one with the shortest round trip first, the next when it fails or takes twice its usual time.
    Hedged,
    /// In the order of the configuration, the next when one fails or takes 300 ms.
    Ordered,
}

impl FanoutPolicy {
    /// Puts the upstreams into the order in which they are asked.
    pub(crate) fn arrange(self, members: &mut [Arc<Member>]) {
        match self {
            Self::All | Self::Ordered => {}
            Self::Hedged => members.sort_by_cached_key(|member| member.rank()),
        }
    }

    /// Returns how long an upstream is given before the next is asked too.
    pub(crate) fn patience(self, member: &Member) -> Duration {
        match self {
            Self::All => Duration::ZERO,
            Self::Hedged => member.patience(),
            Self::Ordered => HEDGE,
        }
    }
}

/// The turns of a row of upstreams: each is taken once, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turns {
    taken: usize,
    count: usize,
    due: Instant,
}

impl Turns {
    /// Makes a row; the first turn is due at once.
    pub(crate) fn new(count: usize, now: Instant) -> Self {
        Self {
            taken: 0,
            count,
            due: now,
        }
    }

    /// Takes the next turn if it is due; `patience` tells how long whose turn it is has before the next.
    pub(crate) fn take(
        &mut self,
        now: Instant,
        patience: impl FnOnce(usize) -> Duration,
    ) -> Option<usize> {
        let turn = self.taken;
        if turn >= self.count || now < self.due {
            return None;
        }
        self.taken += 1;
        self.due = now + patience(turn);
        Some(turn)
    }

    /// Takes note of a failure: the next turn is due at once, unless it was taken already.
    pub(crate) fn failed(&mut self, turn: usize, now: Instant) {
        if turn + 1 == self.taken {
            self.due = now;
        }
    }

    /// Says how many turns were taken.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// Nobody else is to be asked.
    pub(crate) fn end(&mut self) {
        self.count = self.taken;
    }

    /// Says when the next turn is due, if there is one.
    pub(crate) fn due(&self) -> Option<Instant> {
        (self.taken < self.count).then_some(self.due)
    }
}
