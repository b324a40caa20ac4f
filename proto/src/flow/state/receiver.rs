//! What comes from the peer: what waits for the local side, and how much more may come.

use std::io::IoSlice;

use bytes::Bytes;

use super::sender::MOST_SMALL;
use super::{Chunks, FIRST_WINDOW, LEAST_WINDOW, MOST_WINDOW, Violation};
use crate::flow::budget::{Budget, Share};
use crate::flow::frame::Credit;

/// Pieces after which a credit is sent, however small they were.
const PIECES: u32 = MOST_SMALL / 8;

/// Whether a credit has to be sent; the later, the sooner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owing {
    /// The peer knows everything.
    Nothing,
    /// It should hear of what was consumed soon, so that it need not keep it.
    Soon,
    /// The same, and with the next frame if one is sent before.
    Along,
    /// It may be waiting.
    Now,
}

/// The receiving side of one direction.
#[derive(Debug)]
pub struct Receiver {
    queue: Chunks,
    /// For the window beyond the least one.
    share: Share,
    window: usize,
    /// Octets received, without the end.
    received: u64,
    /// Octets the local side has taken.
    consumed: u64,
    /// The most the peer was ever allowed to send.
    limit: u64,
    /// What the peer was told last to be consumed, the end included.
    told: u64,
    /// Pieces received since.
    pieces: u32,
    /// What is owed whatever was consumed: the peer has not heard how things stand on its stream.
    at_least: Owing,
    is_ended: bool,
    end_consumed: bool,
}

impl Receiver {
    /// Starts a direction.
    #[must_use]
    pub fn new(budget: &Budget) -> Self {
        Self {
            queue: Chunks::default(),
            share: budget.share(),
            window: LEAST_WINDOW,
            received: 0,
            consumed: 0,
            limit: LEAST_WINDOW as u64,
            told: 0,
            pieces: 0,
            at_least: Owing::Nothing,
            is_ended: false,
            end_consumed: false,
        }
    }

    /// Begins a flow whose peer has nothing to send before it hears from here, most likely.
    pub fn begin(&mut self) {
        self.attach();
        self.at_least = Owing::Along;
    }

    /// Begins on a stream: the peer shall hear how things stand.
    pub fn attach(&mut self) {
        self.at_least = Owing::Now;
        if !self.is_ended && self.window < FIRST_WINDOW {
            self.grow(FIRST_WINDOW);
        }
    }

    /// Takes octets from the peer.
    ///
    /// # Errors
    ///
    /// The peer must not send them.
    pub fn push(&mut self, octets: Bytes) -> Result<(), Violation> {
        if self.is_ended {
            return Err(Violation::AfterEnd);
        }
        let received = self.received + octets.len() as u64;
        if received > self.limit {
            return Err(Violation::BeyondCredit);
        }
        self.received = received;
        self.pieces += 1;
        self.queue.push(octets);
        Ok(())
    }

    /// Takes the peer's end.
    ///
    /// # Errors
    ///
    /// There was one.
    pub fn end(&mut self) -> Result<(), Violation> {
        if self.is_ended {
            return Err(Violation::AfterEnd);
        }
        self.is_ended = true;
        Ok(())
    }

    /// Returns the offset to go on from: what was received, the end included.
    #[must_use]
    pub fn reached(&self) -> u64 {
        self.received + u64::from(self.is_ended)
    }

    /// Returns the octets that were handed on.
    #[must_use]
    pub fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Fills in what waits for the local side, and returns how many slices that are.
    pub fn waiting<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.queue.slices(slices)
    }

    #[cfg(test)]
    pub(super) fn queue_len(&self) -> usize {
        self.queue.len()
    }

    /// Whether nothing waits for the local side.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether the local side has taken everything but the end.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.is_ended && self.queue.is_empty() && !self.end_consumed
    }

    /// Whether the local side has taken everything and the end.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.end_consumed
    }

    /// Notes that the local side has taken octets.
    pub fn consume(&mut self, octets: usize) {
        self.queue.advance(octets);
        self.consumed += octets as u64;
    }

    /// Notes that the local side has taken the end.
    pub fn consume_end(&mut self) {
        debug_assert!(self.is_at_end(), "all before is taken");
        self.end_consumed = true;
        self.share.resize(0);
    }

    /// Whether a credit has to be sent.
    #[must_use]
    pub fn owing(&self) -> Owing {
        let untold = self.consumed - self.told.min(self.consumed);
        let is_much = untold >= (self.window / 4) as u64;
        let are_many = self.pieces >= PIECES && untold > 0;
        let is_end_untold = self.end_consumed && self.told <= self.consumed;
        let owing = if is_much || are_many {
            Owing::Now
        } else if is_end_untold {
            Owing::Along
        } else if untold > 0 {
            Owing::Soon
        } else {
            Owing::Nothing
        };
        owing.max(self.at_least)
    }

    /// Makes the credit to send now. The window follows the memory there is, and grows for a peer
    /// that uses it.
    pub fn credit(&mut self) -> Credit {
        let untold = self.consumed - self.told.min(self.consumed);
        if self.share.budget().is_short() {
            self.shrink(self.window / 2);
        } else if !self.is_ended && untold > 0 && untold >= (self.window / 4) as u64 {
            self.grow(self.window * 2);
        }
        self.tell()
    }

    /// Whether the window is larger than an idle flow needs.
    #[must_use]
    pub fn has_to_spare(&self) -> bool {
        self.window > LEAST_WINDOW && self.queue.is_empty() && !self.is_ended
    }

    /// Takes the window back of a flow that nothing comes on; `None` when it has none to spare.
    pub fn idle(&mut self) -> Option<Credit> {
        if !self.has_to_spare() {
            return None;
        }
        self.shrink(LEAST_WINDOW);
        Some(self.tell())
    }

    fn tell(&mut self) -> Credit {
        let consumed = self.consumed + u64::from(self.end_consumed);
        self.told = consumed;
        self.pieces = 0;
        self.at_least = Owing::Nothing;
        self.limit = self.limit.max(consumed.saturating_add(self.window as u64));
        Credit {
            consumed,
            window: u32::try_from(self.window).unwrap_or(u32::MAX),
        }
    }

    fn grow(&mut self, wanted: usize) {
        let wanted = wanted.min(MOST_WINDOW);
        if self.share.resize(wanted.saturating_sub(LEAST_WINDOW)) {
            self.window = wanted;
        }
    }

    fn shrink(&mut self, wanted: usize) {
        self.window = wanted.max(LEAST_WINDOW);
        self.share.resize(self.window - LEAST_WINDOW);
    }
}
