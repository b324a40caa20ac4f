//! One resolution, for everyone who waits for it: candidates, fan-out, and the answer made of what
//! that found.
//!
//! Who waits, and whether there was an answer already, is decided before.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use tokio::time::Instant;
use tracing::trace;

use super::asked::Asked;
use super::{Engine, PROBE_TOTAL, explained};
use crate::cache::{Dependencies, Entry};
use crate::explain::{Event, Recording, Verdict, note};
use crate::fanout::{Fanout, Outcomes};
use crate::interpret::Kind;
use crate::loops::Sending;
use crate::message::{Origin, Query};
use crate::name::{Name, RecordType, ResponseCode};
use crate::rewrite::{Resolution, data, no_data, no_name};
use crate::search::{Candidate, alone, candidates};
use crate::settle::Settled;
use crate::upstreams::Member;
use crate::view::View;

impl Engine {
    /// Resolves a query for everyone who waits for it.
    pub(super) async fn lead(&self, asked: &Asked) -> Entry {
        let Asked {
            query,
            view,
            origin,
            recording,
            ..
        } = asked;
        let origin = *origin;
        let candidates = match origin {
            // Whoever sent it here has expanded it.
            Some(_) => alone(&query.name, view),
            None => candidates(&query.name, view),
        };
        let (mut resolution, aliases) = match self.flights.try_acquire() {
            // Shed: not remembered, the next query may find room.
            Err(_) => {
                self.counts.shed();
                note(recording, || Event::Shed);
                (Resolution::failure(false), vec![])
            }
            Ok(_) if candidates.is_empty() => {
                note(recording, || Event::Verdict(Verdict::NothingToTry));
                (Resolution::empty(ResponseCode::REFUSED), vec![])
            }
            Ok(_flight) => {
                let (members, before) = (self.upstreams.members(), self.upstreams.epoch());
                let fanout = self.fanout(query, view, members, origin, recording);
                let mut outcomes = fanout.run(&candidates).await;
                // A failure from before an upstream came back tells nothing about now.
                outcomes.keeps_failure &= self.upstreams.epoch() == before;
                let aliases = outcomes.aliases.clone();
                let passed_over = outcomes.verdict.passed_over;
                explained::note_outcomes(recording, &query.name, &candidates, &outcomes);
                let resolution = conclude(&query.name, &candidates, outcomes);
                explained::note_kept(recording, &resolution, passed_over);
                (resolution, aliases)
            }
        };
        if origin.is_some_and(|origin| origin.probe) {
            resolution.keep = 0;
        }
        trace!(name = %query.name, rtype = %query.rtype, code = %resolution.code, keep = resolution.keep, "resolved");
        finish(query, view, candidates, aliases, &resolution)
    }

    /// Forgets what was kept under upstreams that have changed since (K6, K12).
    pub(super) fn notice_changes(&self) {
        let now = self.upstreams.epoch();
        if self.noticed.replaced.is_news(now.replaced) {
            self.cache.flush();
        }
        if self.noticed.recoveries.is_news(now.recoveries) {
            self.cache.forget_failures(Instant::now());
        }
    }

    /// Answers a query that asks for no recursion, if our own records alone can.
    pub(super) async fn local_only(&self, query: &Query, view: &View) -> Option<Entry> {
        let candidates = candidates(&query.name, view);
        let outcomes = self
            .fanout(query, view, Arc::from([]), None, &None)
            .run(&candidates)
            .await;
        let aliases = outcomes.aliases.clone();
        let resolution = conclude(&query.name, &candidates, outcomes);
        (resolution.code != ResponseCode::SERVFAIL)
            .then(|| finish(query, view, candidates, aliases, &resolution))
    }

    fn fanout(
        &self,
        query: &Query,
        view: &View,
        members: Arc<[Arc<Member>]>,
        origin: Option<Origin>,
        recording: &Recording,
    ) -> Fanout {
        let is_probe = query.name.is_root() && query.rtype == RecordType::NS;
        let total = if is_probe {
            self.total.get().min(PROBE_TOTAL)
        } else {
            self.total.get()
        };
        Fanout {
            members,
            local: Arc::clone(&self.local),
            cluster_domain: view.cluster_domain.clone(),
            kind: Kind {
                rtype: query.rtype,
                dnssec_ok: query.dnssec_ok(),
                checking_disabled: query.cd,
            },
            order: self.order,
            policy: self.policy,
            deadline: Instant::now() + total,
            spent: Arc::new(AtomicUsize::new(0)),
            sending: Sending {
                loops: Arc::clone(&self.loops),
                origin,
            },
            recording: recording.clone(),
        }
    }
}

/// Turns the verdict into an answer under the asked name.
fn conclude(asked: &Name, candidates: &[Candidate], outcomes: Outcomes) -> Resolution {
    let Outcomes {
        verdict,
        finding,
        keeps_failure,
        reason,
        ..
    } = outcomes;
    match verdict.result {
        Settled::Data(spot) => data(asked, &candidates[spot.candidate], finding, &verdict),
        Settled::NoData(spot, ttl) => {
            no_data(asked, &candidates[spot.candidate], finding, ttl, &verdict)
        }
        Settled::NxDomain(spot, ttl) => no_name(asked, candidates, spot.candidate, finding, ttl),
        Settled::Failed => Resolution {
            reason,
            ..Resolution::failure(keeps_failure)
        },
    }
}

fn finish(
    query: &Query,
    view: &View,
    candidates: Vec<Candidate>,
    aliases: Vec<Name>,
    resolution: &Resolution,
) -> Entry {
    let tried = candidates
        .into_iter()
        .map(|candidate| candidate.name)
        .filter(|name| *name != query.name);
    let asked = std::iter::once(query.name.clone())
        .chain(tried)
        .chain(aliases);
    let dependencies = Dependencies::new(asked, &resolution.answer, &view.cluster_domain);
    Entry::new(query, resolution, dependencies, Instant::now())
}
