//! Packets on their way to the laptop: a bounded queue whose buffers are used again.

use std::collections::VecDeque;

/// How many packets wait for the device before flows have to: a few flows' full windows at the
/// usual MTU. A TUN takes packets at once, so the queue is short unless something is wrong.
const CAPACITY: usize = 256;

/// How many used buffers are kept: what one round of the driver needs.
const SPARE: usize = 64;

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    queue: VecDeque<Buffer>,
    spare: Vec<Vec<u8>>,
}

#[derive(Debug)]
struct Buffer {
    bytes: Vec<u8>,
    length: usize,
}

impl Outbox {
    /// Whether flows have to wait.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= CAPACITY
    }

    /// How many packets there is room for.
    pub(super) fn room(&self) -> usize {
        CAPACITY.saturating_sub(self.queue.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Adds a packet of this length, written by the closure over whatever the buffer held.
    ///
    /// One more than the queue holds is taken: TCP answers a packet even when it has to wait with
    /// everything else, and no further packet is read until there is room again.
    pub(super) fn write<R>(&mut self, length: usize, write: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut bytes = self.spare.pop().unwrap_or_default();
        if bytes.len() < length {
            bytes.resize(length, 0);
        }
        let result = write(&mut bytes[..length]);
        self.queue.push_back(Buffer { bytes, length });
        result
    }

    /// Adds a packet if there is room, and tells whether there was.
    pub(super) fn push(&mut self, packet: &[u8]) -> bool {
        if self.is_full() {
            return false;
        }
        self.write(packet.len(), |buffer| buffer.copy_from_slice(packet));
        true
    }

    /// Returns the packet that is next.
    pub(super) fn first(&self) -> Option<&[u8]> {
        let Buffer { bytes, length } = self.queue.front()?;
        bytes.get(..*length)
    }

    /// Lets go of the packet that was next.
    pub(super) fn remove_first(&mut self) {
        if let Some(Buffer { bytes, .. }) = self.queue.pop_front()
            && self.spare.len() < SPARE
        {
            self.spare.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_as_they_went_in_though_buffers_are_used_again() {
        let mut outbox = Outbox::default();
        for packet in [&[1; 9][..], &[2; 3], &[3; 20]] {
            assert!(outbox.push(packet));

            assert_eq!(outbox.first(), Some(packet));
            outbox.remove_first();
        }
        assert!(outbox.is_empty());
        assert_eq!(outbox.first(), None);
    }

    #[test]
    fn a_full_queue_takes_nothing_but_the_answer_to_a_packet() {
        let mut outbox = Outbox::default();
        while outbox.push(&[0]) {}

        assert!(outbox.is_full());
        outbox.write(1, |buffer| buffer[0] = 7);
        assert_eq!(outbox.queue.len(), CAPACITY + 1);
    }
}
