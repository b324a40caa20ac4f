//! When which upstream is probed for which zone. Pure: the time and chance are given.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::probes::Target;
use crate::name::Name;
use crate::upstream::UpstreamSpec;

/// How often every pair is tried when nothing happens, give or take a fifth.
pub(super) const PERIOD: Duration = Duration::from_secs(60);
/// How long an upstream that leads back is left alone at first, and at most.
pub(super) const FIRST_RETRY: Duration = Duration::from_secs(30);
pub(super) const LAST_RETRY: Duration = Duration::from_secs(300);
/// Between two probes to one upstream.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Between two probes because of queries that came back, when the first found nothing.
const SUSPICION: Duration = Duration::from_secs(5);
/// How soon a probe that was not answered is sent again at first: the upstream may just start.
const UNANSWERED: Duration = Duration::from_secs(3);

/// What a probe showed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It came back.
    Back,
    /// It was answered and did not come back.
    Clean,
    /// It was not answered.
    Unknown,
}

/// What is due when.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    pairs: BTreeMap<Arc<Target>, Pair>,
    /// When each upstream was probed last.
    last: BTreeMap<UpstreamSpec, Instant>,
}

#[derive(Debug)]
struct Pair {
    /// Where the zone stands in the list.
    rank: usize,
    due: Instant,
    /// How long it is left alone when it is found to lead back again.
    retry: Duration,
    leads_back: bool,
    /// How long to wait for an upstream that did not answer.
    patience: Duration,
    suspected: Option<Instant>,
}

impl Schedule {
    /// Replaces the pairs. All are due at once, in the order of the zones, for something changed.
    pub(super) fn replace(&mut self, upstreams: &[UpstreamSpec], zones: &[Name], now: Instant) {
        let mut old = std::mem::take(&mut self.pairs);
        self.last.retain(|upstream, _| upstreams.contains(upstream));
        for upstream in upstreams {
            for (rank, zone) in zones.iter().enumerate() {
                let target = Arc::new(Target {
                    upstream: upstream.clone(),
                    zone: zone.clone(),
                });
                let known = old.remove(&target);
                let pair = Pair {
                    rank,
                    due: now,
                    ..known.unwrap_or(Pair {
                        rank,
                        due: now,
                        retry: FIRST_RETRY,
                        leads_back: false,
                        patience: UNANSWERED,
                        suspected: None,
                    })
                };
                self.pairs.insert(target, pair);
            }
        }
    }

    /// Returns what is to be probed next, and when.
    pub(super) fn next(&self) -> Option<(Arc<Target>, Instant)> {
        let at = |target: &Target, pair: &Pair| {
            let free = self.last.get(&target.upstream).map(|last| *last + PAUSE);
            free.map_or(pair.due, |free| free.max(pair.due))
        };
        let times = self
            .pairs
            .iter()
            .map(|(target, pair)| (at(target, pair), pair.rank, target));
        let (time, _, target) = times.min()?;
        Some((Arc::clone(target), time))
    }

    /// Notes that a pair is being probed.
    pub(super) fn begin(&mut self, target: &Arc<Target>, now: Instant) {
        self.last.insert(target.upstream.clone(), now);
        if let Some(pair) = self.pairs.get_mut(target) {
            pair.due = now + PERIOD;
        }
    }

    /// Notes what a probe showed. `chance` lies between 0 and 1.
    pub(super) fn note(&mut self, target: &Target, outcome: Outcome, now: Instant, chance: f64) {
        let Some(pair) = self.pairs.get_mut(target) else {
            return;
        };
        if outcome != Outcome::Unknown {
            pair.patience = UNANSWERED;
        }
        match outcome {
            Outcome::Back => {
                // Early rather than late, so that the longest wait holds.
                pair.due = now + pair.retry.mul_f64(1.0 - chance / 5.0);
                pair.retry = (pair.retry * 2).min(LAST_RETRY);
                pair.leads_back = true;
            }
            Outcome::Clean => {
                // Two parts that both led back to each other may find each other clean at once, and
                // lead back again: only what stays clean begins anew.
                if !pair.leads_back {
                    pair.retry = FIRST_RETRY;
                }
                pair.due = now + period(chance);
                pair.leads_back = false;
            }
            Outcome::Unknown if pair.leads_back => {
                pair.due = now + pair.retry.mul_f64(1.0 - chance / 5.0);
            }
            Outcome::Unknown => {
                pair.due = now + pair.patience.min(period(chance));
                pair.patience = (pair.patience * 2).min(PERIOD);
            }
        }
    }

    /// Makes a pair due because a query came back by it, unless it was just looked at for that.
    pub(super) fn suspect(&mut self, upstream: Option<&UpstreamSpec>, zone: &Name, now: Instant) {
        for (target, pair) in &mut self.pairs {
            let meant = target.zone == *zone && upstream.is_none_or(|one| target.upstream == *one);
            let fresh = pair.suspected.is_none_or(|then| then + SUSPICION <= now);
            if meant && fresh && !pair.leads_back {
                pair.suspected = Some(now);
                pair.due = pair.due.min(now);
            }
        }
    }
}

fn period(chance: f64) -> Duration {
    PERIOD.mul_f64(0.8 + 0.4 * chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstreams(texts: &[&str]) -> Vec<UpstreamSpec> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn names(texts: &[&str]) -> Vec<Name> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    /// Probes whatever is due until then and says when what was probed; nothing leads back.
    fn run(schedule: &mut Schedule, start: Instant, end: Duration) -> Vec<(u64, String)> {
        let mut probed = Vec::new();
        while let Some((target, at)) = schedule.next() {
            if at > start + end {
                break;
            }
            schedule.begin(&target, at);
            schedule.note(&target, Outcome::Clean, at, 0.5);
            let text = format!("{} {}", target.upstream.address.ip(), target.zone);
            probed.push(((at - start).as_secs(), text));
        }
        probed
    }

    #[tokio::test(start_paused = true)]
    async fn loops_08_all_pairs_are_probed_at_a_change_and_each_minute_one_a_second() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        let zones = names(&[".", "cluster.local"]);
        schedule.replace(&upstreams(&["10.0.0.1", "10.0.0.2"]), &zones, start);
        let expected = [
            (0, "10.0.0.1 ."),
            (0, "10.0.0.2 ."),
            (1, "10.0.0.1 cluster.local"),
            (1, "10.0.0.2 cluster.local"),
            (60, "10.0.0.1 ."),
            (60, "10.0.0.2 ."),
            (61, "10.0.0.1 cluster.local"),
            (61, "10.0.0.2 cluster.local"),
        ];
        let expected = expected.map(|(at, text)| (at, text.to_owned()));
        assert_eq!(run(&mut schedule, start, Duration::from_secs(62)), expected);
        let change = start + Duration::from_secs(70);
        schedule.replace(&upstreams(&["10.0.0.1"]), &zones, change);
        assert_eq!(schedule.next().unwrap().1, change);
    }

    #[tokio::test(start_paused = true)]
    async fn loops_12_what_leads_back_is_tried_after_30_s_doubling_to_5_min() {
        let (mut schedule, mut now) = (Schedule::default(), Instant::now());
        schedule.replace(&upstreams(&["10.0.0.1"]), &names(&["."]), now);
        let mut waits = Vec::new();
        for _ in 0..6 {
            let (target, _) = schedule.next().unwrap();
            schedule.begin(&target, now);
            schedule.note(&target, Outcome::Back, now, 0.0);
            let next = schedule.next().unwrap().1;
            waits.push((next - now).as_secs());
            now = next;
        }
        assert_eq!(waits, [30, 60, 120, 240, 300, 300]);
        let (target, _) = schedule.next().unwrap();
        schedule.note(&target, Outcome::Unknown, now, 1.0);
        let silent = schedule.next().unwrap().1 - now;
        assert_eq!(
            silent,
            Duration::from_secs(240),
            "silence is no sign of recovery"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn loops_06_an_upstream_that_does_not_answer_yet_is_tried_again_soon() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.replace(&upstreams(&["10.0.0.1"]), &names(&["."]), now);
        let (target, _) = schedule.next().unwrap();
        let waits = [(); 6].map(|()| {
            schedule.note(&target, Outcome::Unknown, now, 0.5);
            (schedule.next().unwrap().1 - now).as_secs()
        });
        assert_eq!(waits, [3, 6, 12, 24, 48, 60]);
        schedule.note(&target, Outcome::Clean, now, 0.5);
        schedule.note(&target, Outcome::Unknown, now, 0.5);
        assert_eq!(schedule.next().unwrap().1 - now, UNANSWERED);
    }

    #[tokio::test(start_paused = true)]
    async fn what_leads_back_again_soon_is_left_alone_longer() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        schedule.replace(&upstreams(&["10.0.0.1"]), &names(&["."]), now);
        let (target, _) = schedule.next().unwrap();
        let mut after = |outcome| {
            schedule.note(&target, outcome, now, 0.0);
            (schedule.next().unwrap().1 - now).as_secs()
        };
        assert_eq!(after(Outcome::Back), 30);
        assert_eq!(after(Outcome::Clean), 48);
        assert_eq!(after(Outcome::Back), 60);
        assert_eq!(after(Outcome::Clean), 48);
        assert_eq!(after(Outcome::Clean), 48);
        assert_eq!(after(Outcome::Back), 30);
    }

    #[tokio::test(start_paused = true)]
    async fn a_query_that_came_back_makes_its_pair_due_at_once_but_not_again_and_again() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        let (servers, zones) = (upstreams(&["10.0.0.1", "10.0.0.2"]), names(&[".", "corp"]));
        schedule.replace(&servers, &zones, start);
        run(&mut schedule, start, Duration::from_secs(30));
        let now = start + Duration::from_secs(40);
        schedule.suspect(Some(&servers[1]), &zones[1], now);
        let (target, at) = schedule.next().unwrap();
        assert_eq!(
            (&target.upstream, &target.zone, at),
            (&servers[1], &zones[1], now)
        );
        schedule.begin(&target, now);
        schedule.suspect(Some(&servers[1]), &zones[1], now + PAUSE);
        assert!(schedule.next().unwrap().1 > now + SUSPICION);
        schedule.suspect(None, &zones[1], now + SUSPICION);
        assert_eq!(schedule.next().unwrap().1, now + SUSPICION);
    }
}
