//! The winning finding put back under the asked name, and how long the result may be kept. Pure.
//!
//! The owner equal to the winning candidate becomes the asked name; the rest of a CNAME chain keeps
//! its owners. Signatures of renamed sets are dropped, since they no longer fit.

use crate::interpret::{Finding, NEGATIVE_CAP};
use crate::message::{CLASS_IN, ExtendedError, Record};
use crate::name::{Name, RecordType, ResponseCode};
use crate::search::Candidate;
use crate::settle::Verdict;

#[cfg(test)]
mod tests;

/// The most seconds that data is kept, so that no upstream's mistake lasts longer.
const POSITIVE_CAP: u32 = 30 * 60;
/// What a better rank counts for whose reply named no lifetime: long enough to spare the upstreams, short for a user who waits.
const UNNAMED_NEGATIVE: u32 = 5;
/// How long a failure is remembered (RFC 9520 §3.2 asks for at least a second).
const FAILURE_TTL: u32 = 1;

/// A finished answer, before it becomes wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resolution {
    pub(crate) code: ResponseCode,
    /// Whether every record is our own (AA).
    pub(crate) authoritative: bool,
    pub(crate) answer: Vec<Record>,
    pub(crate) authority: Vec<Record>,
    /// How many seconds it is kept; none is for those who wait for it now.
    pub(crate) keep: u32,
    /// Why the code is what it is, for askers with EDNS.
    pub(crate) reason: Option<ExtendedError>,
}

impl Resolution {
    /// There is no trustworthy answer; remembered for a second unless the failure is of our own making.
    pub(crate) fn failure(remembered: bool) -> Self {
        let keep = if remembered { FAILURE_TTL } else { 0 };
        Self {
            keep,
            ..Self::empty(ResponseCode::SERVFAIL)
        }
    }

    /// A reply without records that is never kept.
    pub(crate) fn empty(code: ResponseCode) -> Self {
        Self {
            code,
            authoritative: false,
            answer: vec![],
            authority: vec![],
            keep: 0,
            reason: None,
        }
    }

    /// A negative of our own.
    pub(crate) fn own_negative(code: ResponseCode, asked: &Name, ttl: u32) -> Self {
        Self {
            authoritative: true,
            authority: vec![synthetic_soa(asked, ttl)],
            keep: ttl,
            ..Self::empty(code)
        }
    }
}

/// Makes the answer out of data.
pub(crate) fn data(
    asked: &Name,
    candidate: &Candidate,
    finding: Finding,
    verdict: &Verdict,
) -> Resolution {
    let shortest = finding
        .answer
        .iter()
        .map(|record| record.ttl)
        .min()
        .unwrap_or(0);
    let cap = rank_cap(verdict);
    let mut answer = renamed(asked, candidate, finding.answer);
    for record in &mut answer {
        record.ttl = record.ttl.min(cap);
    }
    let keep = if verdict.passed_over {
        0
    } else {
        shortest.min(cap)
    };
    let authoritative = finding.local;
    if answer.is_empty() {
        // All that was found does not fit the asked name: to the asker that is "no data".
        let keep = keep.min(NEGATIVE_CAP);
        return Resolution {
            keep,
            authority: vec![synthetic_soa(asked, keep)],
            ..Resolution::empty(ResponseCode::NOERROR)
        };
    }
    Resolution {
        authoritative,
        answer,
        keep,
        ..Resolution::empty(ResponseCode::NOERROR)
    }
}

/// Makes the answer out of a candidate that exists without data of the asked type.
pub(crate) fn no_data(
    asked: &Name,
    candidate: &Candidate,
    finding: Finding,
    ttl: Option<u32>,
    verdict: &Verdict,
) -> Resolution {
    // A better name created later must be seen here as well.
    let ttl = ttl.map(|ttl| ttl.min(rank_cap(verdict)));
    let keep = if verdict.passed_over { None } else { ttl };
    negative(asked, candidate, finding, ResponseCode::NOERROR, keep)
}

/// Makes the answer when no candidate exists; `finding` is the last candidate's.
pub(crate) fn no_name(
    asked: &Name,
    candidates: &[Candidate],
    last: usize,
    finding: Finding,
    ttl: Option<u32>,
) -> Resolution {
    let candidate = &candidates[last];
    if candidates.len() == 1 && !candidate.expanded {
        return negative(asked, candidate, finding, ResponseCode::NXDOMAIN, ttl);
    }
    let soa = synthetic_soa(asked, ttl.unwrap_or(0));
    Resolution {
        authority: vec![soa],
        keep: ttl.unwrap_or(0),
        ..Resolution::empty(ResponseCode::NXDOMAIN)
    }
}

fn negative(
    asked: &Name,
    candidate: &Candidate,
    finding: Finding,
    code: ResponseCode,
    ttl: Option<u32>,
) -> Resolution {
    let lifetime = ttl.unwrap_or(0);
    let mut answer = renamed(asked, candidate, finding.answer);
    for record in &mut answer {
        record.ttl = record.ttl.min(POSITIVE_CAP);
    }
    // With a chain the zone of its end speaks; without one, and expanded, nobody may: the zone asked was not the asker's.
    let own_zone = !candidate.expanded || !answer.is_empty();
    let mut authority = if own_zone { finding.authority } else { vec![] };
    for record in &mut authority {
        record.ttl = record.ttl.min(lifetime);
    }
    if authority.is_empty() && (candidate.expanded || finding.local) {
        authority.push(synthetic_soa(asked, lifetime));
    }
    let shortest = answer
        .iter()
        .map(|record| record.ttl)
        .min()
        .unwrap_or(lifetime);
    Resolution {
        code,
        authoritative: finding.local,
        answer,
        authority,
        keep: lifetime.min(shortest),
        reason: None,
    }
}

/// How long an answer of this rank may be kept because of the ranks before it.
fn rank_cap(verdict: &Verdict) -> u32 {
    let better = verdict
        .better
        .iter()
        .map(|ttl| ttl.map_or(UNNAMED_NEGATIVE, |ttl| ttl.min(NEGATIVE_CAP)));
    let failed = verdict.passed_over.then_some(UNNAMED_NEGATIVE);
    better.chain(failed).min().unwrap_or(POSITIVE_CAP)
}

fn renamed(asked: &Name, candidate: &Candidate, records: Vec<Record>) -> Vec<Record> {
    if !candidate.expanded {
        return records;
    }
    if records.iter().any(|record| is_alias_to(record, asked)) {
        return straightened(asked, records);
    }
    let is_renamed = |record: &Record| record.owner == candidate.name;
    let fits = |record: &Record| record.rtype != RecordType::RRSIG || !is_renamed(record);
    let rename = |record: Record| {
        if is_renamed(&record) {
            Record {
                owner: asked.clone(),
                ..record
            }
        } else {
            record
        }
    };
    let is_proof_of_rename = |record: &Record| {
        record.rtype == RecordType::DNAME && candidate.name.ends_with(&record.owner)
    };
    records
        .into_iter()
        .filter(|record| fits(record) && !is_proof_of_rename(record))
        .map(rename)
        .collect()
}

fn is_alias_to(record: &Record, target: &Name) -> bool {
    record.rtype == RecordType::CNAME
        && Name::from_wire(&record.data).is_ok_and(|name| name == *target)
}

/// A chain that leads through the asked name itself would become a circle: only its end is kept.
fn straightened(asked: &Name, records: Vec<Record>) -> Vec<Record> {
    let is_link = |record: &Record| {
        matches!(
            record.rtype,
            RecordType::CNAME | RecordType::DNAME | RecordType::RRSIG
        )
    };
    let owned = |record: Record| Record {
        owner: asked.clone(),
        ..record
    };
    records
        .into_iter()
        .filter(|record| !is_link(record))
        .map(owned)
        .collect()
}

/// Makes the SOA of a negative that no zone of its own stands for; it is owned by the asked name.
pub(crate) fn synthetic_soa(asked: &Name, ttl: u32) -> Record {
    // MNAME and RNAME are the root, SERIAL 1, then REFRESH, RETRY, EXPIRE and MINIMUM.
    let mut data = vec![0, 0];
    for number in [1, ttl, ttl, ttl, ttl] {
        data.extend_from_slice(&number.to_be_bytes());
    }
    Record {
        owner: asked.clone(),
        rtype: RecordType::SOA,
        class: CLASS_IN,
        ttl,
        data,
    }
}
