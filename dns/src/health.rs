//! What is known about one upstream: a pure state machine over what exchanges and probes tell, and time.
//!
//! It decides when an upstream is down, when it is up again, and when a probe is worth its packet. It
//! sends nothing, reads no clock, and does not choose whom to ask (`upstreams`).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::name::Name;
use crate::upstream::Rtt;

#[cfg(test)]
mod tests;

/// Consecutive failures that an upstream may have without being down (design §3, Health).
const FORGIVEN: u32 = 2;
/// Silence that counts as a failure: no other upstream waits longer for this one than that.
const LONG_SILENCE: Duration = Duration::from_millis(300);
/// Silences that began within this time are one: a slow name is asked for in several types and ranks at once.
const SAME_MOMENT: Duration = Duration::from_millis(50);
/// An upstream that was asked and said nothing for this long is worth a probe, even if nobody waited for it:
/// the others may just have been faster each time. As long as between two probes, so that it costs no more.
const UNHEARD: Duration = Duration::from_millis(500);
/// The shortest time an upstream is given before another is asked beside it (performance.md, Fan-out).
const SHORTEST_PATIENCE: Duration = Duration::from_millis(20);
/// The waiting windows of negatives: three round trips, within these bounds (design §3, Fan-out).
const SHORTEST_WINDOW: Duration = Duration::from_millis(100);
const LONGEST_WINDOW: Duration = Duration::from_millis(300);
/// Zones a verdict about loops is kept for: a manager routes a handful, and nobody can make it remember more.
const MOST_ZONES: usize = 64;

/// Tells whether an upstream is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpstreamState {
    /// Nothing was heard of it yet; it is asked.
    Unknown,
    /// It replied when it was last asked, or has not failed often enough to be down.
    Healthy,
    /// It is down: asked only if all others are down too.
    Unhealthy,
    /// It leads back to us for some zone, for which it is not asked.
    Looped,
}

/// What happened with an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A query is on its way to it.
    Asked,
    /// It replied, whatever it said, to a query or probe sent at this time.
    Replied { asked: Instant },
    /// A query or probe sent at this time failed.
    Failed { asked: Instant, why: String },
    /// A query sent at this time is waited for no longer: its time was over, or another upstream has answered.
    Unanswered { asked: Instant },
    /// Queries for this zone come back to us.
    Looped(Name),
    /// Queries for this zone do not come back to us (any more).
    NotLooped(Name),
}

/// What an event changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    /// The status shows something else.
    pub(crate) visible: bool,
    /// It is down from now on.
    pub(crate) went_down: bool,
    /// It was down until now.
    pub(crate) recovered: bool,
    /// A probe is wanted that was not before.
    pub(crate) wants_probe: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Condition {
    #[default]
    Unknown,
    Up,
    Down,
}

/// What is known about one upstream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Health {
    condition: Condition,
    fails: u32,
    last_error: Option<String>,
    rtt: Rtt,
    last_reply: Option<Instant>,
    /// When the first query was sent since the last reply.
    unheard_since: Option<Instant>,
    /// When the query was sent whose silence was counted last.
    silent_since: Option<Instant>,
    /// Whether something points to a failure that a probe would settle.
    suspected: bool,
    /// The next probe is not sent before this time.
    next_probe: Option<Instant>,
    /// Verdicts about loops; the longest zone that a name lies in decides.
    zones: BTreeMap<Name, bool>,
}

impl Health {
    /// Takes in what happened.
    pub(crate) fn apply(&mut self, event: Event, now: Instant) -> Change {
        match event {
            Event::Asked => {
                self.unheard_since.get_or_insert(now);
                Change::default()
            }
            Event::Replied { asked } => self.replied(asked, now),
            Event::Failed { asked, .. } | Event::Unanswered { asked }
                if self.heard_after(asked) =>
            {
                Change::default()
            }
            Event::Failed { why, .. } => self.failed(why),
            Event::Unanswered { asked } => self.unanswered(asked, now),
            Event::Looped(zone) => self.judge_loop(zone, true),
            Event::NotLooped(zone) => self.judge_loop(zone, false),
        }
    }

    /// Says what the status shows.
    pub(crate) fn state(&self) -> UpstreamState {
        let is_looped = self.zones.values().any(|looped| *looped);
        match self.condition {
            Condition::Down => UpstreamState::Unhealthy,
            Condition::Unknown | Condition::Up if is_looped => UpstreamState::Looped,
            Condition::Unknown => UpstreamState::Unknown,
            Condition::Up => UpstreamState::Healthy,
        }
    }

    pub(crate) fn is_down(&self) -> bool {
        self.condition == Condition::Down
    }

    /// Says whether a failure is suspected or known: others are asked first then, if there is a choice.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.suspected || self.fails > 0 || self.is_down()
    }

    /// Says whether a query for the name would come back to us.
    pub(crate) fn is_looped_for(&self, name: &Name) -> bool {
        let holding = self.zones.iter().filter(|(zone, _)| name.ends_with(zone));
        holding
            .max_by_key(|(zone, _)| zone.label_count())
            .is_some_and(|(_, looped)| *looped)
    }

    /// Returns the zones for which it leads back to us.
    pub(crate) fn looped_zones(&self) -> Vec<Name> {
        let looped = self.zones.iter().filter(|(_, looped)| **looped);
        looped.map(|(zone, _)| zone.clone()).collect()
    }

    pub(crate) fn fails(&self) -> u32 {
        self.fails
    }

    pub(crate) fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    pub(crate) fn last_reply(&self) -> Option<Instant> {
        self.last_reply
    }

    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// Returns the window in which a negative waits for other upstreams, by this one's round trip.
    pub(crate) fn window(&self) -> Duration {
        let rtt = self.rtt().unwrap_or_default();
        (rtt * 3).clamp(SHORTEST_WINDOW, LONGEST_WINDOW)
    }

    /// Returns how long it may take before another upstream is asked beside it.
    pub(crate) fn patience(&self) -> Duration {
        let rtt = self.rtt().unwrap_or_default();
        (rtt * 2).max(SHORTEST_PATIENCE)
    }

    /// Says whether there is something that a probe would find out.
    pub(crate) fn wants_probe(&self) -> bool {
        self.suspected || self.condition != Condition::Up
    }

    /// Returns the time before which no probe is sent, if one ever was.
    pub(crate) fn next_probe(&self) -> Option<Instant> {
        self.next_probe
    }

    /// Takes note of a probe that is sent now, and of when the next one may be.
    pub(crate) fn probe_sent(&mut self, next: Instant) {
        self.next_probe = Some(next);
    }

    fn heard_after(&self, asked: Instant) -> bool {
        self.last_reply.is_some_and(|last| last > asked)
    }

    fn replied(&mut self, asked: Instant, now: Instant) -> Change {
        let change = Change {
            visible: self.condition != Condition::Up || self.fails > 0,
            recovered: self.is_down(),
            ..Change::default()
        };
        self.rtt.sample(now.saturating_duration_since(asked));
        self.condition = Condition::Up;
        self.fails = 0;
        self.last_reply = Some(now);
        self.unheard_since = None;
        self.silent_since = None;
        self.suspected = false;
        change
    }

    fn failed(&mut self, why: String) -> Change {
        let goes_down = self.fails >= FORGIVEN && !self.is_down();
        let change = Change {
            visible: self.fails == 0 || goes_down || self.last_error.as_ref() != Some(&why),
            went_down: goes_down,
            ..self.suspect()
        };
        self.fails = self.fails.saturating_add(1);
        self.last_error = Some(why);
        if goes_down {
            self.condition = Condition::Down;
        }
        change
    }

    fn unanswered(&mut self, asked: Instant, now: Instant) -> Change {
        let waited = now.saturating_duration_since(asked);
        let another = self
            .silent_since
            .is_none_or(|last| asked >= last + SAME_MOMENT);
        if waited >= LONG_SILENCE && another {
            self.silent_since = Some(asked);
            return self.failed("no reply in time".to_owned());
        }
        let unheard = self
            .unheard_since
            .is_some_and(|since| now.saturating_duration_since(since) >= UNHEARD);
        if waited >= self.patience() || unheard {
            return self.suspect();
        }
        Change::default()
    }

    fn suspect(&mut self) -> Change {
        let wants_probe = !self.suspected && !self.is_down();
        self.suspected = true;
        Change {
            wants_probe,
            ..Change::default()
        }
    }

    fn judge_loop(&mut self, zone: Name, looped: bool) -> Change {
        let zone = zone.to_lowercase();
        let before = self.zones.get(&zone).copied();
        if before.is_none() && self.zones.len() >= MOST_ZONES {
            return Change::default();
        }
        self.zones.insert(zone, looped);
        Change {
            visible: before.unwrap_or(false) != looped,
            ..Change::default()
        }
    }
}
