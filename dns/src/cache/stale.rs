//! Answers whose time is over, given again while no upstream replies (RFC 8767). Pure.
//!
//! When that is allowed is the resolver's business; here is only what such an answer looks like.

use std::time::Duration;

use tokio::time::Instant;

use super::Entry;
use crate::message::ExtendedError;
use crate::name::ResponseCode;

/// The lifetime a stale answer is given with, and for how long the upstreams are not asked again
/// (RFC 8767 §5 asks for at least 30 s both times).
const STALE_TTL: u32 = 30;

impl Entry {
    /// Says whether it may be given again for so long after its time: an answer, not a failure.
    pub(crate) fn is_usable_stale(&self, longest: Duration, now: Instant) -> bool {
        self.is_answer() && now.saturating_duration_since(self.expiry()) < longest
    }

    /// Makes it an answer again for half a minute, from now on.
    pub(crate) fn revived(&self, now: Instant) -> Self {
        let mut wire = self.wire.clone();
        for spot in &self.ttl_spots {
            if let Some(ttl) = wire[usize::from(*spot)..].first_chunk_mut() {
                *ttl = STALE_TTL.to_be_bytes();
            }
        }
        let reason = match self.code {
            ResponseCode::NXDOMAIN => ExtendedError::STALE_NXDOMAIN,
            _ => ExtendedError::STALE,
        };
        Self {
            wire,
            ttl_spots: self.ttl_spots.clone(),
            dependencies: self.dependencies.clone(),
            reason: Some(reason),
            made: now,
            keep: STALE_TTL,
            expired: Some(self.expiry()),
            hits: 0.into(),
            was_due: false.into(),
            question_end: self.question_end,
            asker: self.asker,
            code: self.code,
            authoritative: self.authoritative,
        }
    }

    /// Says whether it is an answer from before its expiry, given again.
    pub(crate) fn is_stale(&self) -> bool {
        self.expired.is_some()
    }

    /// When the answer that an upstream gave ended.
    fn expiry(&self) -> Instant {
        let own = || self.made + Duration::from_secs(self.keep.into());
        self.expired.unwrap_or_else(own)
    }
}
