//! The table of states and events.

use super::*;

/// Feeds events and returns the effects they have.
fn effects(events: &[Event]) -> (State, Vec<Effect>) {
    let mut state = State::Ready;
    let mut seen = Vec::new();
    for event in events {
        let (next, effect) = handle(state, *event);
        state = next;
        seen.extend(effect);
    }
    (state, seen)
}

/// The events up to the moment when a step is under way.
fn until(step: Step) -> Vec<Event> {
    let place = Step::ALL.iter().position(|other| *other == step).unwrap();
    let mut events = vec![Event::Start];
    events.extend(vec![Event::Done; place]);
    events
}

fn connected() -> Vec<Event> {
    let mut events = until(Step::Verify);
    events.push(Event::Done);
    events
}

#[test]
fn the_steps_run_in_order_and_the_session_is_announced_once() {
    let (state, seen) = effects(&connected());

    let mut expected: Vec<_> = Step::ALL.into_iter().map(Effect::Run).collect();
    expected.push(Effect::Announce);
    assert_eq!(seen, expected);
    assert_eq!(state, State::Connected(Health::Good));
}

#[test]
fn the_machine_is_touched_only_after_the_probe_and_verified_last() {
    assert!(Step::Probe < Step::PointOs);
    assert!(Step::PointOs < Step::Hosts);
    assert_eq!(Step::ALL.last(), Some(&Step::Verify));
}

#[test]
fn a_failed_step_undoes_what_was_reached_in_reverse() {
    let host = [Undo::RestoreHost, Undo::RemoveLink, Undo::CloseSession];
    let table: [(Step, &[Undo]); 14] = [
        (Step::Recover, &[]),
        (Step::ReadDns, &[]),
        (Step::Dial, &host[2..]),
        (Step::OpenSession, &host[2..]),
        (Step::Claim, &host[2..]),
        (Step::Plan, &host[2..]),
        (Step::Link, &host[1..]),
        (Step::Resolver, &host[1..]),
        (Step::Routes, &host[1..]),
        (Step::Probe, &host[1..]),
        (Step::Proxy, &host[1..]),
        (Step::PointOs, &host),
        (Step::Hosts, &host),
        (Step::Verify, &host),
    ];
    for (step, undos) in table {
        let mut events = until(step);
        let before = effects(&events).1.len();
        events.push(Event::Failed);
        events.extend(vec![Event::Undone; undos.len()]);

        let (state, seen) = effects(&events);

        let mut expected: Vec<_> = undos.iter().copied().map(Effect::Undo).collect();
        expected.push(Effect::End(Ending::Failed(step)));
        assert_eq!(seen[before..], expected, "{step:?}");
        assert_eq!(state, State::Ended(Ending::Failed(step)));
    }
}

#[test]
fn a_signal_interrupts_a_step_that_only_asks_and_waits_for_one_that_changes_the_machine() {
    for step in Step::ALL {
        let mut events = until(step);
        let before = effects(&events).1.len();
        events.push(Event::Stop(Stop::Signal));
        let (state, seen) = effects(&events);

        let expected: &[Effect] = if step.is_interruptible() {
            &[Effect::Interrupt]
        } else {
            &[]
        };
        assert_eq!(&seen[before..], expected, "{step:?}");
        assert_eq!(state, State::Connecting(step, Some(Stop::Signal)));

        events.push(Event::Failed);
        events.extend(vec![Event::Undone; 4]);
        assert_eq!(
            effects(&events).0,
            State::Ended(Ending::Interrupted(Stop::Signal))
        );
    }
}

#[test]
fn a_closed_session_restores_the_machine_then_lingers_then_removes_the_link() {
    let mut events = connected();
    let before = effects(&events).1.len();
    events.push(Event::Stop(Stop::Disconnect));
    events.extend(vec![Event::Undone; 4]);

    let (_, seen) = effects(&events);

    assert_eq!(
        seen[before..],
        [
            Effect::Undo(Undo::RestoreHost),
            Effect::Undo(Undo::Linger),
            Effect::Undo(Undo::RemoveLink),
            Effect::Undo(Undo::CloseSession),
            Effect::End(Ending::Closed(Stop::Disconnect)),
        ]
    );
}

#[test]
fn a_second_signal_cuts_the_wait_and_nothing_else() {
    let mut events = connected();
    events.extend([
        Event::Stop(Stop::Signal),
        Event::Stop(Stop::Signal),
        Event::Undone,
    ]);
    let (_, before) = effects(&events);
    assert_eq!(before.last(), Some(&Effect::Undo(Undo::Linger)));

    events.push(Event::Stop(Stop::Disconnect));
    assert_eq!(effects(&events).1.len(), before.len());

    events.push(Event::Stop(Stop::Signal));
    assert_eq!(effects(&events).1.last(), Some(&Effect::CutLinger));
}

#[test]
fn routes_refresh_the_hosts_only_while_connected() {
    let refreshes = |events: &[Event]| {
        let (_, seen) = effects(events);
        seen.iter()
            .filter(|effect| **effect == Effect::RefreshHosts)
            .count()
    };
    let mut early = until(Step::Hosts);
    early.push(Event::RoutesChanged);
    assert_eq!(refreshes(&early), 0);

    let mut events = connected();
    events.push(Event::RoutesChanged);
    assert_eq!(refreshes(&events), 1);

    events.extend([Event::Stop(Stop::Disconnect), Event::RoutesChanged]);
    assert_eq!(refreshes(&events), 1);
}

#[test]
fn a_lost_tunnel_degrades_the_session_and_touches_nothing() {
    let mut events = connected();
    let before = effects(&events).1.len();
    events.push(Event::Tunnel(Health::Degraded));

    let (state, seen) = effects(&events);

    assert_eq!(state, State::Connected(Health::Degraded));
    assert_eq!(seen.len(), before);
}

#[test]
fn a_stop_before_the_start_ends_at_once() {
    let (state, _) = effects(&[Event::Stop(Stop::Signal)]);

    assert_eq!(state, State::Ended(Ending::Interrupted(Stop::Signal)));
}

#[test]
fn drift_is_looked_into_only_while_connected() {
    let verifications = |events: &[Event]| {
        let (_, seen) = effects(events);
        seen.iter()
            .filter(|effect| **effect == Effect::Verify)
            .count()
    };
    let mut early = until(Step::Verify);
    early.push(Event::Drifted);
    assert_eq!(verifications(&early), 0);

    let mut events = connected();
    events.extend([Event::Tunnel(Health::Degraded), Event::Drifted]);
    assert_eq!(verifications(&events), 1);

    events.extend([Event::Stop(Stop::Signal), Event::Drifted]);
    assert_eq!(verifications(&events), 1);
}
