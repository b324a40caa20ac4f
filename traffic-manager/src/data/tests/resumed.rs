//! Flows that lose their connection.

use std::future::poll_fn;

use kubebridge_proto::flow::{How, Reattach};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::ends::{Never, pattern, program};
use super::*;
use crate::data::again::{Again, Handover};
use crate::data::table::PARKED;

/// Goes on over connections as they are made.
struct Anew {
    connections: mpsc::Receiver<Laptop>,
    open: Open,
    /// Kept, so that they live.
    used: Vec<Laptop>,
}

impl Reattach for Anew {
    async fn reattach(&mut self, received: u64) -> Option<(Attached, u64)> {
        self.open.resume = Some(received);
        loop {
            let laptop = self.connections.recv().await?;
            match laptop.ask(&self.open).await {
                Some(Ok((stream, at))) => {
                    self.used.push(laptop);
                    return Some((stream, at?));
                }
                Some(Err(_)) => return None,
                None => {}
            }
        }
    }
}

#[tokio::test]
async fn f5_a_flow_survives_the_loss_of_its_connection_again_and_again() {
    let mut world = World::new();
    let listener = world.listener(SHOP).await;
    let (connections, coming) = mpsc::channel(1);
    let open = world.open_tcp(SHOP);
    let first = world.connect().await;
    let (stream, accepted) = tokio::join!(first.open(&open), listener.accept());
    let again = Anew {
        connections: coming,
        open,
        used: Vec::new(),
    };
    let (near, _, ended) = program(stream.unwrap(), again);
    let (mut read, mut write) = tokio::io::split(near);
    let (mut far_read, mut far_write) = accepted.unwrap().0.into_split();
    let sent = pattern(6 << 20);
    let (up, down) = (sent.clone(), sent.clone());
    let up = tokio::spawn(async move {
        write.write_all(&up).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let down = tokio::spawn(async move {
        far_write.write_all(&down).await.unwrap();
        far_write.shutdown().await.unwrap();
    });
    let far = tokio::spawn(async move {
        let mut received = Vec::new();
        far_read.read_to_end(&mut received).await.unwrap();
        received
    });
    // Cuts after so much has come down each time.
    let mut laptop = Some(first.connection);
    let mut received = Vec::new();
    let mut buffer = vec![0; 100_000];
    let mut cuts = 0;
    loop {
        let length = within("more octets", read.read(&mut buffer)).await.unwrap();
        if length == 0 {
            break;
        }
        received.extend_from_slice(&buffer[..length]);
        if received.len() > (cuts + 1) * 250_000 && cuts < 20 {
            cuts += 1;
            if let Some(connection) = laptop.take() {
                connection.abort();
            }
            let next = world.connect().await;
            let Laptop {
                requests,
                connection,
            } = next;
            let kept = tokio::spawn(async {});
            connections
                .send(Laptop {
                    requests,
                    connection: kept,
                })
                .await
                .unwrap();
            laptop = Some(connection);
        }
    }
    assert_eq!(cuts, 20);
    assert!(received == sent);
    assert!(within("the way up", far).await.unwrap() == sent);
    up.await.unwrap();
    down.await.unwrap();
    drop(connections);
    assert_eq!(within("the end", ended).await.unwrap().how, How::Finished);
    let closed = world.line("flow-close").await;
    assert_eq!(closed["bytes_up"], 6 << 20);
    assert_eq!(closed["bytes_down"], 6 << 20);
}

#[tokio::test]
async fn a_flow_is_handed_over_while_its_old_stream_seems_well() {
    let world = World::new();
    let listener = world.listener(SHOP).await;
    let mut open = world.open_tcp(SHOP);
    // Never cut: as a connection into a black hole, which the laptop notices first.
    let old = world.connect().await;
    let (stream, accepted) = tokio::join!(old.open(&open), listener.accept());
    let stream = stream.unwrap();
    let mut far = accepted.unwrap().0;
    let new = world.connect().await;
    open.resume = Some(0);
    let asked = within("the hand-over", new.ask(&open)).await.unwrap();
    let (next, at) = asked.unwrap();
    assert_eq!(at, Some(0));
    let (mut near, _, _ended) = program(next, Never);
    far.write_all(b"down").await.unwrap();
    let mut text = [0; 4];
    within("the way down", near.read_exact(&mut text))
        .await
        .unwrap();
    assert_eq!(&text, b"down");
    drop(stream);
}

#[tokio::test]
async fn a_flow_of_another_session_or_of_none_is_gone() {
    let world = World::new();
    let listener = world.listener(SHOP).await;
    let laptop = world.connect().await;
    let mut open_flow = world.open_tcp(SHOP);
    let (stream, _accepted) = tokio::join!(laptop.open(&open_flow), listener.accept());
    let _stream = stream.unwrap();
    open_flow.resume = Some(0);
    let other = open(&world.sessions, Admission::default());
    let mut stolen = open_flow.clone();
    stolen.session = other.id().to_owned();
    assert_eq!(laptop.failure(&stolen).await.kind, FailureKind::Gone);
    open_flow.flow = FlowId::new([9; 16]);
    assert_eq!(laptop.failure(&open_flow).await.kind, FailureKind::Gone);
}

#[tokio::test]
async fn an_end_that_the_laptop_missed_is_told_again() {
    let mut world = World::new();
    let listener = world.listener(SHOP).await;
    let laptop = world.connect().await;
    let mut open = world.open_tcp(SHOP);
    let (stream, accepted) = tokio::join!(laptop.open(&open), listener.accept());
    let (mut near, _, ended) = program(stream.unwrap(), Never);
    let mut far = accepted.unwrap().0;
    near.write_all(b"question").await.unwrap();
    near.shutdown().await.unwrap();
    far.shutdown().await.unwrap();
    assert_eq!(within("the end", ended).await.unwrap().how, How::Finished);
    world.line("flow-close").await;
    open.resume = Some(1);
    let (mut stream, reached) = within("the answer", laptop.ask(&open))
        .await
        .unwrap()
        .unwrap();
    // Eight octets and the end.
    assert_eq!(reached, Some(9));
    assert!(
        within("the credit", stream.receive.data())
            .await
            .unwrap()
            .is_ok()
    );
    assert!(within("the end", stream.receive.data()).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_flow_waits_half_a_minute_for_another_stream_and_no_longer() {
    let handover = Arc::new(Handover::default());
    let counts = crate::metrics::Metrics::new("0").flows();
    let mut again = Again { handover, counts };
    let start = Instant::now();
    assert!(again.reattach(7).await.is_none());
    assert_eq!(start.elapsed(), PARKED);
    let replaced = poll_fn(|context| std::task::Poll::Ready(again.poll_replaced(context))).await;
    assert!(replaced.is_pending());
}

#[tokio::test]
async fn a_flow_whose_laptop_never_comes_back_is_reset_in_the_cluster() {
    let mut world = World::new();
    let listener = world.listener(SHOP).await;
    let laptop = world.connect().await;
    let open_flow = world.open_tcp(SHOP);
    let (stream, accepted) = tokio::join!(laptop.open(&open_flow), listener.accept());
    let mut far = accepted.unwrap().0;
    laptop.cut();
    drop(stream);
    // From here on only time passes.
    let parked = async {
        while world.data.shared.parts.counts.parked_now() == 0 {
            tokio::task::yield_now().await;
        }
    };
    within("the flow to be parked", parked).await;
    tokio::time::pause();
    tokio::time::advance(PARKED + Duration::from_secs(1)).await;
    tokio::time::resume();
    let error = within("the reset", far.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(world.line("flow-close").await["reason"], "lost");
}
