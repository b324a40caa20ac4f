//! A queue of octets that keeps large pieces as they are and puts small ones together.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Pieces below this are copied: a small piece may keep a large buffer alive, and a queue of
/// pieces of one octet would cost many times its content.
const SMALL: usize = 4 * 1024;
/// Small pieces are put together up to this.
const TOGETHER: usize = 16 * 1024;

/// A queue of octets.
#[derive(Debug, Default)]
pub struct Chunks {
    whole: VecDeque<Bytes>,
    /// The last of the queue, where it is small.
    tail: BytesMut,
    length: usize,
}

impl Chunks {
    /// Returns how many octets are queued.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether nothing is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Adds octets at the end.
    pub fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.length += piece.len();
        if piece.len() < SMALL {
            self.tail.extend_from_slice(&piece);
            if self.tail.len() >= TOGETHER {
                self.seal();
            }
        } else {
            self.seal();
            self.whole.push_back(piece);
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.whole
                .push_back(std::mem::take(&mut self.tail).freeze());
        }
    }

    /// Removes octets at the front.
    pub fn advance(&mut self, mut count: usize) {
        debug_assert!(count <= self.length, "no more than there is");
        count = count.min(self.length);
        self.length -= count;
        while let Some(front) = self.whole.front_mut() {
            if count < front.len() {
                front.advance(count);
                return;
            }
            count -= front.len();
            self.whole.pop_front();
        }
        self.tail.advance(count);
        if self.length == 0 {
            // An idle flow keeps nothing.
            *self = Self::default();
        }
    }

    /// Fills in slices from the front, and returns how many.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        for (slice, piece) in slices.iter_mut().zip(self.pieces()) {
            *slice = IoSlice::new(piece);
            filled += 1;
        }
        filled
    }

    /// Returns all that is queued, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let tail = (!self.tail.is_empty()).then_some(&self.tail[..]);
        self.whole.iter().map(|piece| &piece[..]).chain(tail)
    }

    /// Returns all that is queued, in order, without copying the large pieces.
    pub fn shared(&mut self) -> impl Iterator<Item = Bytes> {
        self.seal();
        self.whole.iter().cloned()
    }
}
