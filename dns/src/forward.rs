//! Forwards queries to the servers a host had before us, in their order, and hands their replies
//! back as they are.
//!
//! No cache, no search list, no race: names that are not ours shall resolve exactly as before. What
//! is changed in a reply is what belongs to this hop alone (`forward/rework.rs`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep, sleep_until};

use crate::explain::{
    Asked, CacheUse, Event, Recorder, Recording, Said, Trace, note_spared, note_unfit,
};
use crate::loops::{Loops, Sending};
use crate::message::{Checked, Query, check, error_reply};
use crate::name::ResponseCode;
use crate::policy::{HEDGE, Turns};
use crate::upstream::{ExchangeError, OutgoingQuery};
use crate::upstreams::{Member, Upstreams};

mod rework;

/// How often an upstream is asked one question at most: again only when none could be reached, which
/// a machine that changes networks sees for a moment.
const ROUNDS: usize = 2;
/// The pause between two rounds.
const PAUSE: Duration = HEDGE;

/// Asks a set of upstreams in its order.
pub struct Forwarder {
    upstreams: Arc<Upstreams>,
    total: Duration,
    loops: Option<Arc<Loops>>,
}

/// An upstream's turn, and what came of it.
type Attempt = (usize, Result<Vec<u8>, ExchangeError>);

/// How a round through the upstreams ended.
enum Round {
    /// With a reply for the asker.
    Reply(Vec<u8>),
    /// Upstreams replied, but none could or would answer.
    Refused,
    /// None replied.
    Unreached,
}

impl Forwarder {
    /// Asks the upstreams in the order of the set; a query takes at most `total`.
    ///
    /// The set may change meanwhile. Its owner drives [`Upstreams::run`].
    pub fn new(upstreams: Arc<Upstreams>, total: Duration) -> Self {
        Self {
            upstreams,
            total,
            loops: None,
        }
    }

    /// Has every query made one that is known again when it comes back to this process. Whoever made
    /// `loops` drives [`Loops::run`] and judges the queries that come in.
    #[must_use]
    pub fn guarded(self, loops: Arc<Loops>) -> Self {
        loops.look_after(&self.upstreams);
        Self {
            loops: Some(loops),
            ..self
        }
    }

    /// Answers a packet from a client; `None` means to say nothing.
    ///
    /// The next upstream is asked at once after SERVFAIL, REFUSED or an error, and beside the one
    /// before after 300 ms of silence; never after a negative answer. Those that are down are left
    /// out. When none is left the answer is SERVFAIL.
    pub async fn forward(&self, packet: &[u8]) -> Option<Vec<u8>> {
        match check(packet) {
            Checked::Query(query) => Some(self.answer(&query, &None).await),
            Checked::Reply(reply) => Some(reply),
            Checked::Drop => None,
        }
    }

    /// Answers a packet as [`forward`](Self::forward) does, and tells what each upstream said.
    pub async fn explain(&self, packet: &[u8]) -> (Option<Vec<u8>>, Trace) {
        let recorder = Recorder::new(CacheUse::Normal);
        let reply = match check(packet) {
            Checked::Query(query) => {
                let (name, rtype) = (query.name.clone(), query.rtype);
                recorder.push(Event::Question { name, rtype });
                Some(self.answer(&query, &Some(Arc::clone(&recorder))).await)
            }
            Checked::Reply(reply) => Some(reply),
            Checked::Drop => None,
        };
        let trace = recorder.finish(reply.as_deref());
        (reply, trace)
    }

    async fn answer(&self, query: &Query, recording: &Recording) -> Vec<u8> {
        // Upstreams are always asked to recurse, and this asker does not want that.
        if !query.rd {
            return error_reply(query, ResponseCode::REFUSED);
        }
        let asked = OutgoingQuery::from(query);
        let end = Instant::now() + self.total;
        for left in (0..ROUNDS).rev() {
            match self.round(query, &asked, end, recording).await {
                Round::Reply(reply) => return reply,
                Round::Unreached if left > 0 && Instant::now() + PAUSE < end => sleep(PAUSE).await,
                Round::Unreached | Round::Refused => break,
            }
        }
        error_reply(query, ResponseCode::SERVFAIL)
    }

    async fn exchange(
        &self,
        member: &Member,
        asked: &OutgoingQuery,
        end: Instant,
    ) -> Result<Vec<u8>, ExchangeError> {
        let Some(loops) = &self.loops else {
            return member.exchange(asked, end).await;
        };
        let sending = Sending {
            loops: Arc::clone(loops),
            origin: None,
        };
        let mut query = asked.clone();
        let _outgoing = member.prepare(&mut query, &asked.name, &sending);
        // The machine's servers are not ours, and need not know one process from another.
        query.origin = None;
        member.exchange(&query, end).await
    }

    /// Asks each upstream once, in order, until one gives an answer.
    async fn round(
        &self,
        query: &Query,
        asked: &OutgoingQuery,
        end: Instant,
        recording: &Recording,
    ) -> Round {
        let members = self.upstreams.usable(&query.name);
        note_unfit(recording, &self.upstreams.members(), &members, &query.name);
        let mut turns = Turns::new(members.len(), Instant::now());
        let mut asking: FuturesUnordered<BoxFuture<'_, Attempt>> = FuturesUnordered::new();
        let mut otherwise = Round::Unreached;
        loop {
            while let Some(turn) = turns.take(Instant::now(), |_| HEDGE) {
                let member = &members[turn];
                asking.push(Box::pin(async move {
                    let told = Asked::begin(recording, &query.name, member.spec());
                    let said = self.exchange(member, asked, end).await;
                    if let Some(told) = told {
                        told.said(Said::of_exchange(&said));
                    }
                    (turn, said)
                }));
            }
            let due = turns.due();
            let (turn, reply) = tokio::select! {
                biased;
                ended = asking.next() => match ended {
                    Some(attempt) => attempt,
                    None => return otherwise,
                },
                // Made only when it is waited for: a reply that is there already needs no timer.
                () = async { sleep_until(due.unwrap_or(end)).await }, if due.is_some() => continue,
            };
            let is_reply = reply.is_ok();
            match usable(reply, query, &members[turn]) {
                Some(reply) => {
                    note_spared(recording, &members, turns.taken(), &query.name);
                    return Round::Reply(reply);
                }
                None if is_reply => otherwise = Round::Refused,
                None => {}
            }
            turns.failed(turn, Instant::now());
        }
    }
}

/// Makes the reply to the asker, unless the next upstream should be asked.
fn usable(
    reply: Result<Vec<u8>, ExchangeError>,
    query: &Query,
    member: &Member,
) -> Option<Vec<u8>> {
    let upstream = member.spec();
    let reply = match reply {
        Ok(reply) => rework::rework(reply, query),
        Err(error) => {
            tracing::debug!(%upstream, %error, "upstream failed");
            return None;
        }
    };
    match reply {
        Ok(reply) => Some(reply),
        Err(reason) => {
            tracing::debug!(%upstream, %reason, "reply passed over");
            None
        }
    }
}

impl From<&Query> for OutgoingQuery {
    fn from(query: &Query) -> Self {
        Self {
            class: query.class,
            dnssec_ok: query.dnssec_ok(),
            checking_disabled: query.cd,
            ..Self::new(query.name.clone(), query.rtype)
        }
    }
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.upstreams.fmt(f)
    }
}

#[cfg(test)]
mod tests;
