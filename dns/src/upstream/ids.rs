//! Which query ids are in use on one socket or connection, and who waits for each.
//!
//! Ids are random and unpredictable (RFC 5452 §9.2) and have nothing to do with the asker's. An id
//! is *pending* while its query waits, then *spent* for a while, so that a late or repeated reply
//! can be told from a guess; on a connection, where replies come once, only the id of a query that
//! was given up is. The table does no IO; its users feed it packets and the time.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::ExchangeError;
use super::reply::{Question, answers, reply_id};

/// How long a reply may come late without being taken for a guess: no resolver answers later.
const SPENT_FOR: Duration = Duration::from_secs(5);
/// The most ids pending or spent at once: twice the queries of one socket, the rest being resends;
/// at 3 % of the id space a guess stays hard and a free id is found at once.
const MAX_IDS: usize = 2000;

/// The ids of one socket or connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ids(Arc<Mutex<State>>);

/// One query's place in the table. Dropping it leaves its ids behind as spent.
#[derive(Debug)]
pub(crate) struct Ticket {
    ids: Ids,
    waiter: u64,
    outcome: oneshot::Receiver<Outcome>,
}

/// What a waiting query is told.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Its reply came, this long after the sending it answers.
    Reply(Vec<u8>, Duration),
    /// The socket or connection is of no use any more.
    Closed(Reason),
}

/// Why a socket or connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// Somebody is guessing ids.
    Guessed,
    /// The operating system reported an error.
    Io(io::ErrorKind),
    /// The server closed it, or it was idle.
    Ended,
    /// The server sent what cannot be DNS.
    Malformed,
}

/// What a packet was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// A reply somebody waited for.
    Delivered,
    /// Nothing for us, and nothing to worry about.
    Ignored,
    /// A reply with an id that is neither pending nor spent.
    Stranger,
}

#[derive(Debug, Default)]
struct State {
    /// Whether each sending is replied to once, for certain and by nobody else.
    on_connection: bool,
    uses: HashMap<u16, Use>,
    spent: VecDeque<(Instant, u16)>,
    waiters: HashMap<u64, Waiter>,
    opened: u64,
    heard: Option<Instant>,
    unheard_since: Option<Instant>,
    closed: Option<Reason>,
}

#[derive(Debug, Clone, Copy)]
enum Use {
    Pending { waiter: u64, sent: Instant },
    Spent { until: Instant },
}

#[derive(Debug)]
struct Waiter {
    question: Question,
    ids: Vec<u16>,
    outcome: oneshot::Sender<Outcome>,
}

impl Ids {
    /// Makes the table of a connection.
    pub(crate) fn on_connection() -> Self {
        let state = State {
            on_connection: true,
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Makes a place for one query; fails once the table is closed.
    pub(crate) fn open(&self, question: Question) -> Result<Ticket, Reason> {
        let (sender, outcome) = oneshot::channel();
        let mut state = self.0.lock();
        if let Some(reason) = state.closed {
            return Err(reason);
        }
        state.opened += 1;
        let waiter = state.opened;
        let entry = Waiter {
            question,
            ids: Vec::with_capacity(1),
            outcome: sender,
        };
        state.waiters.insert(waiter, entry);
        drop(state);
        let ids = self.clone();
        Ok(Ticket {
            ids,
            waiter,
            outcome,
        })
    }

    /// Takes in a packet from the server.
    pub(crate) fn arrived(&self, packet: &[u8], now: Instant) -> Arrival {
        let mut state = self.0.lock();
        state.heard = Some(now);
        state.unheard_since = None;
        state.forget_spent(now);
        let Some(id) = reply_id(packet) else {
            return Arrival::Ignored;
        };
        let (waiter, sent) = match state.uses.get(&id) {
            None => return Arrival::Stranger,
            Some(Use::Spent { .. }) if state.on_connection => {
                state.uses.remove(&id);
                return Arrival::Ignored;
            }
            Some(Use::Spent { .. }) => return Arrival::Ignored,
            Some(Use::Pending { waiter, sent }) => (*waiter, *sent),
        };
        let asked = state.waiters.get(&waiter);
        if !asked.is_some_and(|w| answers(packet, &w.question)) {
            return Arrival::Ignored;
        }
        let answered = state.retire(waiter, now);
        if state.on_connection {
            state.uses.remove(&id);
        }
        if let Some(waiter) = answered {
            // The receiver may be gone: then the query was cancelled at this very moment.
            let _ = waiter
                .outcome
                .send(Outcome::Reply(packet.to_vec(), now - sent));
        }
        Arrival::Delivered
    }

    /// Closes the table and tells everybody who waits.
    pub(crate) fn close(&self, reason: Reason) {
        let mut state = self.0.lock();
        state.closed.get_or_insert(reason);
        for (_, waiter) in state.waiters.drain() {
            let _ = waiter.outcome.send(Outcome::Closed(reason));
        }
    }

    /// Closes the table unless somebody waits; tells whether it is closed.
    pub(crate) fn close_if_idle(&self) -> bool {
        let mut state = self.0.lock();
        if state.waiters.is_empty() {
            state.closed.get_or_insert(Reason::Ended);
        }
        state.closed.is_some()
    }

    /// Tells whether new queries are taken.
    pub(crate) fn is_open(&self) -> bool {
        self.0.lock().closed.is_none()
    }

    /// Returns how many queries have been opened so far.
    pub(crate) fn opened(&self) -> u64 {
        self.0.lock().opened
    }

    /// Returns how many ids are pending or spent.
    pub(crate) fn in_use(&self, now: Instant) -> usize {
        let mut state = self.0.lock();
        state.forget_spent(now);
        state.uses.len()
    }

    /// Tells whether anything has arrived since then.
    pub(crate) fn heard_since(&self, then: Instant) -> bool {
        self.0.lock().heard.is_some_and(|heard| heard >= then)
    }

    /// Takes note that a query has gone out.
    pub(crate) fn sent(&self, now: Instant) {
        self.0.lock().unheard_since.get_or_insert(now);
    }

    /// Returns how long queries have been going out without anything coming in.
    pub(crate) fn silence(&self, now: Instant) -> Duration {
        let since = self.0.lock().unheard_since;
        since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// Tells whether somebody waits for a reply under this id.
    pub(crate) fn is_pending(&self, id: u16) -> bool {
        matches!(self.0.lock().uses.get(&id), Some(Use::Pending { .. }))
    }
}

impl Ticket {
    /// Draws a fresh id for one sending of the query. Ids drawn before stay valid.
    pub(crate) fn draw(&self, now: Instant) -> Result<u16, ExchangeError> {
        let mut state = self.ids.0.lock();
        state.forget_spent(now);
        if state.uses.len() >= MAX_IDS {
            return Err(ExchangeError::Overloaded);
        }
        loop {
            let id = rand::random::<u16>();
            if let Entry::Vacant(free) = state.uses.entry(id) {
                free.insert(Use::Pending {
                    waiter: self.waiter,
                    sent: now,
                });
                if let Some(waiter) = state.waiters.get_mut(&self.waiter) {
                    waiter.ids.push(id);
                }
                return Ok(id);
            }
        }
    }

    /// Waits for the reply; may be dropped and called again.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        let outcome = (&mut self.outcome).await;
        outcome.unwrap_or(Outcome::Closed(Reason::Ended))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.ids.0.lock();
        state.retire(self.waiter, Instant::now());
    }
}

impl State {
    /// Takes the waiter out and leaves its ids behind as spent.
    fn retire(&mut self, waiter: u64, now: Instant) -> Option<Waiter> {
        let waiter = self.waiters.remove(&waiter)?;
        let until = now + SPENT_FOR;
        for &id in &waiter.ids {
            self.uses.insert(id, Use::Spent { until });
            self.spent.push_back((until, id));
        }
        Some(waiter)
    }

    fn forget_spent(&mut self, now: Instant) {
        while let Some(&(until, id)) = self.spent.front() {
            if until > now {
                break;
            }
            self.spent.pop_front();
            // On a connection the id may be free already, or in use again.
            if matches!(self.uses.get(&id), Some(Use::Spent { until: due }) if *due == until) {
                self.uses.remove(&id);
            }
        }
    }
}

impl From<Reason> for ExchangeError {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Guessed => Self::Malformed("replies with ids that were never sent"),
            Reason::Io(kind) => Self::io("exchange packets with", kind.into()),
            Reason::Ended => Self::Closed,
            Reason::Malformed => Self::Malformed("a frame too short for a DNS message"),
        }
    }
}

#[cfg(test)]
mod tests;
