//! Forwards queries to the servers a host had before us, in their order, and hands their replies
//! back as they are.
//!
//! No cache, no search list, no race: names that are not ours shall resolve exactly as before. What
//! is changed in a reply is what belongs to this hop alone (`forward/rework.rs`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::message::{Checked, Query, check, error_reply};
use crate::name::ResponseCode;
use crate::upstream::{OutgoingQuery, Upstream};

mod rework;

/// Asks a list of upstreams in plain order.
pub struct Forwarder {
    upstreams: Vec<Arc<dyn Upstream>>,
    attempt: Duration,
    total: Duration,
}

impl Forwarder {
    /// Asks the upstreams in this order: each for at most `attempt`, the last for what is left of
    /// `total`, which bounds the whole.
    pub fn new(upstreams: Vec<Arc<dyn Upstream>>, attempt: Duration, total: Duration) -> Self {
        Self {
            upstreams,
            attempt,
            total,
        }
    }

    /// Answers a packet from a client; `None` means to say nothing.
    ///
    /// The next upstream is asked after SERVFAIL, REFUSED, silence or an error, never after a
    /// negative answer. When none is left the answer is SERVFAIL.
    pub async fn forward(&self, packet: &[u8]) -> Option<Vec<u8>> {
        match check(packet) {
            Checked::Query(query) => Some(self.answer(&query).await),
            Checked::Reply(reply) => Some(reply),
            Checked::Drop => None,
        }
    }

    async fn answer(&self, query: &Query) -> Vec<u8> {
        // Upstreams are always asked to recurse, and this asker does not want that.
        if !query.rd {
            return error_reply(query, ResponseCode::REFUSED);
        }
        let asked = OutgoingQuery::from(query);
        let end = Instant::now() + self.total;
        for (index, upstream) in self.upstreams.iter().enumerate() {
            let now = Instant::now();
            let is_last = index + 1 == self.upstreams.len();
            let attempt_end = if is_last {
                end
            } else {
                end.min(now + self.attempt)
            };
            let spec = upstream.spec();
            match upstream.exchange(&asked, attempt_end).await {
                Ok(reply) => match rework::rework(reply, query) {
                    Ok(reply) => return reply,
                    Err(reason) => tracing::debug!(upstream = %spec, %reason, "reply passed over"),
                },
                Err(error) => tracing::debug!(upstream = %spec, %error, "upstream failed"),
            }
            if Instant::now() >= end {
                break;
            }
        }
        error_reply(query, ResponseCode::SERVFAIL)
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
        let specs = self.upstreams.iter().map(|upstream| upstream.spec());
        f.debug_list().entries(specs).finish()
    }
}

#[cfg(test)]
mod tests;
