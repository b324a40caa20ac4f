use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use kubebridge_proto::flow::How;
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep, timeout};

use super::world::{ECHO, Mood, World, to};
use crate::flows::{DatagramFlow, Opener};

#[tokio::test(start_paused = true)]
async fn there_is_no_connection_before_one_is_wanted_and_one_from_then_on() {
    let world = World::start();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.wires.opened(), 0);
    world.flows.warm();
    world.connections(1).await;
    sleep(Duration::from_secs(3600)).await;
    assert_eq!(world.wires.opened(), 1);
}

#[tokio::test(start_paused = true)]
async fn f5_fifty_flows_survive_a_hundred_cuts_and_new_ones_work_at_once() {
    let world = World::start();
    let mut talks = Vec::new();
    for _ in 0..50 {
        talks.push(world.echo().await);
    }
    for cut in 0..100_usize {
        let is_silent = cut % 5 == 4;
        let wire = world.wires.opened() - 1;
        world.wires.lose(wire, is_silent);
        let start = Instant::now();
        let mut new = world.echo().await;
        new.say(b"new").await;
        let most = Duration::from_secs(if is_silent { 5 } else { 1 });
        assert!(start.elapsed() < most, "{cut}: {:?}", start.elapsed());
        new.end().await;
        for (number, talk) in talks.iter_mut().enumerate() {
            talk.say(&vec![(cut + number) as u8; 1_000 + 37 * number])
                .await;
        }
    }
    for talk in talks {
        let ended = talk.end().await;
        assert_eq!((ended.how, ended.sent), (How::Finished, ended.received));
    }
    let status = world.flows.status();
    assert_eq!((status.lost, status.replaced), (0, 100));
    assert!(status.resumed >= 5000, "{}", status.resumed);
}

#[tokio::test(start_paused = true)]
async fn f5_a_silent_connection_is_noticed_by_its_echoes_and_replaced() {
    let world = World::start();
    let mut talk = world.echo().await;
    talk.say(b"before").await;
    let start = Instant::now();

    world.wires.silence(0);
    talk.say(b"after").await;

    let took = start.elapsed();
    assert!(took <= Duration::from_millis(8_500), "{took:?}");
    assert_eq!(world.flows.status().replaced, 1);
    talk.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_new_flow_on_a_silent_connection_gets_another_within_the_time_of_a_syn() {
    let world = World::start();
    world.echo().await.end().await;
    world.wires.silence(0);
    let start = Instant::now();
    world.echo().await.end().await;
    assert!(
        start.elapsed() <= Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_flow_is_opened_within_the_time_of_a_syn_when_all_connections_are_lost_at_once() {
    for is_silent in [false, true] {
        let world = World::start();
        busy(&world, 4, spread(&world)).await;
        for wire in 0..world.wires.opened() {
            world.wires.lose(wire, is_silent);
        }
        let start = Instant::now();

        let mut new = world.echo().await;
        new.say(b"new").await;

        let took = start.elapsed();
        assert!(took <= Duration::from_secs(5), "{is_silent}: {took:?}");
        new.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_sleep_a_dead_connection_is_found_at_once() {
    // In whatever order things are polled: what was on its way is no sign of life.
    for _ in 0..32 {
        let world = World::start();
        let mut talk = world.echo().await;
        world.wires.silence(0);
        let start = Instant::now();

        world.flows.doubt();
        talk.say(b"awake").await;

        assert!(
            start.elapsed() <= Duration::from_secs(2),
            "{:?}",
            start.elapsed()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_has_to_echo_before_it_takes_flows() {
    let world = World::start();
    *world.wires.mood.lock() = Mood::Silent;
    let opening = world.flows.open_tcp(to(ECHO));
    let getting_better = async {
        sleep(Duration::from_millis(500)).await;
        *world.wires.mood.lock() = Mood::Good;
    };
    let (opened, ()) = tokio::join!(opening, getting_better);
    assert!(opened.is_ok());
    assert_eq!(world.manager.asked.lock().len(), 1);
    assert_eq!(world.flows.status().replaced, 0);
}

/// Keeps flows busy until something has come about.
async fn busy(world: &World, count: usize, until: impl Future<Output = ()>) {
    let mut talks = Vec::new();
    for _ in 0..count {
        talks.push(world.echo().await);
    }
    let moving = futures::future::join_all(talks.iter_mut().map(|talk| async move {
        loop {
            talk.say(&[1; 200_000]).await;
            sleep(Duration::from_millis(20)).await;
        }
    }));
    let until = timeout(Duration::from_secs(600), until);
    tokio::select! {
        reached = until => reached.expect("it comes about"),
        _ = moving => {}
    }
}

/// Waits until each of four connections has one flow.
async fn spread(world: &World) {
    loop {
        sleep(Duration::from_millis(50)).await;
        let connections = world.flows.status().connections;
        if connections.len() == 4 && connections.iter().all(|one| one.flows == 1) {
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn flows_are_spread_also_when_there_was_a_connection_long_before_them() {
    let world = World::start();
    world.flows.warm();
    world.connections(1).await;
    sleep(Duration::from_secs(60)).await;

    busy(&world, 4, spread(&world)).await;

    assert_eq!(world.flows.status().moved, 3);
}

#[tokio::test(start_paused = true)]
async fn four_busy_flows_are_spread_over_four_connections_and_quiet_ones_are_dropped() {
    let world = World::start();
    busy(&world, 4, spread(&world)).await;
    assert!(world.flows.status().moved >= 3);
    assert_eq!(world.flows.status().lost, 0);

    world.connections(1).await;
    assert_eq!(world.flows.status().replaced, 0);
}

#[tokio::test(start_paused = true)]
async fn one_silent_connection_does_not_disturb_the_others() {
    let world = World::start();
    let silenced = async {
        world.connections(4).await;
        sleep(Duration::from_secs(5)).await;
        world.wires.silence(2);
        let mut ready = world.flows.shared.ready.subscribe();
        ready.mark_unchanged();
        ready.wait_for(|ready| ready.len() < 4).await.unwrap();
        sleep(Duration::from_secs(5)).await;
    };
    busy(&world, 4, silenced).await;
    let status = world.flows.status();
    assert_eq!((status.replaced, status.lost), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn flows_of_a_replaced_manager_are_reset_and_new_ones_go_to_the_new() {
    let world = World::start();
    let mut talk = world.echo().await;
    talk.say(b"before").await;

    let second = world.wires.replace("second");
    world
        .wires
        .managers
        .lock()
        .remove(&crate::control::way::Place::named("first"));
    world.wires.cut(0);
    world.session.send_modify(|_| {});

    let mut new = world.echo().await;
    new.say(b"new").await;
    assert_eq!(second.asked.lock().len(), 1);
    let _ = talk.stream.as_mut().unwrap().write_all(b"lost").await;
    let ended = timeout(Duration::from_secs(10), talk.carrying).await;
    assert_eq!(ended.expect("it is not waited for").unwrap().how, How::Lost);
}

#[tokio::test(start_paused = true)]
async fn flows_of_a_manager_that_drains_stay_there_and_go_on_there() {
    let world = World::start();
    let mut talk = world.echo().await;
    talk.say(b"before").await;
    let second = world.wires.replace("second");
    world.session.send_modify(|_| {});
    world.echo().await.end().await;

    world.wires.cut(0);
    talk.say(b"still there").await;

    assert_eq!(second.asked.lock().len(), 1);
    assert_eq!(world.manager.asked.lock().len(), 2);
    assert_eq!(talk.end().await.how, How::Finished);
    // Then nobody needs the old one.
    world.connections(1).await;
}

#[tokio::test(start_paused = true)]
async fn flows_of_a_manager_that_takes_nothing_new_go_on_over_the_connection_they_have() {
    let world = World::start();
    let mut talk = world.echo().await;
    talk.say(b"before").await;

    world.manager.drain.cancel();
    sleep(Duration::from_secs(20)).await;

    talk.say(b"still there").await;
    let status = world.flows.status();
    assert_eq!((status.replaced, status.resumed), (0, 0));
    assert_eq!(talk.end().await.how, How::Finished);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_falls_silent_while_its_manager_ends_is_not_kept() {
    let world = World::start();
    let mut talk = world.echo().await;
    talk.say(b"before").await;
    world.manager.drain.cancel();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.flows.status().replaced, 0);

    world.wires.silence(0);
    sleep(Duration::from_secs(10)).await;

    assert_eq!(world.flows.status().replaced, 1);
}

#[tokio::test(start_paused = true)]
async fn datagrams_are_not_asked_to_move_in_the_place_of_a_stream() {
    let world = World::start();
    let mut datagrams = world.flows.open_udp(to(ECHO)).await.unwrap();
    let mut talk = world.echo().await;
    let shared = &world.flows.shared;
    let connection = shared.ready.borrow()[0].id;
    // Both move much between two looks.
    datagrams_of(&mut datagrams, 64).await;
    talk.say(&[7; 200_000]).await;
    shared.look();
    assert_eq!(shared.ready.borrow()[0].busy.load(Ordering::Relaxed), 2);

    shared.move_one(connection);
    talk.say(b"moved").await;

    let status = world.flows.status();
    assert_eq!((status.moved, status.resumed), (1, 1));
}

/// Sends so many datagrams of 4 KiB and waits for most to come back.
async fn datagrams_of(flow: &mut DatagramFlow, count: usize) {
    for _ in 0..count {
        flow.send(Bytes::from_static(&[7; 4096])).unwrap();
    }
    for _ in 0..count / 2 {
        flow.recv().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn behind_a_balancer_flows_go_to_the_sessions_manager_alone() {
    let world = World::start();
    let other = world.wires.replace("other");
    world.wires.balance(&[&other, &world.manager]);
    let session = world.session.borrow().id.clone();
    other.sessions.lock().push("another".to_owned());
    world.manager.sessions.lock().push(session);

    let mut talks = Vec::new();
    for number in 0..20_usize {
        let mut talk = world.echo().await;
        talk.say(b"to the right one").await;
        talks.push(talk);
        // The next connection is to the other one first, and so is every second.
        world.wires.cut(world.wires.opened() - 1);
        let spoken = vec![number as u8; 10_000];
        for talk in &mut talks {
            talk.say(&spoken).await;
        }
    }

    for talk in talks {
        assert_eq!(talk.end().await.how, How::Finished);
    }
    assert!(other.asked.lock().is_empty());
    assert_eq!(world.flows.status().lost, 0);
}

#[tokio::test(start_paused = true)]
async fn behind_a_balancer_new_flows_follow_the_session_to_another_manager_and_old_ones_stay() {
    let world = World::start();
    let other = world.wires.replace("other");
    world.wires.balance(&[&world.manager, &other]);
    let session = world.session.borrow().id.clone();
    world.manager.sessions.lock().push(session);
    other.sessions.lock().push("moved".to_owned());
    let mut old = world.echo().await;
    old.say(b"before").await;

    world
        .session
        .send_modify(|session| "moved".clone_into(&mut session.id));

    let mut new = world.echo().await;
    new.say(b"at the other").await;
    old.say(b"at the first").await;
    assert_eq!(*other.asked.lock(), ["moved"]);
    assert_eq!(old.end().await.how, How::Finished);
    new.end().await;
    // The connection that was for the old flow alone has gone with it.
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.manager.connections(), 0);
    assert_eq!(other.connections(), 1);
}
