use proptest::prelude::*;

use super::*;

const WINDOW: Duration = Duration::from_millis(100);

/// Candidates written as `i` (inside), `s` (structural, inside), `o` (outside), upper case for the second stage.
fn contenders(kinds: &str) -> Vec<Candidate> {
    let candidate = |(rank, kind): (usize, char)| Candidate {
        name: format!("n{rank}").parse().unwrap(),
        stage: if kind.is_uppercase() {
            Stage::Second
        } else {
            Stage::First
        },
        expanded: true,
        inside: !kind.eq_ignore_ascii_case(&'o'),
        structural: kind == 's',
    };
    kinds.chars().enumerate().map(candidate).collect()
}

const DATA: Outcome = Outcome::Data;
const NODATA: Outcome = Outcome::NoData(Some(9));
const NX: Outcome = Outcome::NxDomain(Some(20));
const FAIL: Outcome = Outcome::Failed;

/// One event: milliseconds, candidate, source, outcome.
type Event = (u64, usize, usize, Outcome);

/// Plays events against a fan-out and returns the verdict and when it was reached; the deadline is at two seconds.
fn play(order: AnswerOrder, kinds: &str, sources: usize, events: &[Event]) -> (Verdict, u64, bool) {
    let start = Instant::now();
    let deadline = start + Duration::from_secs(2);
    let list = contenders(kinds);
    let mut settle = Settle::new(order, WINDOW, &list);
    for candidate in 0..list.len() {
        settle.expect(candidate, sources);
    }
    let mut queue = events.to_vec();
    queue.sort_by_key(|event| event.0);
    let mut queue = queue.into_iter().peekable();
    let mut now = start;
    let mut launched = false;
    loop {
        let until = match settle.decide(now) {
            Decision::Done(verdict) => {
                return (
                    verdict,
                    now.duration_since(start).as_millis() as u64,
                    launched,
                );
            }
            Decision::Launch => {
                launched = true;
                continue;
            }
            Decision::Wait(until) => until.map_or(deadline, |until| until.min(deadline)),
        };
        match queue.next_if(|event| start + Duration::from_millis(event.0) <= until) {
            Some((at, candidate, source, outcome)) => {
                now = now.max(start + Duration::from_millis(at));
                settle.record(Spot { candidate, source }, outcome, now);
            }
            None => {
                now = until;
                if now >= deadline {
                    settle.give_up();
                }
            }
        }
    }
}

fn searched(kinds: &str, sources: usize, events: &[Event]) -> (Settled, u64) {
    let (verdict, at, _) = play(AnswerOrder::Search, kinds, sources, events);
    (verdict.result, at)
}

fn data(candidate: usize, source: usize) -> Settled {
    Settled::Data(Spot { candidate, source })
}

fn no_data(candidate: usize, source: usize) -> Settled {
    Settled::NoData(Spot { candidate, source }, Some(9))
}

fn no_name(candidate: usize, source: usize) -> Settled {
    Settled::NxDomain(Spot { candidate, source }, Some(20))
}

#[test]
fn a_wildcard_on_a_later_candidate_that_answers_first_does_not_win() {
    assert_eq!(
        searched("iii", 1, &[(0, 1, 0, DATA), (50, 0, 0, DATA)]),
        (data(0, 0), 50)
    );
    assert_eq!(
        searched("io", 1, &[(0, 1, 0, DATA), (50, 0, 0, DATA)]),
        (data(0, 0), 50),
        "raced bare name"
    );
}

#[test]
fn the_first_candidate_with_data_wins_the_moment_all_before_it_are_negative() {
    let events = [(5, 2, 0, DATA), (10, 1, 0, NX), (30, 0, 0, NX)];
    assert_eq!(searched("iiii", 1, &events), (data(2, 0), 30));
    assert_eq!(
        searched("iiii", 1, &[(7, 0, 0, DATA)]),
        (data(0, 0), 7),
        "the others need not reply"
    );
}

#[test]
fn no_data_ends_the_search_at_its_rank() {
    assert_eq!(
        searched("ii", 1, &[(0, 1, 0, DATA), (20, 0, 0, NODATA)]),
        (no_data(0, 0), 20)
    );
}

#[test]
fn no_data_of_a_structural_name_counts_as_negative() {
    assert_eq!(
        searched("si", 1, &[(0, 1, 0, DATA), (20, 0, 0, NODATA)]),
        (data(1, 0), 20)
    );
    let (verdict, ..) = play(
        AnswerOrder::Search,
        "si",
        1,
        &[(0, 0, 0, NODATA), (1, 1, 0, NX)],
    );
    assert_eq!(
        verdict.result,
        Settled::NxDomain(
            Spot {
                candidate: 1,
                source: 0
            },
            Some(9)
        )
    );
}

#[test]
fn data_within_the_window_beats_an_early_nxdomain_of_another_upstream() {
    assert_eq!(
        searched("i", 2, &[(0, 0, 0, NX), (90, 0, 1, DATA)]),
        (data(0, 1), 90)
    );
    assert_eq!(
        searched("i", 2, &[(0, 0, 0, NX), (150, 0, 1, DATA)]),
        (no_name(0, 0), 100),
        "not beyond it"
    );
}

#[test]
fn no_data_beats_nxdomain_at_one_candidate() {
    for (first, second, source) in [(NX, NODATA, 1), (NODATA, NX, 0)] {
        assert_eq!(
            searched("i", 2, &[(0, 0, 0, first), (50, 0, 1, second)]),
            (no_data(0, source), 50)
        );
    }
}

#[test]
fn a_negative_settles_at_once_when_every_upstream_has_replied() {
    assert_eq!(
        searched("i", 2, &[(3, 0, 0, NX), (9, 0, 1, NX)]),
        (no_name(0, 0), 9)
    );
    assert_eq!(
        searched("i", 2, &[(3, 0, 0, NX), (9, 0, 1, FAIL)]),
        (no_name(0, 0), 9)
    );
}

#[test]
fn a_dead_upstream_never_delays_data_and_delays_a_negative_by_the_window() {
    assert_eq!(searched("ii", 2, &[(10, 0, 0, DATA)]), (data(0, 0), 10));
    assert_eq!(
        searched("ii", 2, &[(10, 0, 0, NX), (10, 1, 0, DATA)]),
        (data(1, 0), 110)
    );
    let (verdict, at, launched) = play(
        AnswerOrder::Search,
        "iO",
        2,
        &[(10, 0, 0, NX), (120, 1, 0, NX)],
    );
    assert_eq!(
        (verdict.result, at, launched),
        (no_name(1, 0), 220, true),
        "one window per stage"
    );
}

#[test]
fn a_failure_counts_only_when_no_upstream_gave_anything_better() {
    assert_eq!(
        searched("i", 2, &[(0, 0, 0, FAIL), (40, 0, 1, DATA)]),
        (data(0, 1), 40)
    );
    assert_eq!(
        searched("i", 2, &[(0, 0, 0, FAIL), (40, 0, 1, NX)]),
        (no_name(0, 1), 40)
    );
}

#[test]
fn a_failed_candidate_inside_the_cluster_domain_blocks_later_ranks() {
    assert_eq!(
        searched("io", 1, &[(0, 1, 0, DATA), (5, 0, 0, FAIL)]),
        (Settled::Failed, 5)
    );
    assert_eq!(
        searched("ii", 1, &[(0, 1, 0, DATA)]),
        (Settled::Failed, 2000),
        "silent: SERVFAIL, not NXDOMAIN"
    );
}

#[test]
fn a_failed_candidate_outside_the_cluster_domain_is_passed_over() {
    let (verdict, at, _) = play(
        AnswerOrder::Search,
        "oi",
        1,
        &[(0, 1, 0, DATA), (5, 0, 0, FAIL)],
    );
    assert_eq!(
        (verdict.result, verdict.passed_over, at),
        (data(1, 0), true, 5)
    );
}

#[test]
fn negatives_and_a_failure_are_a_failure_and_the_bare_name_is_not_sent() {
    let (verdict, at, launched) = play(
        AnswerOrder::Search,
        "ioO",
        1,
        &[(1, 0, 0, NX), (2, 1, 0, FAIL)],
    );
    assert_eq!((verdict.result, at, launched), (Settled::Failed, 2, false));
}

#[test]
fn the_second_stage_starts_after_every_first_stage_candidate_was_negative() {
    let events = [(1, 0, 0, NX), (30, 1, 0, NX), (40, 2, 0, DATA)];
    let (verdict, at, launched) = play(AnswerOrder::Search, "iiO", 1, &events);
    assert_eq!((verdict.result, at, launched), (data(2, 0), 40, true));
    let (verdict, _, launched) = play(AnswerOrder::Search, "oI", 1, &[(1, 0, 0, FAIL)]);
    assert_eq!(
        (verdict.result, launched),
        (Settled::Failed, false),
        "only NXDOMAIN of the bare name starts the search"
    );
    let (verdict, _, launched) = play(AnswerOrder::Search, "oI", 1, &[(1, 0, 0, NODATA)]);
    assert_eq!((verdict.result, launched), (no_data(0, 0), false));
}

#[test]
fn all_nxdomain_is_nxdomain_with_the_shortest_lifetime() {
    let short = Outcome::NxDomain(Some(3));
    let (verdict, ..) = play(
        AnswerOrder::Search,
        "iii",
        1,
        &[(0, 0, 0, NX), (1, 1, 0, short), (2, 2, 0, NX)],
    );
    assert_eq!(
        verdict.result,
        Settled::NxDomain(
            Spot {
                candidate: 2,
                source: 0
            },
            Some(3)
        )
    );
    let unnamed = Outcome::NxDomain(None);
    let (verdict, ..) = play(
        AnswerOrder::Search,
        "ii",
        1,
        &[(0, 0, 0, NX), (1, 1, 0, unnamed)],
    );
    assert_eq!(
        verdict.result,
        Settled::NxDomain(
            Spot {
                candidate: 1,
                source: 0
            },
            None
        )
    );
}

#[test]
fn the_winner_knows_the_negative_lifetimes_of_better_ranks() {
    let unnamed = Outcome::NxDomain(None);
    let (verdict, ..) = play(
        AnswerOrder::Search,
        "iii",
        1,
        &[(0, 0, 0, NX), (1, 1, 0, unnamed), (2, 2, 0, DATA)],
    );
    assert_eq!(verdict.better, [Some(20), None]);
}

#[test]
fn everything_failing_is_a_failure() {
    assert_eq!(searched("oo", 2, &[]), (Settled::Failed, 2000));
    assert_eq!(
        searched("i", 0, &[]),
        (Settled::Failed, 0),
        "no upstream at all"
    );
    assert_eq!(searched("", 1, &[]), (Settled::Failed, 0));
}

#[test]
fn in_first_order_the_first_success_wins_whatever_its_rank() {
    let first = |events: &[Event]| {
        let (verdict, at, _) = play(AnswerOrder::First, "iio", 1, events);
        (verdict.result, at)
    };
    assert_eq!(first(&[(5, 2, 0, DATA), (6, 0, 0, DATA)]), (data(2, 0), 5));
    assert_eq!(
        first(&[(0, 0, 0, NODATA), (6, 2, 0, DATA)]),
        (data(2, 0), 6)
    );
    assert_eq!(first(&[(0, 0, 0, FAIL), (6, 2, 0, DATA)]), (data(2, 0), 6));
    assert_eq!(
        first(&[(0, 0, 0, NX), (1, 1, 0, NODATA), (6, 2, 0, NX)]),
        (no_data(1, 0), 6)
    );
    assert_eq!(
        first(&[(0, 0, 0, NX), (1, 1, 0, NX), (6, 2, 0, NX)]),
        (no_name(2, 0), 6)
    );
    assert_eq!(
        first(&[(0, 0, 0, NX), (1, 1, 0, NX), (6, 2, 0, FAIL)]),
        (Settled::Failed, 6)
    );
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![Just(DATA), Just(NODATA), Just(NX), Just(FAIL)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    /// D3: whatever the delays, one answer, as long as all replies come within the window.
    #[test]
    fn delays_never_change_the_verdict(
        outcomes in prop::collection::vec(outcome(), 8),
        delays in prop::collection::vec(0u64..99, 8),
        again in prop::collection::vec(0u64..99, 8),
        kinds in "[iso]{3}[iO]",
    ) {
        let events = |delays: &[u64]| -> Vec<Event> {
            (0..8).map(|index| (delays[index], index / 2, index % 2, outcomes[index])).collect()
        };
        let told = |delays: &[u64]| match searched(&kinds, 2, &events(delays)).0 {
            // Two upstreams with data for one name: either's is the answer.
            Settled::Data(spot) => format!("data {}", spot.candidate),
            other => format!("{other:?}"),
        };
        prop_assert_eq!(told(&delays), told(&again));
    }

    #[test]
    fn every_play_ends_by_the_deadline_and_never_invents_data(
        events in prop::collection::vec((0u64..2500, 0usize..4, 0usize..2, outcome()), 0..12),
        kinds in "[iso]{2}[ioIO]{2}",
        first in any::<bool>(),
    ) {
        let mut list: Vec<char> = kinds.chars().collect();
        list.sort_by_key(|kind| kind.is_uppercase());
        let kinds: String = list.into_iter().collect();
        let order = if first { AnswerOrder::First } else { AnswerOrder::Search };
        let (verdict, at, _) = play(order, &kinds, 2, &events);
        prop_assert!(at <= 2000);
        if let Settled::Data(spot) = verdict.result {
            prop_assert!(events.iter().any(|event| (event.1, event.2, event.3) == (spot.candidate, spot.source, DATA)));
        }
    }
}
