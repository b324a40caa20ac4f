//! A bounded queue of datagrams that drops the oldest: late ones are worth more than old ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;

/// The most datagrams that wait: a burst of DNS answers or game packets, not a backlog.
pub const DATAGRAMS: usize = 64;
/// The most octets that wait, but for a single datagram: 64 of the longest would be 4 MiB a flow.
pub const OCTETS: usize = 256 * 1024;

/// Datagrams that wait, without the waiting.
#[derive(Debug, Default)]
pub struct Queue {
    datagrams: VecDeque<Bytes>,
    octets: usize,
}

impl Queue {
    /// Adds a datagram, and returns how many were dropped for it.
    pub fn push(&mut self, datagram: Bytes) -> u64 {
        let mut dropped = 0;
        while self.datagrams.len() >= DATAGRAMS
            || (self.octets + datagram.len() > OCTETS && !self.datagrams.is_empty())
        {
            self.pop();
            dropped += 1;
        }
        self.octets += datagram.len();
        self.datagrams.push_back(datagram);
        dropped
    }

    /// Takes the oldest datagram.
    pub fn pop(&mut self) -> Option<Bytes> {
        let datagram = self.datagrams.pop_front()?;
        self.octets -= datagram.len();
        if self.datagrams.is_empty() {
            // An idle flow keeps nothing.
            self.datagrams = VecDeque::new();
        }
        Some(datagram)
    }

    /// Returns the oldest datagram.
    #[must_use]
    pub fn front(&self) -> Option<&Bytes> {
        self.datagrams.front()
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    queue: Queue,
    reader: Option<Waker>,
    is_closed: bool,
    is_refused: bool,
}

/// Makes a queue between two tasks.
#[must_use]
pub fn channel() -> (Input, Output) {
    let shared = Arc::new(Shared::default());
    (Input(Arc::clone(&shared)), Output(shared))
}

/// Where datagrams go in. Never waits.
#[derive(Debug)]
pub struct Input(Arc<Shared>);

impl Input {
    /// Adds a datagram; the oldest is dropped when there are too many.
    ///
    /// # Errors
    ///
    /// Nobody takes any out any longer; the datagram is given back.
    pub fn send(&self, datagram: Bytes) -> Result<(), Bytes> {
        let mut state = self.0.state.lock();
        if state.is_closed {
            return Err(datagram);
        }
        let dropped = state.queue.push(datagram);
        self.0.dropped.fetch_add(dropped, Ordering::Relaxed);
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(())
    }

    /// Ends the queue and says that nobody listens at the destination.
    pub fn refuse(self) {
        self.0.state.lock().is_refused = true;
    }

    /// Whether nobody takes any out any longer.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.state.lock().is_closed
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_closed = true;
        let reader = state.reader.take();
        drop(state);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// Where datagrams come out.
#[derive(Debug)]
pub struct Output(Arc<Shared>);

impl Output {
    /// Takes the oldest datagram; `None` when there is none and never will be.
    pub fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut state = self.0.state.lock();
        match state.queue.pop() {
            Some(datagram) => Poll::Ready(Some(datagram)),
            None if state.is_closed => Poll::Ready(None),
            None => {
                match &mut state.reader {
                    Some(reader) => reader.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    /// Waits for a datagram; `None` when there is none and never will be.
    pub async fn recv(&mut self) -> Option<Bytes> {
        std::future::poll_fn(|context| self.poll_recv(context)).await
    }

    /// Whether the queue was ended because nobody listens at the destination.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.0.state.lock().is_refused
    }

    /// Returns how many datagrams were dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(number: u8, length: usize) -> Bytes {
        vec![number; length].into()
    }

    #[test]
    fn the_oldest_datagram_makes_room() {
        let mut queue = Queue::default();
        let dropped: u64 = (0..70).map(|number| queue.push(datagram(number, 1))).sum();
        assert_eq!(dropped, 6);
        assert_eq!(queue.pop(), Some(datagram(6, 1)));
    }

    #[test]
    fn octets_are_bounded_but_a_single_datagram_always_fits() {
        let mut queue = Queue::default();
        assert_eq!(queue.push(datagram(0, OCTETS + 1)), 0);
        for number in 1..=4 {
            queue.push(datagram(number, OCTETS / 4));
        }
        assert_eq!(queue.front(), Some(&datagram(1, OCTETS / 4)));
        assert_eq!(queue.push(datagram(5, 1)), 1);
        assert_eq!(queue.pop(), Some(datagram(2, OCTETS / 4)));
    }

    #[tokio::test]
    async fn what_was_sent_comes_out_before_the_end() {
        let (input, mut output) = channel();
        input.send(datagram(1, 1)).unwrap();
        drop(input);
        assert_eq!(output.recv().await, Some(datagram(1, 1)));
        assert_eq!(output.recv().await, None);
    }

    #[tokio::test]
    async fn a_refusal_comes_with_the_end() {
        let (input, mut output) = channel();
        assert!(!output.is_refused());
        input.refuse();
        assert_eq!(output.recv().await, None);
        assert!(output.is_refused());
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken() {
        let (input, mut output) = channel();
        let reading = tokio::spawn(async move { output.recv().await });
        tokio::task::yield_now().await;
        input.send(datagram(1, 1)).unwrap();
        assert_eq!(reading.await.unwrap(), Some(datagram(1, 1)));
    }

    #[test]
    fn a_queue_that_nobody_reads_takes_nothing() {
        let (input, output) = channel();
        drop(output);
        assert!(input.is_closed());
        assert!(input.send(datagram(1, 1)).is_err());
    }
}
