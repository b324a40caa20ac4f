use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::world::{Wire, World, octets};
use crate::flow::How;

const MEMORY: usize = usize::MAX / 2;

#[tokio::test(start_paused = true)]
async fn f2_the_laptop_ends_first_and_still_receives() {
    let (mut laptop, mut service, carrying) = World::open(vec![], MEMORY, 1024).await.split();
    laptop.stream.write_all(b"question").await.unwrap();
    laptop.stream.shutdown().await.unwrap();
    let mut asked = String::new();
    service.stream.read_to_string(&mut asked).await.unwrap();

    service.stream.write_all(b"answer").await.unwrap();
    service.stream.shutdown().await.unwrap();
    let mut answer = String::new();
    laptop.stream.read_to_string(&mut answer).await.unwrap();

    assert_eq!((&*asked, &*answer), ("question", "answer"));
    let (near, far) = World::ended(carrying).await;
    assert_eq!((near.how, far.how), (How::Finished, How::Finished));
    assert_eq!((near.reached, far.reached), (7, 9));
}

#[tokio::test(start_paused = true)]
async fn f2_the_service_ends_first_and_still_receives() {
    let (mut laptop, mut service, carrying) = World::open(vec![], MEMORY, 1024).await.split();
    service.stream.write_all(b"welcome").await.unwrap();
    service.stream.shutdown().await.unwrap();
    let mut welcome = String::new();
    laptop.stream.read_to_string(&mut welcome).await.unwrap();

    laptop.stream.write_all(b"goodbye").await.unwrap();
    laptop.stream.shutdown().await.unwrap();
    let mut goodbye = String::new();
    service.stream.read_to_string(&mut goodbye).await.unwrap();

    assert_eq!((&*welcome, &*goodbye), ("welcome", "goodbye"));
    let (near, far) = World::ended(carrying).await;
    assert_eq!((near.how, far.how), (How::Finished, How::Finished));
}

#[tokio::test(start_paused = true)]
async fn f2_both_end_at_the_same_time() {
    let (laptop, service, carrying) = World::open(vec![], MEMORY, 1024).await.split();
    let (got, asked) = tokio::join!(
        laptop.exchange(b"a".to_vec(), 1),
        service.exchange(b"b".to_vec(), 1)
    );
    assert_eq!((got, asked), (b"b".to_vec(), b"a".to_vec()));
    let (near, far) = World::ended(carrying).await;
    assert_eq!((near.how, far.how), (How::Finished, How::Finished));
}

#[tokio::test(start_paused = true)]
async fn f2_a_reset_at_the_laptop_resets_the_service() {
    let (mut laptop, service, carrying) = World::open(vec![], MEMORY, 1024).await.split();
    laptop.stream.write_all(b"half a quest").await.unwrap();

    laptop.reset();

    let (near, far) = World::ended(carrying).await;
    assert_eq!((near.how, far.how), (How::LocalReset, How::PeerReset));
    assert!(service.was_reset());
}

#[tokio::test(start_paused = true)]
async fn f2_a_reset_at_the_service_resets_the_laptop() {
    let (laptop, service, carrying) = World::open(vec![], MEMORY, 1024).await.split();

    service.reset();

    let (near, far) = World::ended(carrying).await;
    assert_eq!((near.how, far.how), (How::PeerReset, How::LocalReset));
    assert!(laptop.was_reset());
}

#[tokio::test(start_paused = true)]
async fn f2_what_was_sent_before_a_reset_arrives_before_it() {
    let world = World::open(vec![], MEMORY, 1024).await;
    let meter = Arc::clone(&world.meter);
    let (mut laptop, mut service, carrying) = world.split();
    let all = octets(40_000, 0);
    laptop.stream.write_all(&all).await.unwrap();
    while meter.sent() < 40_000 {
        tokio::task::yield_now().await;
    }

    laptop.reset();

    let mut heard = vec![0; all.len()];
    service.stream.read_exact(&mut heard).await.unwrap();
    assert!(heard == all);
    let (near, far) = World::ended(carrying).await;
    assert_eq!((near.how, far.how), (How::LocalReset, How::PeerReset));
    assert!(service.was_reset());
}

#[tokio::test(start_paused = true)]
async fn f2_what_was_sent_before_a_reset_arrives_over_another_stream() {
    let wires = vec![Wire {
        after: 20_000,
        is_silent: false,
    }];
    let world = World::open(wires, MEMORY, 1024).await;
    let meter = Arc::clone(&world.meter);
    let (mut laptop, mut service, carrying) = world.split();
    let all = octets(12_000, 0);
    laptop.stream.write_all(&all).await.unwrap();
    while meter.sent() < 12_000 {
        tokio::task::yield_now().await;
    }
    laptop.reset();
    // The answer is too much for the wire, which breaks with the reset still waiting.
    service.stream.write_all(&octets(12_000, 0)).await.unwrap();

    let mut heard = vec![0; all.len()];
    service.stream.read_exact(&mut heard).await.unwrap();

    assert!(heard == all);
    let (near, far) = World::ended(carrying).await;
    assert_eq!((near.how, far.how), (How::LocalReset, How::PeerReset));
}

#[tokio::test(start_paused = true)]
async fn f2_a_reset_is_seen_while_the_other_side_takes_nothing() {
    let (mut laptop, service, carrying) = World::open(vec![], MEMORY, 1024).await.split();
    let all = octets(10_000_000, 0);
    let stalled = tokio::time::timeout(
        std::time::Duration::from_secs(60),
        laptop.stream.write_all(&all),
    );
    assert!(stalled.await.is_err(), "nobody reads");

    laptop.reset();

    let (near, far) = World::ended(carrying).await;
    assert_eq!((near.how, far.how), (How::LocalReset, How::PeerReset));
    assert!(service.was_reset());
}

#[tokio::test(start_paused = true)]
async fn a_reset_of_a_flow_without_a_stream_is_told_over_the_next() {
    let wires = vec![Wire {
        after: 3_000,
        is_silent: false,
    }];
    let (mut laptop, service, carrying) = World::open(wires, MEMORY, 1024).await.split();
    // The wire breaks under this, and what carries the flow sees the reset on another one.
    let _ = laptop.stream.write_all(&octets(1_024, 0)).await;
    laptop.reset();

    let (near, far) = World::ended(carrying).await;
    assert_eq!((near.how, far.how), (How::LocalReset, How::PeerReset));
    assert!(service.was_reset());
}
