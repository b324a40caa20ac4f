//! A query in wire form, ready for any id, and the reply's judgement that all transports share.
//!
//! A server that rejects EDNS is asked without it for a while. How a query travels is not known
//! here.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::reply::{HEADER, Question, Verdict, judge_stream, rejects};
use super::{ExchangeError, OutgoingQuery};
use crate::message::{QueryOptions, encode_query};

/// How long a server that rejected EDNS is asked without it.
pub(super) const EDNS_REJECTED_FOR: Duration = Duration::from_secs(300);

/// A query in wire form.
#[derive(Debug)]
pub(super) struct Wire {
    bytes: Vec<u8>,
    question: Question,
    edns: Edns,
}

/// Whether a query carries an OPT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edns {
    With,
    Without,
}

/// Sends one query over whatever a transport has.
pub(super) trait AskOnce: Sync {
    /// Returns a reply to the query and what it means for its transport. [`EdnsMemory::ask`] bounds
    /// the time.
    fn ask_once(
        &self,
        wire: Wire,
    ) -> impl Future<Output = Result<(Vec<u8>, Verdict), ExchangeError>> + Send;
}

/// Remembers whether a server rejects EDNS.
#[derive(Debug, Default)]
pub(super) struct EdnsMemory {
    plain_until: Mutex<Option<Instant>>,
}

impl Wire {
    /// Encodes the query under id 0, for the ids are drawn when it is sent.
    pub(super) fn new(query: &OutgoingQuery, edns: Edns) -> Result<Self, ExchangeError> {
        let options = QueryOptions {
            class: query.class,
            dnssec_ok: query.dnssec_ok,
            checking_disabled: query.checking_disabled,
            edns: edns == Edns::With,
        };
        let bytes = encode_query(0, &query.name, query.rtype, options);
        let question = Question::of_query(&bytes);
        let question = question.ok_or(ExchangeError::Malformed("the query has no question"))?;
        Ok(Self {
            bytes,
            question,
            edns,
        })
    }

    pub(super) fn question(&self) -> Question {
        self.question.clone()
    }

    pub(super) fn has_edns(&self) -> bool {
        self.edns == Edns::With
    }

    /// Returns the message under this id.
    pub(super) fn with_id(&mut self, id: u16) -> &[u8] {
        self.bytes[..2].copy_from_slice(&id.to_be_bytes());
        &self.bytes
    }

    /// Judges a reply that came by a way on which nothing is too long.
    pub(super) fn judge_whole(&self, reply: Vec<u8>) -> Result<(Vec<u8>, Verdict), ExchangeError> {
        match judge_stream(&reply, self.has_edns()) {
            Verdict::Truncated => Err(ExchangeError::Malformed("truncated on a connection")),
            verdict @ (Verdict::Final | Verdict::NoEdns) => Ok((reply, verdict)),
        }
    }
}

impl EdnsMemory {
    /// Asks within the deadline, and asks again without EDNS when the server does not know it.
    pub(super) async fn ask(
        &self,
        transport: &impl AskOnce,
        query: &OutgoingQuery,
        deadline: Instant,
    ) -> Result<Vec<u8>, ExchangeError> {
        let answer = timeout_at(deadline, self.ask_for_ever(transport, query)).await;
        answer.unwrap_or(Err(ExchangeError::Timeout))
    }

    async fn ask_for_ever(
        &self,
        transport: &impl AskOnce,
        query: &OutgoingQuery,
    ) -> Result<Vec<u8>, ExchangeError> {
        let plain_until = *self.plain_until.lock();
        if plain_until.is_some_and(|until| Instant::now() < until) {
            return ask_plain(transport, query).await;
        }
        let wire = Wire::new(query, Edns::With)?;
        let (reply, verdict) = transport.ask_once(wire).await?;
        if verdict != Verdict::NoEdns {
            return Ok(reply);
        }
        let reply = ask_plain(transport, query).await?;
        // A server that rejects the question either way has said nothing about EDNS.
        if !rejects(&reply) {
            *self.plain_until.lock() = Some(Instant::now() + EDNS_REJECTED_FOR);
        }
        Ok(reply)
    }
}

async fn ask_plain(
    transport: &impl AskOnce,
    query: &OutgoingQuery,
) -> Result<Vec<u8>, ExchangeError> {
    let wire = Wire::new(query, Edns::Without)?;
    let (reply, _) = transport.ask_once(wire).await?;
    if reply.len() == HEADER {
        return Err(ExchangeError::Malformed("a rejection without its question"));
    }
    Ok(reply)
}
