//! A query in wire form, ready for any id, and the reply's judgement that all transports share.
//!
//! A server that rejects EDNS is asked without it for a while, and one that does not keep the
//! spelling of names is asked in lower case. How a query travels is not known here.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::reply::{HEADER, Question, Verdict, judge_stream, rejects};
use super::{ExchangeError, OutgoingQuery};
use crate::message::{QueryOptions, encode_query};

/// How long a server that rejected EDNS is asked without it.
pub(super) const EDNS_REJECTED_FOR: Duration = Duration::from_secs(300);

/// How long a server that changed the spelling of a name is asked in lower case.
pub(super) const FOLDS_FOR: Duration = Duration::from_secs(300);

/// A query in wire form.
#[derive(Debug)]
pub(super) struct Wire {
    bytes: Vec<u8>,
    question: Question,
    edns: Edns,
    /// Whether a reply must spell the name in the same way (S2).
    exact_case: bool,
}

/// What a server is known not to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Form {
    pub(super) edns: Edns,
    /// Whether a spelling that was drawn at random is sent.
    pub(super) spelled: bool,
}

/// Whether a query carries an OPT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Edns {
    With,
    Without,
}

impl Form {
    /// What every server takes.
    pub(super) const PLAIN: Self = Self {
        edns: Edns::Without,
        spelled: false,
    };
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

/// Remembers whether a server rejects EDNS, or loses the spelling of names.
#[derive(Debug, Default)]
pub(super) struct ServerMemory {
    plain_until: Mutex<Option<Instant>>,
    folds_until: Mutex<Option<Instant>>,
}

impl Wire {
    /// Encodes the query under id 0, for the ids are drawn when it is sent.
    pub(super) fn new(query: &OutgoingQuery, form: Form) -> Result<Self, ExchangeError> {
        let Form { edns, spelled } = form;
        let exact_case = query.exact_case && spelled;
        let lower = (query.exact_case && !spelled).then(|| query.name.to_lowercase());
        let options = QueryOptions {
            class: query.class,
            dnssec_ok: query.dnssec_ok,
            checking_disabled: query.checking_disabled,
            edns: edns == Edns::With,
            origin: query.origin,
        };
        let bytes = encode_query(
            0,
            lower.as_ref().unwrap_or(&query.name),
            query.rtype,
            options,
        );
        let question = Question::of_query(&bytes);
        let question = question.ok_or(ExchangeError::Malformed("the query has no question"))?;
        Ok(Self {
            bytes,
            question,
            edns,
            exact_case,
        })
    }

    pub(super) fn question(&self) -> Question {
        self.question.clone()
    }

    pub(super) fn has_edns(&self) -> bool {
        self.edns == Edns::With
    }

    /// Tells whether the reply spells the name otherwise than it was drawn.
    pub(super) fn is_respelled_in(&self, reply: &[u8]) -> bool {
        self.exact_case && self.question.is_respelled_in(reply)
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
            verdict @ (Verdict::Final | Verdict::NoEdns | Verdict::Folded) => Ok((reply, verdict)),
        }
    }
}

impl ServerMemory {
    /// Asks within the deadline, and asks again with less when the server does not take all of it.
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
        let mut form = self.form(Instant::now());
        let mut rejected = false;
        // Each round takes something away, so there are three at most.
        loop {
            let wire = Wire::new(query, form)?;
            let (question, exact_case) = (wire.question(), wire.exact_case);
            let (reply, verdict) = transport.ask_once(wire).await?;
            match verdict {
                Verdict::NoEdns if form.edns == Edns::With => {
                    form.edns = Edns::Without;
                    rejected = true;
                }
                Verdict::Folded if form.spelled => {
                    self.note_folding(query);
                    form.spelled = false;
                }
                Verdict::Final | Verdict::NoEdns | Verdict::Folded | Verdict::Truncated => {
                    // A stream comes from the server for certain, so this reply may be used.
                    if exact_case && question.is_respelled_in(&reply) {
                        self.note_folding(query);
                    }
                    return self.conclude(reply, rejected, form.edns);
                }
            }
        }
    }

    /// Tells whether names are sent to the server as they are spelled.
    pub(super) fn keeps_case(&self, now: Instant) -> bool {
        self.form(now).spelled
    }

    fn form(&self, now: Instant) -> Form {
        let passed = |until: &Mutex<Option<Instant>>| until.lock().is_none_or(|until| until <= now);
        Form {
            edns: if passed(&self.plain_until) {
                Edns::With
            } else {
                Edns::Without
            },
            spelled: passed(&self.folds_until),
        }
    }

    fn note_folding(&self, query: &OutgoingQuery) {
        tracing::debug!(name = %query.name, "server does not keep the spelling of names");
        *self.folds_until.lock() = Some(Instant::now() + FOLDS_FOR);
    }

    fn conclude(
        &self,
        reply: Vec<u8>,
        rejected: bool,
        edns: Edns,
    ) -> Result<Vec<u8>, ExchangeError> {
        if edns == Edns::Without && reply.len() == HEADER {
            return Err(ExchangeError::Malformed("a rejection without its question"));
        }
        // A server that rejects the question either way has said nothing about EDNS.
        if rejected && !rejects(&reply) {
            *self.plain_until.lock() = Some(Instant::now() + EDNS_REJECTED_FOR);
        }
        Ok(reply)
    }
}
