use proptest::prelude::*;

use super::*;

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Takes every turn that is due.
fn take(turns: &mut Turns, now: Instant) -> Vec<usize> {
    std::iter::from_fn(|| turns.take(now, |_| HEDGE)).collect()
}

#[test]
fn without_patience_all_turns_come_at_once() {
    let now = Instant::now();
    let mut turns = Turns::new(3, now);
    let all: Vec<usize> = std::iter::from_fn(|| turns.take(now, |_| Duration::ZERO)).collect();
    assert_eq!((all, turns.due()), (vec![0, 1, 2], None));
}

#[test]
fn the_next_turn_comes_after_the_patience_or_at_once_after_a_failure() {
    let start = Instant::now();
    let mut turns = Turns::new(4, start);
    assert_eq!(take(&mut turns, start), [0]);
    assert_eq!(take(&mut turns, start + ms(299)), [0; 0]);
    assert_eq!(take(&mut turns, start + ms(300)), [1]);
    turns.failed(1, start + ms(310));
    assert_eq!(take(&mut turns, start + ms(310)), [2]);
    assert_eq!(turns.due(), Some(start + ms(610)));
}

#[test]
fn a_failure_of_one_whose_successor_was_asked_already_hurries_nobody() {
    let start = Instant::now();
    let mut turns = Turns::new(3, start);
    take(&mut turns, start);
    take(&mut turns, start + ms(300));
    turns.failed(0, start + ms(310));
    assert_eq!(turns.due(), Some(start + ms(600)));
}

#[test]
fn after_the_end_nobody_is_asked() {
    let start = Instant::now();
    let mut turns = Turns::new(3, start);
    take(&mut turns, start);
    turns.end();
    turns.failed(0, start);
    assert_eq!(take(&mut turns, start + ms(9000)), [0; 0]);
    assert_eq!(turns.due(), None);
    assert_eq!(Turns::new(0, start).due(), None);
}

proptest! {
    #[test]
    fn each_turn_is_taken_once_in_order_and_none_is_forgotten(
        count in 0_usize..6,
        steps in proptest::collection::vec((0_u64..400, proptest::option::of(0_usize..6)), 0..40),
    ) {
        let mut now = Instant::now();
        let mut turns = Turns::new(count, now);
        let mut order = take(&mut turns, now);
        for (passed, failed) in steps {
            now += ms(passed);
            if let Some(turn) = failed.filter(|turn| *turn < order.len()) {
                turns.failed(turn, now);
            }
            let due = turns.due();
            let taken = take(&mut turns, now);
            prop_assert_eq!(!taken.is_empty(), due.is_some_and(|due| due <= now));
            prop_assert!(taken.len() <= 1);
            order.extend(taken);
        }
        prop_assert_eq!(&order, &(0..order.len()).collect::<Vec<_>>());
        // Whoever waits long enough, or fails, brings all the others.
        for _ in order.len()..count {
            prop_assert!(turns.due().is_some());
            now += HEDGE;
            prop_assert_eq!(take(&mut turns, now).len(), 1);
        }
        prop_assert_eq!(turns.due(), None);
    }
}
