//! Answers that are in the cache, given where the query was received: no task, no copy of the
//! query, no allocation.
//!
//! Says no to whatever is not the plainest of hits; [`Resolver::answer`] gives the same answer to
//! those and to all others.

use std::sync::Arc;

use tokio::time::Instant;

use super::Resolver;
use crate::access::{may_see, may_send_bare};
use crate::cache::{Key, Wants};
use crate::message::{CLASS_IN, PlainQuery, payload_of};
use crate::search::never_expanded;
use crate::view::View;

impl Resolver {
    /// Writes the reply to a packet from a datagram, if it is in the cache and fits one; tells whether it did.
    pub fn answer_at_hand(&self, packet: &[u8], view: &Arc<View>, reply: &mut Vec<u8>) -> bool {
        let Some(query) = PlainQuery::read(packet) else {
            return false;
        };
        // Special names are never in the cache, nor is what an asker may not have.
        let shared = never_expanded(&query.name, view);
        if !may_see(view, &query.name) || shared && !may_send_bare(view, &query.name) {
            return false;
        }
        self.engine.notice_changes();
        let wants = Wants {
            dnssec_ok: query.dnssec_ok(),
            checking_disabled: query.cd,
            view: (!shared).then_some(view.id),
        };
        let key = Key::of_wire(query.name.as_wire(), query.rtype, CLASS_IN, wants);
        let now = Instant::now();
        let Some(entry) = self.engine.cache.get(&key, now) else {
            return false;
        };
        let fits = entry.reply_length(query.edns.is_some()) <= payload_of(query.edns).into();
        let mut shown = entry.dependencies().shown.iter();
        if !fits || !shown.all(|name| may_see(view, name)) {
            return false;
        }
        self.engine.counts.looked_up(true);
        self.renew_if_due(&entry, now, || (key, query.to_query(), Arc::clone(view)));
        entry.write(query, now, reply);
        true
    }
}
