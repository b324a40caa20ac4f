//! One resolution told step by step: the same way as any other query, with a recorder along.
//!
//! The hooks that need more than a line are here. They look on and decide nothing, but for the one
//! thing an asker may wish: that the cache is left aside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use super::asked::Asked;
use super::{Asker, Engine, Resolver};
use crate::cache::{Entry, Key};
use crate::explain::{
    CacheState, CacheUse, Event, Flight, Kept, NotKept, Recorder, Recording, Rule, Trace,
    candidate_steps, kept, note, rule, rulings,
};
use crate::fanout::Outcomes;
use crate::message::{Checked, check};
use crate::name::Name;
use crate::rewrite::Resolution;
use crate::search::{Candidate, candidates};
use crate::settle::Settled;
use crate::view::View;

impl Resolver {
    /// Answers a packet as [`answer`](Self::answer) does, and tells how the answer came about.
    ///
    /// The trace holds no name that the asker may not see. It is bounded, whatever the packet.
    pub async fn explain(
        self: &Arc<Self>,
        packet: &[u8],
        asker: &Asker,
        cache_use: CacheUse,
    ) -> (Option<Vec<u8>>, Trace) {
        let recorder = Recorder::new(cache_use);
        let reply = match check(packet) {
            Checked::Query(query) => {
                let (name, rtype) = (query.name.clone(), query.rtype);
                recorder.push(Event::Question { name, rtype });
                let recording = Some(Arc::clone(&recorder));
                Some(self.judged(packet, query, asker, &recording).await)
            }
            Checked::Reply(reply) => {
                recorder.push(Event::NoQuestion);
                Some(reply)
            }
            Checked::Drop => {
                recorder.push(Event::NoQuestion);
                None
            }
        };
        let trace = recorder.finish_for(&asker.view, reply.as_deref());
        (reply, trace)
    }
}

impl Engine {
    /// Looks for a fresh answer, unless one made for this query is wanted.
    pub(super) fn look_up(
        &self,
        key: &Key,
        now: Instant,
        recording: &Recording,
    ) -> Option<Arc<Entry>> {
        if recording
            .as_ref()
            .is_some_and(|recorder| recorder.bypasses_cache())
        {
            note(recording, || Event::Cache(CacheState::Bypassed));
            return None;
        }
        let cached = self.cache.get(key, now);
        self.counts.looked_up(cached.is_some());
        note(recording, || {
            let state = cached.as_ref().map(|entry| entry.state(now));
            Event::Cache(state.unwrap_or(CacheState::Miss))
        });
        cached
    }
}

impl Asked {
    /// Has the answer made, by this query or by the one that is at it already.
    pub(super) async fn make(&self) -> Arc<Entry> {
        let cache = &self.engine.cache;
        let Some(recorder) = &self.recording else {
            return cache.once(&self.key, |ground| self.lead(ground)).await;
        };
        if recorder.bypasses_cache() {
            recorder.push(Event::Flight(Flight::Led));
            return Arc::new(self.resolve().await);
        }
        let led = AtomicBool::new(false);
        let lead = |ground| {
            led.store(true, Ordering::Relaxed);
            recorder.push(Event::Flight(Flight::Led));
            self.lead(ground)
        };
        let entry = cache.once(&self.key, lead).await;
        if !led.load(Ordering::Relaxed) {
            recorder.push(Event::Flight(Flight::Joined));
        } else if recorder.promised_to_keep() && !entry.is_kept() {
            recorder.push(Event::Kept(Kept::Not(NotKept::Overtaken)));
        }
        entry
    }
}

/// Tells which rule the name falls under and what will be tried.
pub(super) fn note_way(recording: &Recording, asked: &Name, view: &View) {
    let Some(recorder) = recording else {
        return;
    };
    let rule = rule(asked, view);
    let name = asked.clone();
    recorder.push(Event::Rule { name, rule });
    if matches!(rule, Rule::NotGranted | Rule::BareNotSent) {
        return;
    }
    for step in candidate_steps(asked, view, &candidates(asked, view)) {
        recorder.push(step);
    }
}

/// Tells what the candidates came to, and under which name the winner's answer is given.
pub(super) fn note_outcomes(
    recording: &Recording,
    asked: &Name,
    candidates: &[Candidate],
    outcomes: &Outcomes,
) {
    let Some(recorder) = recording else {
        return;
    };
    let verdict = &outcomes.verdict;
    for step in rulings(candidates, &outcomes.standings, verdict) {
        recorder.push(step);
    }
    if let Settled::Data(spot) | Settled::NoData(spot, _) = verdict.result {
        let winner = &candidates[spot.candidate];
        if winner.expanded {
            let (from, to) = (winner.name.clone(), asked.clone());
            recorder.push(Event::Renamed { from, to });
        }
    }
}

/// Tells whether the answer will be kept.
pub(super) fn note_kept(recording: &Recording, resolution: &Resolution, passed_over: bool) {
    let Some(recorder) = recording else {
        return;
    };
    let kept = if recorder.bypasses_cache() {
        Kept::Not(NotKept::Bypassed)
    } else {
        kept(resolution, passed_over)
    };
    recorder.push(Event::Kept(kept));
}
