//! What a reply, or a verdict of our own records, says about one candidate.
//!
//! Only the CNAME chain from the candidate and the asked type at its end are taken over; everything
//! else in a reply (extras, other names, the upstream's OPT) is dropped here (D26). Pure.

use std::net::IpAddr;

use crate::message::{CLASS_IN, Record, Reply, flags};
use crate::name::{Name, RecordType, ResponseCode};
use crate::records::{LOCAL_TTL, Local};
use crate::settle::Outcome;
use crate::upstream::ExchangeError;

#[cfg(test)]
mod tests;

/// The octets of SOA data behind its two names.
const SOA_NUMBERS: usize = 20;
/// The most seconds that NXDOMAIN or "no data" is kept.
pub(crate) const NEGATIVE_CAP: u32 = 30;

/// What one source found out about a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) outcome: Outcome,
    /// The CNAME chain from the candidate and the data at its end.
    pub(crate) answer: Vec<Record>,
    /// The SOA of a negative, and its proofs when DNSSEC records are wanted.
    pub(crate) authority: Vec<Record>,
    /// Whether every record is our own.
    pub(crate) local: bool,
    /// Whether a failure may be kept for its second.
    pub(crate) keeps_failure: bool,
    /// Why there was no reply, if that is the failure.
    pub(crate) no_reply: Option<NoReply>,
}

/// What was asked, apart from the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub(crate) rtype: RecordType,
    pub(crate) dnssec_ok: bool,
    pub(crate) checking_disabled: bool,
}

/// Why there is no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoReply {
    /// Nothing came in time.
    Silence,
    /// The operating system or the server's connection failed.
    Network,
    /// What came was no DNS message.
    Other,
    /// The question leads back to us.
    Loop,
    /// We had no room to ask: nothing is known of the upstream.
    NoRoom,
}

impl Finding {
    pub(crate) fn failed() -> Self {
        Self {
            outcome: Outcome::Failed,
            answer: vec![],
            authority: vec![],
            local: false,
            keeps_failure: true,
            no_reply: None,
        }
    }

    /// An upstream that gave no reply.
    pub(crate) fn unanswered(reason: NoReply) -> Self {
        Self {
            no_reply: Some(reason),
            // Neither is the name's fault, and both may be over in a moment.
            keeps_failure: !matches!(reason, NoReply::Loop | NoReply::NoRoom),
            ..Self::failed()
        }
    }

    fn local(outcome: Outcome, answer: Vec<Record>) -> Self {
        Self {
            outcome,
            answer,
            local: true,
            ..Self::failed()
        }
    }

    /// Puts an alias of ours in front of what was found about its target.
    pub(crate) fn behind_alias(mut self, alias: &Name, target: &Name) -> Self {
        if self.outcome != Outcome::Failed {
            self.answer.insert(
                0,
                own_record(alias, RecordType::CNAME, target.as_wire().to_vec()),
            );
        }
        self
    }

    /// Says whether an alias in the answer leads to one of these names.
    pub(crate) fn leads_to_any(&self, names: &[Name]) -> bool {
        let aliases = self
            .answer
            .iter()
            .filter(|record| record.rtype == RecordType::CNAME);
        let mut targets = aliases.filter_map(|alias| Name::from_wire(&alias.data).ok());
        targets.any(|target| names.contains(&target))
    }

    /// Reads an upstream's reply about `candidate`.
    pub(crate) fn of_reply(packet: &[u8], candidate: &Name, kind: Kind) -> Self {
        let Ok(reply) = Reply::read(packet) else {
            return Self::failed();
        };
        let answers_it = |(name, rtype, class): &(Name, RecordType, u16)| {
            name == candidate && *rtype == kind.rtype && *class == CLASS_IN
        };
        let is_reply = reply.header.has(flags::QR) && !reply.header.has(flags::TC);
        let known_code = matches!(reply.code, ResponseCode::NOERROR | ResponseCode::NXDOMAIN);
        if !is_reply || !known_code || !reply.question.as_ref().is_some_and(answers_it) {
            return Self::failed();
        }
        match chain(&reply.answer, candidate, kind) {
            None => Self::unanswered(NoReply::Loop),
            Some(chain) if chain.has_data && reply.code == ResponseCode::NOERROR => Self {
                outcome: Outcome::Data,
                answer: chain.records,
                ..Self::failed()
            },
            Some(_) if is_lame(&reply) => Self::failed(),
            Some(chain) => negative(reply, chain, kind),
        }
    }
}

impl From<&ExchangeError> for NoReply {
    fn from(error: &ExchangeError) -> Self {
        match error {
            ExchangeError::Timeout => Self::Silence,
            ExchangeError::Io { .. }
            | ExchangeError::Closed
            | ExchangeError::Tls { .. }
            | ExchangeError::Proxy { .. } => Self::Network,
            ExchangeError::Malformed(_) | ExchangeError::HttpStatus(_) => Self::Other,
            ExchangeError::Overloaded => Self::NoRoom,
            ExchangeError::Looped => Self::Loop,
        }
    }
}

/// What our own records make of a candidate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// They settle it.
    Finding(Finding),
    /// It is an alias of this name.
    Follow(Name),
    /// It is not theirs.
    AskUpstreams,
}

impl Told {
    /// Reads a verdict about `candidate`.
    pub(crate) fn by(verdict: Local, candidate: &Name, rtype: RecordType) -> Self {
        let records = |rtype, data: Vec<Vec<u8>>| -> Vec<Record> {
            data.into_iter()
                .map(|data| own_record(candidate, rtype, data))
                .collect()
        };
        let (outcome, answer) = match verdict {
            Local::NotMine => return Self::AskUpstreams,
            Local::Alias(target) if rtype == RecordType::CNAME => (
                Outcome::Data,
                records(rtype, vec![target.as_wire().to_vec()]),
            ),
            Local::Alias(target) => return Self::Follow(target),
            Local::NoData => (Outcome::NoData(Some(LOCAL_TTL)), vec![]),
            Local::NxDomain => (Outcome::NxDomain(Some(LOCAL_TTL)), vec![]),
            Local::Addresses(addresses) => {
                let data = addresses
                    .into_iter()
                    .filter_map(|address| address_data(address, rtype));
                (Outcome::Data, records(rtype, data.collect()))
            }
            Local::Pointer(names) => {
                let data = names.iter().map(|name| name.as_wire().to_vec());
                (Outcome::Data, records(RecordType::PTR, data.collect()))
            }
        };
        if outcome == Outcome::Data && answer.is_empty() {
            return Self::Finding(Finding::local(Outcome::NoData(Some(LOCAL_TTL)), vec![]));
        }
        Self::Finding(Finding::local(outcome, answer))
    }
}

fn own_record(owner: &Name, rtype: RecordType, data: Vec<u8>) -> Record {
    Record {
        owner: owner.clone(),
        rtype,
        class: CLASS_IN,
        ttl: LOCAL_TTL,
        data,
    }
}

fn address_data(address: IpAddr, rtype: RecordType) -> Option<Vec<u8>> {
    match address {
        IpAddr::V4(address) if rtype == RecordType::A => Some(address.octets().to_vec()),
        IpAddr::V6(address) if rtype == RecordType::AAAA => Some(address.octets().to_vec()),
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}

struct Chain {
    records: Vec<Record>,
    end: Name,
    has_data: bool,
}

/// Follows the CNAMEs from the candidate; `None` when they go round in a circle.
fn chain(answer: &[Record], candidate: &Name, kind: Kind) -> Option<Chain> {
    let mut records = Vec::new();
    let mut names = vec![candidate.clone()];
    loop {
        let at = names.last()?.clone();
        let here = || {
            answer
                .iter()
                .filter(|record| record.owner == at && record.class == CLASS_IN)
        };
        let signatures = |covered: RecordType| {
            let wanted = kind.dnssec_ok && kind.rtype != RecordType::RRSIG;
            here()
                .filter(move |record| wanted && covers(record, covered))
                .cloned()
        };
        let before = records.len();
        records.extend(here().filter(|record| record.rtype == kind.rtype).cloned());
        if records.len() > before {
            records.extend(signatures(kind.rtype));
            return Some(Chain {
                records,
                end: at,
                has_data: true,
            });
        }
        let alias = here().find(|record| record.rtype == RecordType::CNAME);
        let Some(alias) = alias else {
            return Some(Chain {
                records,
                end: at,
                has_data: false,
            });
        };
        let target = Name::from_wire(&alias.data).ok()?;
        // A synthesised alias is proven by the DNAME above it (RFC 6672), which signature checkers need.
        let is_its_dname =
            |record: &&Record| record.rtype == RecordType::DNAME && at.ends_with(&record.owner);
        records.extend(
            answer
                .iter()
                .filter(|record| kind.dnssec_ok && is_its_dname(record))
                .cloned(),
        );
        records.push(alias.clone());
        records.extend(signatures(RecordType::CNAME));
        if names.contains(&target) {
            return None;
        }
        names.push(target);
    }
}

fn covers(record: &Record, rtype: RecordType) -> bool {
    record.rtype == RecordType::RRSIG && record.data.first_chunk() == Some(&rtype.0.to_be_bytes())
}

/// A reply without records that points to other servers comes from a server that does not resolve for us.
fn is_lame(reply: &Reply) -> bool {
    let refers = reply
        .authority
        .iter()
        .any(|record| record.rtype == RecordType::NS);
    let has_soa = reply
        .authority
        .iter()
        .any(|record| record.rtype == RecordType::SOA);
    let recursive = reply.header.has(flags::RA) || reply.header.has(flags::AA);
    reply.code == ResponseCode::NOERROR
        && refers
        && !has_soa
        && !recursive
        && reply.answer.is_empty()
}

fn negative(reply: Reply, chain: Chain, kind: Kind) -> Finding {
    let records = if chain.has_data {
        vec![]
    } else {
        chain.records
    };
    let in_zone = |record: &Record| chain.end.ends_with(&record.owner) && record.class == CLASS_IN;
    let is_soa = |record: &Record| record.rtype == RecordType::SOA && in_zone(record);
    let soa = reply
        .authority
        .iter()
        .find(|record| is_soa(record))
        .cloned();
    let ttl = soa.as_ref().and_then(negative_ttl);
    let is_proof = |record: &Record| {
        matches!(
            record.rtype,
            RecordType::NSEC | RecordType::NSEC3 | RecordType::RRSIG
        ) && record.class == CLASS_IN
    };
    let proofs = reply
        .authority
        .iter()
        .filter(|record| kind.dnssec_ok && soa.is_some() && is_proof(record))
        .cloned();
    let authority = soa.iter().cloned().chain(proofs).collect();
    let outcome = match reply.code {
        ResponseCode::NXDOMAIN => Outcome::NxDomain(ttl),
        _ => Outcome::NoData(ttl),
    };
    Finding {
        outcome,
        answer: records,
        authority,
        ..Finding::failed()
    }
}

/// How long a negative may be kept: the smaller of the SOA's TTL and MINIMUM (RFC 2308 §5), capped.
fn negative_ttl(soa: &Record) -> Option<u32> {
    let numbers = soa
        .data
        .len()
        .checked_sub(SOA_NUMBERS)
        .filter(|names| *names >= 2)?;
    let minimum: &[u8; 4] = soa.data[numbers + 16..].first_chunk()?;
    Some(soa.ttl.min(u32::from_be_bytes(*minimum)).min(NEGATIVE_CAP))
}
