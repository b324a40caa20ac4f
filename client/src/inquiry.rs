//! What `kubebridge dns …` and `trace` ask a session: one question with or without its story, its
//! caches, its upstreams, and the way to a destination.
//!
//! It answers on the control socket, with plain data ([`report`]); how that looks is [`text`]'s. It
//! asks nothing of the operating system, and changes nothing but the session's own memory.

pub mod path;
pub mod report;
pub(crate) mod text;

use std::sync::Arc;

use kubebridge_dns::message::{self, Checked};
use kubebridge_dns::name::{Name, RecordType};
use kubebridge_proto::explain::Freshness;
use tokio::time::Instant;

use crate::control::calls::Calls;
use crate::local_dns::LocalDns;
use crate::probe;
use report::{
    AnswerReport, FlushReport, QueryReport, TraceReport, UpstreamReport, UpstreamsReport,
};

/// Answers what people ask about a session's names.
#[derive(Debug)]
pub struct Inquiry {
    local: Arc<LocalDns>,
    calls: Calls,
}

/// A question as it came over the control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    name: Name,
    rtype: RecordType,
}

impl Question {
    /// Reads the question.
    ///
    /// # Errors
    ///
    /// It is none; the error says what is wrong with it.
    pub fn read(name: &str, rtype: &str) -> Result<Self, String> {
        let name = name
            .parse()
            .map_err(|error| format!("`{name}` is no domain name: {error}"))?;
        let rtype = rtype
            .parse()
            .map_err(|error| format!("`{rtype}` is no record type: {error}"))?;
        Ok(Self { name, rtype })
    }
}

impl Inquiry {
    /// Asks the session's resolver, and the manager behind it.
    #[must_use]
    pub fn new(local: Arc<LocalDns>, calls: Calls) -> Self {
        Self { local, calls }
    }

    /// Answers a question and tells how the answer came about.
    ///
    /// # Errors
    ///
    /// The question is of a kind that is not resolved.
    pub async fn trace(
        &self,
        session: &str,
        question: &Question,
        freshness: Freshness,
    ) -> Result<TraceReport, String> {
        let begun = Instant::now();
        let packet = resolvable(question)?;
        let explained = self.local.explain(packet, &self.calls, freshness).await;
        let explained = explained.ok_or_else(|| not_resolved(question))?;
        Ok(TraceReport::new(
            session,
            &question.name,
            question.rtype,
            freshness,
            &explained,
            begun.elapsed(),
        ))
    }

    /// Answers a question.
    ///
    /// # Errors
    ///
    /// The question is of a kind that is not resolved.
    pub async fn query(&self, session: &str, question: &Question) -> Result<QueryReport, String> {
        let begun = Instant::now();
        let reply = self.local.answer(resolvable(question)?).await;
        Ok(QueryReport {
            session: session.to_owned(),
            name: question.name.to_string(),
            rtype: question.rtype.to_string(),
            took_micros: report::micros(begun.elapsed()),
            answer: AnswerReport::read(reply.as_deref()),
        })
    }

    /// Reports the upstreams of both ends.
    pub async fn upstreams(&self, session: &str) -> UpstreamsReport {
        let (manager, manager_error) = match self.calls.upstreams().await {
            Ok(found) => (found, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let now = Instant::now();
        let originals = self.local.originals.status();
        UpstreamsReport {
            session: session.to_owned(),
            manager: manager
                .into_iter()
                .map(UpstreamReport::of_manager)
                .collect(),
            manager_error,
            originals: originals
                .iter()
                .map(|status| UpstreamReport::of_laptop(status, now))
                .collect(),
        }
    }

    /// Forgets the answers that the session keeps.
    #[must_use]
    pub fn flush(&self, session: &str) -> FlushReport {
        FlushReport {
            session: session.to_owned(),
            forgotten: self.local.stale.flush(),
        }
    }
}

/// Makes the packet of a question that is resolved at all.
fn resolvable(question: &Question) -> Result<Vec<u8>, String> {
    let packet = probe::query(&question.name, question.rtype);
    match message::check(&packet) {
        Checked::Query(_) => Ok(packet),
        Checked::Reply(_) | Checked::Drop => Err(not_resolved(question)),
    }
}

fn not_resolved(question: &Question) -> String {
    format!("questions of type {} are never resolved", question.rtype)
}

#[cfg(test)]
mod tests;
