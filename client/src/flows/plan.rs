//! How many data connections there shall be, and which flows move. Pure.

use std::time::Duration;

use crate::control::way::Place;

/// A connection beyond the first that carried nothing for this long is dropped.
const QUIET: Duration = Duration::from_secs(30);

/// A data connection as far as this goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) id: u64,
    pub(super) place: Place,
    /// Whether it has echoed; else it is being opened.
    pub(super) is_ready: bool,
    /// Open flows.
    pub(super) flows: usize,
    /// Flows that move much.
    pub(super) busy: usize,
    /// How long nothing was open on it.
    pub(super) quiet: Duration,
    /// Whether echoes were late lately.
    pub(super) is_lossy: bool,
}

/// What to do about the connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Open one more to a place.
    Open(Place),
    /// Drop one.
    Close(u64),
    /// Move one busy flow to another connection.
    Move {
        /// The connection that has too many.
        from: u64,
    },
}

/// Decides what to do. `home` is where new flows go, `waiting` are places that flows wait for,
/// `most` connections may lead home.
pub(super) fn plan(
    connections: &[Seen],
    home: &Place,
    waiting: &[Place],
    most: usize,
) -> Vec<Action> {
    let mut actions = Vec::new();
    for place in waiting.iter().filter(|place| *place != home) {
        if !connections.iter().any(|one| one.place == *place) {
            actions.push(Action::Open(place.clone()));
        }
    }
    let at_home: Vec<_> = connections
        .iter()
        .filter(|one| one.place == *home)
        .collect();
    let missing = wanted(&at_home, most).saturating_sub(at_home.len());
    actions.extend((0..missing).map(|_| Action::Open(home.clone())));
    if missing == 0 {
        let uneven = unevenness(&at_home).into_iter();
        actions.extend(uneven.map(|from| Action::Move { from }));
        actions.extend(superfluous(&at_home).map(Action::Close));
    }
    let elsewhere = connections.iter().filter(|one| {
        one.place != *home && one.is_ready && one.flows == 0 && !waiting.contains(&one.place)
    });
    actions.extend(elsewhere.map(|one| Action::Close(one.id)));
    actions
}

fn wanted(connections: &[&Seen], most: usize) -> usize {
    let busy: usize = connections.iter().map(|one| one.busy).sum();
    let for_busy = if busy >= 2 { busy } else { 1 };
    let is_lossy = busy > 0 && connections.iter().any(|one| one.is_lossy);
    let for_loss = if is_lossy { most } else { 1 };
    for_busy.max(for_loss).min(most)
}

/// The connections with busy flows that others have room for: one for each flow to move, so that
/// none has two more than another. All at once, as soon as all connections are there: what moves
/// stands still for a round trip, so that it shall not move twice.
fn unevenness(connections: &[&Seen]) -> Vec<u64> {
    let mut moves = Vec::new();
    if connections.iter().any(|one| !one.is_ready) {
        return moves;
    }
    let mut loads: Vec<_> = connections.iter().map(|one| (one.busy, one.id)).collect();
    loop {
        loads.sort_unstable();
        let [least, .., most] = loads.as_mut_slice() else {
            return moves;
        };
        if most.0 < least.0 + 2 {
            return moves;
        }
        moves.push(most.1);
        most.0 -= 1;
        least.0 += 1;
    }
}

/// Connections beyond the first that nobody uses.
fn superfluous(connections: &[&Seen]) -> Option<u64> {
    let count = connections.iter().filter(|one| one.is_ready).count();
    let unused = connections
        .iter()
        .filter(|one| one.is_ready && one.flows == 0 && one.quiet >= QUIET);
    unused.map(|one| one.id).max().filter(|_| count > 1)
}

/// Chooses the connection for a flow among those of its place: the one with the fewest busy
/// flows, then with the fewest.
pub(super) fn least_loaded(connections: &[Seen], place: &Place) -> Option<u64> {
    connections
        .iter()
        .filter(|one| one.is_ready && one.place == *place)
        .min_by_key(|one| (one.busy, one.flows, one.id))
        .map(|one| one.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(connections: &[Seen], home: &Place, waiting: &[Place]) -> Vec<Action> {
        super::plan(connections, home, waiting, 4)
    }

    fn home() -> Place {
        Place::named("new")
    }

    fn seen(id: u64, flows: usize, busy: usize) -> Seen {
        Seen {
            id,
            place: home(),
            is_ready: true,
            flows,
            busy,
            quiet: Duration::ZERO,
            is_lossy: false,
        }
    }

    #[test]
    fn there_is_one_connection_until_two_flows_are_busy() {
        assert_eq!(plan(&[], &home(), &[]), [Action::Open(home())]);
        assert_eq!(plan(&[seen(1, 100, 1)], &home(), &[]), []);
        let opens = |busy| plan(&[seen(1, 100, busy)], &home(), &[]).len();
        assert_eq!([2, 3, 4, 50].map(opens), [1, 2, 3, 3]);
    }

    #[test]
    fn there_are_no_more_connections_than_there_may_be() {
        let lossy = Seen {
            is_lossy: true,
            ..seen(1, 100, 50)
        };
        assert_eq!(super::plan(&[lossy], &home(), &[], 1), []);
        assert_eq!(super::plan(&[seen(1, 9, 9)], &home(), &[], 3).len(), 2);
    }

    #[test]
    fn a_busy_flow_on_a_lossy_connection_gets_the_others_company() {
        let lossy = |busy| Seen {
            is_lossy: true,
            ..seen(1, 3, busy)
        };
        assert_eq!(plan(&[lossy(0)], &home(), &[]), []);
        assert_eq!(plan(&[lossy(1)], &home(), &[]).len(), 3);
    }

    #[test]
    fn one_that_is_being_opened_counts() {
        let opening = Seen {
            is_ready: false,
            ..seen(2, 0, 0)
        };
        assert_eq!(plan(&[seen(1, 2, 2), opening.clone()], &home(), &[]), []);
        assert_eq!(plan(&[opening], &home(), &[]), []);
    }

    #[test]
    fn busy_flows_are_spread_and_others_stay() {
        let uneven = [seen(1, 9, 3), seen(2, 0, 0), seen(3, 500, 0)];
        let moves = [Action::Move { from: 1 }, Action::Move { from: 1 }];
        assert_eq!(plan(&uneven, &home(), &[]), moves);
        let opening = Seen {
            is_ready: false,
            ..seen(4, 0, 0)
        };
        let [one, two, three] = uneven;
        assert_eq!(plan(&[one, two, three, opening], &home(), &[]), []);
        let even = [seen(1, 9, 2), seen(2, 0, 1), seen(3, 500, 1)];
        assert_eq!(plan(&even, &home(), &[]), [Action::Open(home())]);
    }

    #[test]
    fn a_connection_that_nobody_used_for_a_while_is_dropped_but_not_the_last() {
        let quiet = |id| Seen {
            quiet: QUIET,
            ..seen(id, 0, 0)
        };
        assert_eq!(plan(&[quiet(1)], &home(), &[]), []);
        let two = [quiet(1), quiet(2)];
        assert_eq!(plan(&two, &home(), &[]), [Action::Close(2)]);
        assert_eq!(plan(&[seen(1, 1, 0), seen(2, 0, 0)], &home(), &[]), []);
    }

    #[test]
    fn the_place_of_flows_that_wait_gets_a_connection_as_long_as_they_do() {
        let old = Place::named("old");
        let here = seen(1, 0, 0);
        let there = Seen {
            place: old.clone(),
            ..seen(2, 0, 0)
        };
        let waiting = [old.clone()];
        assert_eq!(
            plan(std::slice::from_ref(&here), &home(), &waiting),
            [Action::Open(old)]
        );
        let both = [here, there];
        assert_eq!(plan(&both, &home(), &waiting), []);
        assert_eq!(plan(&both, &home(), &[]), [Action::Close(2)]);
    }

    #[test]
    fn a_flow_goes_where_the_least_moves() {
        let connections = [seen(1, 5, 1), seen(2, 9, 0), seen(3, 7, 0)];
        assert_eq!(least_loaded(&connections, &home()), Some(3));
        assert_eq!(least_loaded(&connections, &Place::named("old")), None);
    }
}
