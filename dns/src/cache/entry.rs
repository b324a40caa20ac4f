//! One finished answer: the reply's wire form without id and OPT, and what is needed to give it to anyone.
//!
//! A hit copies the bytes, then patches id, flags, the question's spelling (owners equal to the asked
//! name point at it) and the TTLs by age, and appends our OPT record if the query had one.

use tokio::time::Instant;

use crate::access::namespace_of;
use crate::message::{
    Builder, CLASS_IN, Edns, ExtendedError, Header, Query, Record, flags, names_in, reply_flags,
};
use crate::name::{Name, ResponseCode};
use crate::rewrite::Resolution;

/// A finished answer.
#[derive(Debug)]
pub(crate) struct Entry {
    wire: Box<[u8]>,
    /// Where the TTLs lie in `wire`.
    ttl_spots: Box<[u16]>,
    code: ResponseCode,
    authoritative: bool,
    reason: Option<ExtendedError>,
    made: Instant,
    /// Seconds it is kept; 0 is for the waiters of its flight only.
    keep: u32,
    dependencies: Dependencies,
}

/// The names an answer rests on, for purging and for access.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dependencies {
    /// Every candidate that was or could have been asked.
    pub(crate) asked: Box<[Name]>,
    /// Names in the cluster's namespaces that the answer itself shows.
    pub(crate) shown: Box<[Name]>,
}

impl Dependencies {
    /// Collects them; names of the answer count when they lie in a namespace of the cluster.
    pub(crate) fn new(
        asked: impl Iterator<Item = Name>,
        answer: &[Record],
        cluster_domain: &Name,
    ) -> Self {
        let owners = answer.iter().map(|record| record.owner.clone());
        let targets = answer
            .iter()
            .flat_map(|record| names_in(record.rtype, &record.data));
        let mut shown: Vec<Name> = owners
            .chain(targets)
            .filter(|name| namespace_of(name, cluster_domain).is_some())
            .collect();
        shown.sort_unstable();
        shown.dedup();
        Self {
            asked: asked.collect(),
            shown: shown.into(),
        }
    }

    /// Says whether one of them is `name` or lies below it.
    pub(crate) fn include(&self, name: &Name) -> bool {
        self.asked
            .iter()
            .chain(&self.shown)
            .any(|dependency| dependency.ends_with(name))
    }

    fn size(&self) -> usize {
        let names = self.asked.iter().chain(&self.shown);
        names
            .map(|name| name.as_wire().len() + 2 * size_of::<Name>())
            .sum()
    }
}

impl Entry {
    /// Finishes an answer; one that outgrew a DNS message becomes a failure.
    pub(crate) fn new(
        query: &Query,
        resolution: &Resolution,
        dependencies: Dependencies,
        now: Instant,
    ) -> Self {
        let mut builder = Builder::new(&query.name, query.rtype, CLASS_IN);
        resolution
            .answer
            .iter()
            .for_each(|record| builder.answer(record));
        resolution
            .authority
            .iter()
            .for_each(|record| builder.authority(record));
        match builder.finish() {
            Some(built) => Self {
                wire: built.wire.into(),
                ttl_spots: built.ttl_spots.into(),
                code: resolution.code,
                authoritative: resolution.authoritative,
                reason: resolution.reason,
                made: now,
                keep: resolution.keep,
                dependencies,
            },
            None => Self::new(query, &Resolution::failure(true), dependencies, now),
        }
    }

    /// Gives the answer to an asker.
    pub(crate) fn reply(&self, query: &Query, now: Instant) -> Vec<u8> {
        let mut reply = Vec::with_capacity(self.wire.len() + Edns::LENGTH + ExtendedError::LENGTH);
        reply.extend_from_slice(&self.wire);
        let counts = Header::read(&reply).map_or([1, 0, 0, 0], |header| header.counts);
        let own = if self.authoritative { flags::AA } else { 0 };
        let mut header = Header {
            id: query.id,
            flags: reply_flags(query, self.code) | own,
            counts,
        };
        let spelling = Header::LENGTH..Header::LENGTH + query.name.as_wire().len();
        reply[spelling].copy_from_slice(query.name.as_wire());
        let age = self.age(now);
        for spot in &self.ttl_spots {
            let spot = usize::from(*spot);
            if let Some(ttl) = reply[spot..].first_chunk_mut() {
                *ttl = u32::from_be_bytes(*ttl).saturating_sub(age).to_be_bytes();
            }
        }
        if query.edns.is_some() {
            Edns::ours(query.dnssec_ok()).write_saying(&mut reply, self.code, self.reason);
            header.counts[3] += 1;
        }
        header.overwrite(&mut reply);
        reply
    }

    pub(crate) fn is_fresh(&self, now: Instant) -> bool {
        self.age(now) < self.keep
    }

    /// Says whether it may be given to those who waited while it was made.
    pub(crate) fn serves_waiters(&self, now: Instant) -> bool {
        self.keep == 0 || self.is_fresh(now)
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.keep > 0
    }

    /// Says whether it is a failure that is kept for its second.
    pub(crate) fn is_failure(&self) -> bool {
        self.code == ResponseCode::SERVFAIL && self.is_kept()
    }

    pub(crate) fn made(&self) -> Instant {
        self.made
    }

    pub(crate) fn do_not_keep(&mut self) {
        self.keep = 0;
    }

    pub(crate) fn dependencies(&self) -> &Dependencies {
        &self.dependencies
    }

    pub(crate) fn size(&self) -> usize {
        self.wire.len()
            + self.ttl_spots.len() * size_of::<u16>()
            + self.dependencies.size()
            + size_of::<Self>()
    }

    /// Whole seconds since it was made.
    fn age(&self, now: Instant) -> u32 {
        u32::try_from(now.saturating_duration_since(self.made).as_secs()).unwrap_or(u32::MAX)
    }
}
