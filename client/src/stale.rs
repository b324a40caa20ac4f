//! The last answers of the cluster, for the time when the tunnel is down.
//!
//! Bounded, in memory, for one session. Only positive answers are kept, and given only while the
//! manager is out of reach. What the route table knows better is not repeated. `now` is an argument:
//! time asleep counts.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use kubebridge_dns::message::{self, Query};
use kubebridge_dns::name::{Name, RecordType, ResponseCode};
use kubebridge_proto::routes::ServiceKind;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::routes::RouteTable;

/// The oldest answer that is given: long enough for a restart of anything, short enough that what
/// an address stands for has hardly changed (design §6).
pub const OLDEST: Duration = Duration::from_secs(600);
/// Answers kept: more names than a developer's programs use at a time.
const ENTRIES: usize = 1024;
/// The longest answer kept: with [`ENTRIES`] of them, 4 MiB.
const LENGTH: usize = 4096;

/// What makes two questions the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Question {
    name: Name,
    rtype: u16,
    class: u16,
    has_edns: bool,
    dnssec_ok: bool,
    checking_disabled: bool,
}

#[derive(Debug)]
struct Kept {
    reply: Vec<u8>,
    at: Instant,
}

/// The answers kept.
#[derive(Debug, Default)]
pub struct StaleAnswers {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    kept: BTreeMap<Question, Kept>,
    given: u64,
}

/// A Service that a name stands for, as far as names tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceName {
    /// The namespace.
    pub namespace: String,
    /// The Service.
    pub service: String,
}

impl Question {
    fn of(query: &Query) -> Self {
        Self {
            name: query.name.clone(),
            rtype: query.rtype.0,
            class: query.class,
            has_edns: query.edns.is_some(),
            dnssec_ok: query.dnssec_ok(),
            checking_disabled: query.cd,
        }
    }
}

impl StaleAnswers {
    /// Takes an answer of the cluster down: keeps a positive one, and forgets what a negative one
    /// takes back. A failure says nothing.
    pub fn note(&self, query: &Query, reply: &[u8], now: Instant) {
        let Ok(parsed) = message::answers(reply) else {
            return;
        };
        let question = Question::of(query);
        match parsed.code {
            ResponseCode::NOERROR if !parsed.answers.is_empty() && reply.len() <= LENGTH => {
                let kept = Kept {
                    reply: reply.to_vec(),
                    at: now,
                };
                self.inner.lock().keep(question, kept);
            }
            ResponseCode::NOERROR | ResponseCode::NXDOMAIN => {
                self.inner.lock().kept.remove(&question);
            }
            _ => {}
        }
    }

    /// Answers a query by what is kept, unless that is too old or known to be wrong; with the age.
    #[must_use]
    pub fn answer(
        &self,
        query: &Query,
        service: Option<&ServiceName>,
        table: &RouteTable,
        now: Instant,
    ) -> Option<(Vec<u8>, Duration)> {
        let mut inner = self.inner.lock();
        let question = Question::of(query);
        let kept = inner.kept.get(&question)?;
        let age = now.saturating_duration_since(kept.at);
        if age > OLDEST || !is_in_line(&kept.reply, query, service, table) {
            inner.kept.remove(&question);
            return None;
        }
        let reply = message::answer_again(&kept.reply, query)?;
        inner.given += 1;
        Some((reply, age))
    }

    /// Forgets every answer, and returns how many there were.
    pub fn flush(&self) -> usize {
        std::mem::take(&mut self.inner.lock().kept).len()
    }

    /// Returns how many answers could be given now.
    #[must_use]
    pub fn kept(&self, now: Instant) -> usize {
        let fresh = |kept: &&Kept| now.saturating_duration_since(kept.at) <= OLDEST;
        self.inner.lock().kept.values().filter(fresh).count()
    }

    /// Returns how often one was given.
    #[must_use]
    pub fn given(&self) -> u64 {
        self.inner.lock().given
    }
}

impl Inner {
    fn keep(&mut self, question: Question, kept: Kept) {
        if self.kept.len() >= ENTRIES && !self.kept.contains_key(&question) {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.at);
            if let Some(oldest) = oldest.map(|(question, _)| question.clone()) {
                self.kept.remove(&oldest);
            }
        }
        self.kept.insert(question, kept);
    }
}

/// Whether the routes, which may have changed since, say nothing else.
fn is_in_line(
    reply: &[u8],
    query: &Query,
    service: Option<&ServiceName>,
    table: &RouteTable,
) -> bool {
    let Some(ServiceName { namespace, service }) = service else {
        return true;
    };
    if !table.is_known(namespace) {
        return true;
    }
    let Some(route) = table.service(namespace, service) else {
        return false;
    };
    let is_address = query.rtype == RecordType::A || query.rtype == RecordType::AAAA;
    match route.kind {
        ServiceKind::ClusterIp if is_address => message::answers(reply).is_ok_and(|parsed| {
            let known = |address: IpAddr| route.cluster_ips.contains(&address);
            parsed.addresses().all(known)
        }),
        ServiceKind::ClusterIp | ServiceKind::Headless | ServiceKind::ExternalName => true,
    }
}

#[cfg(test)]
mod tests;
