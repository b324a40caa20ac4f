use proptest::prelude::*;

use super::*;
use crate::test_util::name;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// An upstream, and a clock that moves when it is told to.
struct Watched {
    health: Health,
    now: Instant,
}

impl Watched {
    fn new() -> Self {
        Self {
            health: Health::default(),
            now: Instant::now(),
        }
    }

    /// One that was heard of after this round trip.
    fn heard(round_trip: Duration) -> Self {
        let mut watched = Self::new();
        watched.exchange(round_trip, |asked| Event::Replied { asked });
        watched
    }

    fn tell(&mut self, event: Event) -> Change {
        self.health.apply(event, self.now)
    }

    /// Asks, lets time pass, and tells how it ended.
    fn exchange(&mut self, lasting: Duration, end: impl FnOnce(Instant) -> Event) -> Change {
        let asked = self.now;
        self.tell(Event::Asked);
        self.now += lasting;
        self.tell(end(asked))
    }

    fn fail(&mut self) -> Change {
        self.exchange(ms(1), |asked| Event::Failed {
            asked,
            why: "refused".to_owned(),
        })
    }

    fn silent_for(&mut self, lasting: Duration) -> Change {
        self.exchange(lasting, |asked| Event::Unanswered { asked })
    }

    fn due_in(&self) -> Option<Duration> {
        let next = self.health.next_probe().unwrap_or(self.now);
        let wanted = self.health.wants_probe();
        wanted.then(|| next.saturating_duration_since(self.now))
    }
}

#[test]
fn the_third_failure_in_a_row_takes_an_upstream_down_and_one_reply_brings_it_back() {
    use UpstreamState::{Healthy, Unhealthy, Unknown};
    let mut watched = Watched::new();
    assert_eq!(watched.health.state(), Unknown);
    for (failures, state) in [(1, Unknown), (2, Unknown), (3, Unhealthy), (4, Unhealthy)] {
        let change = watched.fail();
        assert_eq!(watched.health.state(), state, "{failures}");
        assert_eq!(watched.health.fails(), failures);
        assert_eq!(change.went_down, failures == 3);
    }
    let change = watched.exchange(ms(5), |asked| Event::Replied { asked });
    assert!(change.recovered && change.visible);
    assert_eq!(
        (watched.health.state(), watched.health.fails()),
        (Healthy, 0)
    );
    assert_eq!(watched.health.last_error(), Some("refused"));
    assert_eq!(watched.health.rtt(), Some(ms(5)));
}

#[test]
fn failures_with_a_reply_between_them_take_nothing_down() {
    let mut watched = Watched::new();
    for _ in 0..10 {
        watched.fail();
        watched.fail();
        watched.exchange(ms(1), |asked| Event::Replied { asked });
    }
    assert_eq!(watched.health.state(), UpstreamState::Healthy);
}

#[test]
fn a_silence_counts_from_300_ms_on_and_shorter_ones_are_worth_a_probe() {
    // (round trip, silence, counted as a failure, worth a probe)
    for (round_trip, silence, failure, probe) in [
        (10, 5, false, false),
        (10, 19, false, false),
        (10, 20, false, true),
        (10, 299, false, true),
        (10, 300, true, true),
        (80, 159, false, false),
        (80, 160, false, true),
        (400, 299, false, false),
        (400, 300, true, true),
    ] {
        let mut watched = Watched::heard(ms(round_trip));
        let change = watched.silent_for(ms(silence));
        let case = (round_trip, silence);
        assert_eq!(watched.health.fails() > 0, failure, "{case:?}");
        assert_eq!(change.wants_probe, probe, "{case:?}");
        assert_eq!(watched.due_in().is_some(), probe, "{case:?}");
    }
}

#[test]
fn a_silence_does_not_count_when_something_else_was_heard_meanwhile() {
    let mut watched = Watched::heard(ms(10));
    let asked = watched.now;
    watched.now += ms(100);
    watched.exchange(ms(10), |asked| Event::Replied { asked });
    watched.now += ms(2000);
    for event in [
        Event::Unanswered { asked },
        Event::Failed {
            asked,
            why: "late".to_owned(),
        },
    ] {
        assert_eq!(watched.tell(event), Change::default());
    }
    assert_eq!((watched.health.fails(), watched.due_in()), (0, None));
}

#[test]
fn one_slow_name_in_several_types_and_ranks_is_one_silence() {
    let mut watched = Watched::heard(ms(10));
    let asked = watched.now;
    watched.now += ms(2000);
    for later in [0, 1, 20, 49] {
        let asked = asked + ms(later);
        watched.tell(Event::Unanswered { asked });
    }
    assert_eq!(watched.health.fails(), 1);
    for later in [50, 100] {
        let asked = asked + ms(later);
        watched.tell(Event::Unanswered { asked });
    }
    assert!(watched.health.is_down());
}

#[test]
fn an_upstream_that_always_loses_is_probed_after_half_a_second() {
    let mut watched = Watched::heard(ms(10));
    for _ in 0..4 {
        watched.silent_for(ms(1));
        watched.now += ms(100);
    }
    assert_eq!(watched.due_in(), None);
    watched.now += ms(100);
    watched.silent_for(ms(1));
    assert_eq!(watched.due_in(), Some(Duration::ZERO));
    watched.exchange(ms(10), |asked| Event::Replied { asked });
    assert_eq!(watched.due_in(), None);
    watched.silent_for(ms(1));
    assert_eq!(watched.due_in(), None);
}

#[test]
fn probes_are_due_while_unknown_in_doubt_or_down_and_keep_their_distance() {
    let mut watched = Watched::new();
    assert_eq!(watched.due_in(), Some(Duration::ZERO));
    watched.health.probe_sent(watched.now + ms(500));
    assert_eq!(watched.due_in(), Some(ms(500)));
    watched.exchange(ms(1), |asked| Event::Replied { asked });
    assert_eq!(watched.due_in(), None);
    watched.fail();
    assert_eq!(watched.due_in(), Some(ms(498)));
    watched.now += ms(600);
    assert_eq!(watched.due_in(), Some(Duration::ZERO));
    watched.fail();
    watched.fail();
    assert!(watched.health.is_down() && watched.due_in().is_some());
}

#[test]
fn the_verdict_about_the_longest_zone_holds() {
    let mut watched = Watched::heard(ms(10));
    let looped = |watched: &Watched, text| watched.health.is_looped_for(&name(text));
    assert!(watched.tell(Event::Looped(name("."))).visible);
    assert!(!watched.tell(Event::Looped(name("."))).visible);
    assert_eq!(watched.health.state(), UpstreamState::Looped);
    assert!(looped(&watched, "example.com") && looped(&watched, "a.Cluster.Local"));

    watched.tell(Event::NotLooped(name("CLUSTER.local")));
    assert!(looped(&watched, "example.com") && !looped(&watched, "a.Cluster.Local"));
    assert!(looped(&watched, "mycluster.local"));

    assert!(watched.tell(Event::NotLooped(name("."))).visible);
    watched.tell(Event::Looped(name("shop.test")));
    assert_eq!(watched.health.looped_zones(), [name("shop.test")]);
    assert!(looped(&watched, "a.shop.test") && !looped(&watched, "test"));
    for _ in 0..3 {
        watched.fail();
    }
    assert_eq!(watched.health.state(), UpstreamState::Unhealthy);
    assert!(looped(&watched, "a.shop.test"));
}

#[test]
fn the_zones_with_a_verdict_are_bounded() {
    let mut watched = Watched::new();
    for number in 0..2 * MOST_ZONES {
        watched.tell(Event::Looped(name(&format!("z{number}.test"))));
    }
    assert_eq!(watched.health.looped_zones().len(), MOST_ZONES);
    watched.tell(Event::NotLooped(name("z0.test")));
    assert_eq!(watched.health.looped_zones().len(), MOST_ZONES - 1);
}

#[test]
fn the_window_and_the_patience_follow_the_round_trip_within_bounds() {
    for (round_trip, window, patience) in [
        (1, 100, 20),
        (50, 150, 100),
        (90, 270, 180),
        (900, 300, 1800),
    ] {
        let health = Watched::heard(ms(round_trip)).health;
        assert_eq!(health.window(), ms(window));
        assert_eq!(health.patience(), ms(patience));
    }
    let unknown = Health::default();
    assert_eq!((unknown.window(), unknown.patience()), (ms(100), ms(20)));
}

#[derive(Debug, Clone)]
enum Step {
    Reply(u64),
    Fail(u64),
    Silence(u64),
    Zone(u8, bool),
    Wait(u64),
    Probe,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0_u64..2000).prop_map(Step::Reply),
        (0_u64..2000).prop_map(Step::Fail),
        (0_u64..2000).prop_map(Step::Silence),
        (0_u8..3, any::<bool>()).prop_map(|(zone, looped)| Step::Zone(zone, looped)),
        (0_u64..2000).prop_map(Step::Wait),
        Just(Step::Probe),
    ]
}

fn shown(health: &Health) -> (UpstreamState, bool, Option<String>, Vec<Name>) {
    let error = health.last_error().map(ToOwned::to_owned);
    (
        health.state(),
        health.fails() > 0,
        error,
        health.looped_zones(),
    )
}

proptest! {
    #[test]
    fn whatever_happens_the_state_follows_from_what_happened_since_the_last_reply(
        steps in proptest::collection::vec(step(), 0..60)
    ) {
        let mut watched = Watched::new();
        let (mut bad, mut replied) = (0_u32, false);
        for step in steps {
            let before = (shown(&watched.health), watched.health.is_down());
            let change = match step {
                Step::Reply(lasting) => {
                    (bad, replied) = (0, true);
                    watched.exchange(ms(lasting), |asked| Event::Replied { asked })
                }
                Step::Fail(lasting) => {
                    bad += 1;
                    watched.exchange(ms(lasting), |asked| Event::Failed { asked, why: format!("{bad}") })
                }
                Step::Silence(lasting) => {
                    bad += u32::from(lasting >= 300);
                    watched.silent_for(ms(lasting))
                }
                Step::Zone(zone, looped) => {
                    let zone = name(["a.test", "b.test", "test"][usize::from(zone)]);
                    watched.tell(if looped { Event::Looped(zone) } else { Event::NotLooped(zone) })
                }
                Step::Wait(lasting) => {
                    watched.now += ms(lasting);
                    Change::default()
                }
                Step::Probe => {
                    let next = watched.now + ms(500);
                    watched.health.probe_sent(next);
                    prop_assert_eq!(watched.health.next_probe(), Some(next));
                    Change::default()
                }
            };
            let (health, is_down) = (&watched.health, watched.health.is_down());
            prop_assert!(health.fails() <= bad);
            prop_assert_eq!(is_down, health.fails() > FORGIVEN);
            prop_assert_eq!(change.recovered, before.1 && !is_down);
            prop_assert_eq!(change.went_down, !before.1 && is_down);
            prop_assert!(change.visible || before.0 == shown(health), "an unseen change");
            let expected = match (is_down, health.looped_zones().is_empty(), replied) {
                (true, _, _) => UpstreamState::Unhealthy,
                (false, false, _) => UpstreamState::Looped,
                (false, true, true) => UpstreamState::Healthy,
                (false, true, false) => UpstreamState::Unknown,
            };
            prop_assert_eq!(health.state(), expected);
            let in_doubt = is_down || !replied || health.fails() > 0;
            prop_assert!(!in_doubt || health.wants_probe());
        }
    }
}
