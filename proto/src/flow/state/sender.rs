//! What goes to the peer: how much may, and what is kept until the peer has consumed it.

use bytes::Bytes;

use super::{Chunks, LEAST_WINDOW, MOST_WINDOW, Violation};
use crate::flow::budget::{Budget, Share};
use crate::flow::frame::{Credit, MAX_DATA};

/// Frames below this count as small.
const SMALL: usize = 2 * 1024;
/// The most small frames that are under way: each costs the HTTP/2 queue far more than its octets.
/// A sender that is held back by it has more to put in the next frame. The receiver acknowledges
/// at least every eighth of it.
pub(super) const MOST_SMALL: u32 = 1024;

/// The sending side of one direction.
#[derive(Debug)]
pub struct Sender {
    /// What was sent and not acknowledged.
    replay: Chunks,
    share: Share,
    /// Where `replay` begins: all before has reached the peer.
    kept_from: u64,
    /// Octets sent, without the end.
    sent: u64,
    /// What the peer has consumed, as it said last.
    consumed: u64,
    /// Octets that may be sent.
    limit: u64,
    is_finished: bool,
    end_acknowledged: bool,
    /// Small frames since `small_from` was sent.
    small: u32,
    small_from: u64,
}

impl Sender {
    /// Starts a direction.
    #[must_use]
    pub fn new(budget: &Budget) -> Self {
        Self {
            replay: Chunks::default(),
            share: budget.share(),
            kept_from: 0,
            sent: 0,
            consumed: 0,
            limit: LEAST_WINDOW as u64,
            is_finished: false,
            end_acknowledged: false,
            small: 0,
            small_from: 0,
        }
    }

    /// Returns how many octets the next frame may have; 0 until there is credit and memory.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.is_finished || self.small >= MOST_SMALL {
            return 0;
        }
        let credit = usize::try_from(self.limit.saturating_sub(self.sent)).unwrap_or(usize::MAX);
        let budget = self.share.budget();
        let free = budget.total().saturating_sub(budget.used());
        let most = (LEAST_WINDOW + self.share.taken() + free).min(MOST_WINDOW);
        let keep = most.saturating_sub(self.replay.len());
        credit.min(keep).min(MAX_DATA)
    }

    /// Keeps what is being sent, at most [`Self::room`].
    pub fn push(&mut self, octets: Bytes) {
        debug_assert!(!self.is_finished, "nothing is sent after the end");
        if octets.len() < SMALL {
            self.small += 1;
        }
        self.sent += octets.len() as u64;
        self.replay.push(octets);
        // Where another flow was faster this one is above its share until it is acknowledged.
        self.fit_share();
    }

    fn fit_share(&mut self) {
        self.share
            .resize(self.replay.len().saturating_sub(LEAST_WINDOW));
    }

    /// Notes that the end is being sent.
    pub fn finish(&mut self) {
        self.is_finished = true;
    }

    #[cfg(test)]
    pub(super) fn replay_len(&self) -> usize {
        self.replay.len()
    }

    /// Whether the end was sent, if maybe on a stream that is gone.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether the peer has consumed everything and the end.
    #[must_use]
    pub fn is_acknowledged(&self) -> bool {
        self.end_acknowledged
    }

    /// Whether the peer has consumed everything that was sent so far.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.consumed >= self.sent
    }

    /// Returns the octets sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the offset that was reached, the end included.
    #[must_use]
    pub fn reached(&self) -> u64 {
        self.sent + u64::from(self.is_finished)
    }

    /// Takes what the peer has consumed and how much more it takes.
    ///
    /// # Errors
    ///
    /// It was never sent that much.
    pub fn credit(&mut self, credit: Credit) -> Result<(), Violation> {
        if credit.consumed > self.reached() {
            return Err(Violation::Offset);
        }
        self.end_acknowledged |= self.is_finished && credit.consumed == self.reached();
        self.consumed = credit.consumed;
        self.forget(credit.consumed);
        // What was granted once stays granted but for memory: the peer takes what is on its way.
        self.limit = credit.consumed.saturating_add(u64::from(credit.window));
        Ok(())
    }

    fn forget(&mut self, reached: u64) {
        let octets = reached.min(self.sent);
        let count = octets.saturating_sub(self.kept_from);
        self.replay
            .advance(usize::try_from(count).unwrap_or(usize::MAX));
        self.kept_from = octets.max(self.kept_from);
        self.fit_share();
        if octets >= self.small_from {
            self.small = 0;
            self.small_from = self.sent;
        }
    }

    /// Goes on over another stream, to a peer that has received so much, and returns what has to
    /// be sent again: before the end, which is sent again where the peer lacks it.
    ///
    /// # Errors
    ///
    /// The peer cannot have received that much, or lacks what was forgotten.
    pub fn resume(&mut self, received: u64) -> Result<Vec<Bytes>, Violation> {
        if received > self.reached() || received < self.kept_from {
            return Err(Violation::Offset);
        }
        self.forget(received);
        let mut again = Vec::new();
        for mut piece in self.replay.shared() {
            while piece.len() > MAX_DATA {
                again.push(piece.split_to(MAX_DATA));
            }
            again.push(piece);
        }
        Ok(again)
    }
}
