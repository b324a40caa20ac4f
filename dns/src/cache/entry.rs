//! One finished answer: the reply's wire form without id and OPT, and what is needed to give it to anyone.
//!
//! A hit copies the bytes, then patches id, flags, the question's spelling (owners equal to the asked
//! name point at it) and the TTLs by age, and appends our OPT record if the query had one.

use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use tokio::time::Instant;

use super::key::AskerPart;
use super::{Dependencies, Key};
use crate::explain::CacheState;
use crate::message::{
    Builder, CLASS_IN, Edns, ExtendedError, Header, PlainQuery, Query, flags, reply_flags,
};
use crate::name::ResponseCode;
use crate::rewrite::Resolution;

/// A finished answer.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) wire: Box<[u8]>,
    /// Where the question ends.
    pub(super) question_end: u16,
    /// The part of its key that `wire` does not hold.
    pub(super) asker: AskerPart,
    /// Where the TTLs lie in `wire`.
    pub(super) ttl_spots: Box<[u16]>,
    pub(super) code: ResponseCode,
    pub(super) authoritative: bool,
    pub(super) reason: Option<ExtendedError>,
    pub(super) made: Instant,
    /// Seconds it is kept; 0 is for the waiters of its flight only.
    pub(super) keep: u32,
    /// When its time was over, if it is given again for want of a newer one.
    pub(super) expired: Option<Instant>,
    pub(super) dependencies: Dependencies,
    /// Hits, counted as far as a renewal needs to know.
    pub(super) hits: AtomicU32,
    /// Whether a renewal was begun.
    pub(super) was_due: AtomicBool,
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
                question_end: question_end(query),
                asker: AskerPart::default(),
                ttl_spots: built.ttl_spots.into(),
                code: resolution.code,
                authoritative: resolution.authoritative,
                reason: resolution.reason,
                made: now,
                keep: resolution.keep,
                expired: None,
                dependencies,
                hits: 0.into(),
                was_due: false.into(),
            },
            None => Self::new(query, &Resolution::failure(true), dependencies, now),
        }
    }

    /// Gives the answer to an asker.
    pub(crate) fn reply(&self, query: &Query, now: Instant) -> Vec<u8> {
        let mut reply = Vec::with_capacity(self.reply_length(query.edns.is_some()));
        self.write(PlainQuery::from(query), now, &mut reply);
        reply
    }

    /// Writes the reply to an asker in the place of what the buffer holds: one copy, then what
    /// differs between askers.
    pub(crate) fn write(&self, query: PlainQuery<'_>, now: Instant, reply: &mut Vec<u8>) {
        reply.clear();
        reply.extend_from_slice(&self.wire);
        let counts = Header::read(reply).map_or([1, 0, 0, 0], |header| header.counts);
        let own = if self.authoritative { flags::AA } else { 0 };
        let mut header = Header {
            id: query.id,
            flags: reply_flags(query, self.code) | own,
            counts,
        };
        let name = query.name.as_wire();
        reply[Header::LENGTH..Header::LENGTH + name.len()].copy_from_slice(name);
        let age = self.age(now);
        for spot in &self.ttl_spots {
            let spot = usize::from(*spot);
            if let Some(ttl) = reply[spot..].first_chunk_mut() {
                *ttl = u32::from_be_bytes(*ttl).saturating_sub(age).to_be_bytes();
            }
        }
        if query.edns.is_some() {
            Edns::ours(query.dnssec_ok()).write_saying(reply, self.code, self.reason);
            header.counts[3] += 1;
        }
        header.overwrite(reply);
    }

    /// The most octets a reply has.
    pub(crate) fn reply_length(&self, edns: bool) -> usize {
        let opt = if edns {
            Edns::LENGTH + ExtendedError::LENGTH
        } else {
            0
        };
        self.wire.len() + opt
    }

    /// Takes note of the key it is kept under.
    pub(crate) fn keep_under(&mut self, key: &Key) {
        self.asker = key.asker();
    }

    /// Returns the key it is kept under.
    pub(crate) fn key(&self) -> Key {
        let question = Header::LENGTH..usize::from(self.question_end);
        Key::of_question(&self.wire[question], self.asker)
    }

    /// Tells how a hit on it is.
    pub(crate) fn state(&self, now: Instant) -> CacheState {
        let age = now.saturating_duration_since(self.made);
        if self.code == ResponseCode::SERVFAIL {
            return CacheState::KeptFailure { age };
        }
        if let Some(expired) = self.expired {
            let over = now.saturating_duration_since(expired);
            return CacheState::Stale { over };
        }
        let left = Duration::from_secs(u64::from(self.keep)).saturating_sub(age);
        CacheState::Hit { age, left }
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

    /// Says whether it is data or a negative that may be kept, and no failure.
    pub(crate) fn is_answer(&self) -> bool {
        let known = matches!(self.code, ResponseCode::NOERROR | ResponseCode::NXDOMAIN);
        known && self.is_kept()
    }

    /// Says whether it is a failure that is kept for its second; one of our own making is not.
    pub(crate) fn is_failure(&self) -> bool {
        self.is_servfail() && self.is_kept()
    }

    /// Says whether it is a failure of any kind.
    pub(crate) fn is_servfail(&self) -> bool {
        self.code == ResponseCode::SERVFAIL
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

/// A name is at most 255 octets, so the sum fits by far.
fn question_end(query: &Query) -> u16 {
    let end = Header::LENGTH + query.name.as_wire().len() + 4;
    u16::try_from(end).unwrap_or(u16::MAX)
}
