use std::time::Duration;

use bytes::Bytes;
use kubebridge_proto::flow::How;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{sleep, timeout};

use super::world::{ECHO, REFUSED, SILENT, World, pipe, to};
use crate::flows::{Answer, Failure, Opener};

#[tokio::test(start_paused = true)]
async fn a_flow_carries_octets_and_counts_them() {
    let world = World::start();
    let mut talk = world.echo().await;
    talk.say(&[7; 300_000]).await;

    let ended = talk.end().await;

    assert_eq!(ended.how, How::Finished);
    let status = world.flows.status();
    assert_eq!((status.open, status.opened), (0, 1));
    assert_eq!((status.sent, status.received), (300_000, 300_000));
    assert_eq!(status.connections.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn f1_a_refused_flow_says_so_and_is_counted() {
    let world = World::start();
    let failure = world.flows.open_tcp(to(REFUSED)).await.err().unwrap();
    assert_eq!(failure.answer(), Answer::Reset);
    let status = world.flows.status();
    assert_eq!(status.failures, [("refused".to_owned(), 1)].into());
    assert_eq!(status.open, 0);
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_nobody_waits_for_any_longer_is_not_kept() {
    let world = World::start();
    let opening = world.flows.open_tcp(to(SILENT));
    assert!(timeout(Duration::from_secs(5), opening).await.is_err());
    assert_eq!(world.flows.status().open, 0);
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_is_let_go_is_reset_at_the_manager() {
    let world = World::start();
    let flow = world.flows.open_tcp(to(ECHO)).await.unwrap();
    drop(flow);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.manager.ended.lock()[0].how, How::PeerReset);
    assert_eq!(world.flows.status().open, 0);
}

#[tokio::test(start_paused = true)]
async fn f2_the_flow_over_the_cap_is_refused_and_one_that_ends_makes_room() {
    let world = World::start();
    world
        .session
        .send_modify(|session| session.limits.flows = Some(2));
    let (one, other) = (world.echo().await, world.echo().await);

    let third = world.flows.open_tcp(to(ECHO)).await.err().unwrap();
    assert_eq!(
        (third.clone(), third.answer()),
        (Failure::Full, Answer::Reset)
    );
    one.end().await;

    world.echo().await.end().await;
    other.end().await;
    assert_eq!(
        world.flows.status().failures,
        [("too-many".to_owned(), 1)].into()
    );
}

#[tokio::test(start_paused = true)]
async fn a_flow_waits_for_the_session_that_replaces_a_forgotten_one() {
    let world = World::start();
    *world.manager.sessions.lock() = vec!["second".to_owned()];
    let opening = world.flows.open_tcp(to(ECHO));
    let renewing = async {
        sleep(Duration::from_secs(1)).await;
        world
            .session
            .send_modify(|session| session.id = "second".to_owned());
    };

    let (opened, ()) = tokio::join!(opening, renewing);

    assert!(opened.is_ok());
    assert_eq!(world.manager.asked.lock().last().unwrap(), "second");
}

#[tokio::test(start_paused = true)]
async fn without_a_way_a_flow_fails_before_its_program_gives_up() {
    let world = World::start();
    *world.wires.mood.lock() = super::world::Mood::Refused;
    let opening = timeout(Duration::from_secs(6), world.flows.open_tcp(to(ECHO)));
    let failure = opening.await.expect("a failure in time").err().unwrap();
    assert_eq!(failure, Failure::Down);
    // And it works as soon as there is one.
    *world.wires.mood.lock() = super::world::Mood::Good;
    world.echo().await.end().await;
}

#[tokio::test(start_paused = true)]
async fn f4_flows_that_nobody_reads_do_not_slow_another() {
    let world = World::start();
    let mut stalled = Vec::new();
    for _ in 0..100 {
        let mut talk = world.echo().await;
        let mut stream = talk.stream.take().unwrap();
        // More than both ends and the wire keep: it stalls for good.
        let writing = tokio::spawn(async move { stream.write_all(&[0; 2_000_000]).await });
        stalled.push((talk, writing));
    }
    sleep(Duration::from_secs(30)).await;
    assert!(stalled.iter().all(|(_, writing)| !writing.is_finished()));
    // With the connection's window gone nothing at all would come.
    let mut talk = world.echo().await;
    talk.say(&vec![5; 5_000_000]).await;
    talk.end().await;
}

#[tokio::test(start_paused = true)]
async fn f6_datagrams_come_back_and_a_refusal_is_told() {
    let world = World::start();
    let mut flow = world.flows.open_udp(to(53)).await.unwrap();
    flow.send(Bytes::from_static(b"question")).unwrap();
    assert_eq!(flow.recv().await.unwrap(), "question");

    let mut refused = world.flows.open_udp(to(REFUSED)).await.unwrap();
    refused.send(Bytes::from_static(b"question")).unwrap();
    assert_eq!(refused.recv().await, None);
    assert!(refused.is_refused());
}

#[tokio::test(start_paused = true)]
async fn f6_a_flow_of_dns_expires_sooner_than_others() {
    let world = World::start();
    let mut dns = world.flows.open_udp(to(53)).await.unwrap();
    let mut other = world.flows.open_udp(to(4433)).await.unwrap();
    let mut ping = world.flows.ping(to(0).ip()).await.unwrap();
    sleep(Duration::from_secs(11)).await;
    assert!(dns.is_over() && ping.is_over() && !other.is_over());
    assert_eq!((dns.recv().await, ping.recv().await), (None, None));
    assert_eq!(other.recv().await, None);
    assert_eq!(world.flows.status().open, 0);
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_session_ends_its_flows() {
    let world = World::start();
    let flow = world.flows.open_tcp(to(ECHO)).await.unwrap();
    let mut datagrams = world.flows.open_udp(to(4433)).await.unwrap();
    let (local, mut stream) = pipe();
    let carrying = tokio::spawn(flow.carry(Box::new(local)));
    stream.write_all(b"hello").await.unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).await.unwrap();

    world.flows.stop().await;

    assert_eq!(datagrams.recv().await, None);
    let ended = timeout(Duration::from_secs(60), carrying)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ended.how, How::Lost);
}
