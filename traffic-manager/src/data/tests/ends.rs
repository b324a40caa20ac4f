//! Octets, ends and resets of one flow, and what the audit log says of it.

use kubebridge_proto::flow::{
    Budget, Ended, How, Local, Meter, Reattach, Side, carry, carry_datagrams, queue,
};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

use super::*;

/// The laptop's program: one end of a pipe.
pub(super) struct Program(pub(super) DuplexStream, pub(super) watch::Sender<bool>);

impl Local for Program {
    fn abort(&mut self) {
        self.1.send_replace(true);
    }
}

impl AsyncRead for Program {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Program {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, octets)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Never goes on over another stream.
pub(super) struct Never;

impl Reattach for Never {
    async fn reattach(&mut self, _: u64) -> Option<(Attached, u64)> {
        None
    }
}

/// Carries a stream of the laptop; what its program sees, and how the flow ends.
pub(super) fn program(
    stream: Attached,
    again: impl Reattach + 'static,
) -> (DuplexStream, watch::Receiver<bool>, JoinHandle<Ended>) {
    let (near, far) = duplex(64 * 1024);
    let (aborted, seen) = watch::channel(false);
    let carrying = async move {
        let (memory, meter) = (Budget::new(16 << 20), Meter::default());
        carry(
            Side::Asks,
            Program(far, aborted),
            stream,
            again,
            &memory,
            &meter,
        )
        .await
    };
    (near, seen, tokio::spawn(carrying))
}

/// A flow with both of its ends.
async fn flow(
    world: &World,
    laptop: &Laptop,
) -> (
    DuplexStream,
    TcpStream,
    watch::Receiver<bool>,
    JoinHandle<Ended>,
) {
    let listener = world.listener(SHOP).await;
    let open = world.open_tcp(SHOP);
    let (stream, accepted) = tokio::join!(laptop.open(&open), listener.accept());
    let (near, aborted, ended) = program(stream.unwrap(), Never);
    (near, accepted.unwrap().0, aborted, ended)
}

/// Octets that repeat at no power of two.
pub(super) fn pattern(length: usize) -> Vec<u8> {
    let block: Vec<u8> = (0..251).collect();
    let mut octets = block.repeat(length / block.len() + 1);
    octets.truncate(length);
    octets
}

#[tokio::test]
async fn f2_both_directions_are_carried_to_their_own_ends() {
    let mut world = World::new();
    let laptop = world.connect().await;
    let (mut near, far, _, ended) = flow(&world, &laptop).await;
    let opened = world.line("flow-open").await;
    assert_eq!(opened["namespace"], "shop");
    assert_eq!(opened["service"], "authors");
    assert_eq!(opened["protocol"], "tcp");
    assert_eq!(opened["because"], "service");
    assert_eq!(opened["port"], 80);
    assert_eq!(opened["session"], world.session.id()[..8]);
    let sent = pattern(2 << 20);
    let (mut read, mut write) = far.into_split();
    let up = async {
        near.write_all(&sent).await.unwrap();
        near.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let (_, read) = within("the way up", async {
        tokio::join!(up, read.read_to_end(&mut received))
    })
    .await;
    read.unwrap();
    assert_eq!(received, sent);
    // The program has ended its direction, the other one goes on.
    let down = async {
        write.write_all(&sent[..1 << 20]).await.unwrap();
        write.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let (_, read) = within("the way down", async {
        tokio::join!(down, near.read_to_end(&mut received))
    })
    .await;
    read.unwrap();
    assert_eq!(received, sent[..1 << 20]);
    assert_eq!(within("the end", ended).await.unwrap().how, How::Finished);
    let closed = world.line("flow-close").await;
    assert_eq!(closed["reason"], "finished");
    assert_eq!(closed["bytes_up"], 2 << 20);
    assert_eq!(closed["bytes_down"], 1 << 20);
    assert_eq!(closed["flow"], opened["flow"]);
}

#[tokio::test]
async fn f2_single_octets_pass_one_by_one() {
    let world = World::new();
    let laptop = world.connect().await;
    let (mut near, mut far, _, _ended) = flow(&world, &laptop).await;
    for octet in 0..100 {
        near.write_u8(octet).await.unwrap();
        assert_eq!(within("an octet", far.read_u8()).await.unwrap(), octet);
        far.write_u8(octet).await.unwrap();
        assert_eq!(within("its answer", near.read_u8()).await.unwrap(), octet);
    }
}

#[tokio::test]
async fn f2_a_reset_in_the_cluster_resets_the_laptop() {
    let mut world = World::new();
    let laptop = world.connect().await;
    let (_near, far, mut aborted, ended) = flow(&world, &laptop).await;
    socket2::SockRef::from(&far)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(far);
    assert_eq!(within("the end", ended).await.unwrap().how, How::PeerReset);
    within("the reset", aborted.wait_for(|aborted| *aborted))
        .await
        .unwrap();
    assert_eq!(world.line("flow-close").await["reason"], "reset-by-cluster");
}

#[tokio::test]
async fn f2_a_reset_of_the_laptop_resets_the_cluster() {
    let mut world = World::new();
    let laptop = world.connect().await;
    let listener = world.listener(SHOP).await;
    let open_flow = world.open_tcp(SHOP);
    let (stream, accepted) = tokio::join!(laptop.open(&open_flow), listener.accept());
    let mut far = accepted.unwrap().0;
    stream.unwrap().send.send_reset(h2::Reason::CANCEL);
    let error = within("the reset", far.read_u8()).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    assert_eq!(world.line("flow-close").await["reason"], "reset-by-laptop");
}

#[tokio::test]
async fn f2_both_sides_may_end_at_once() {
    let mut world = World::new();
    let laptop = world.connect().await;
    for _ in 0..20 {
        let (mut near, mut far, _, ended) = flow(&world, &laptop).await;
        let (one, other) = tokio::join!(near.shutdown(), far.shutdown());
        one.unwrap();
        other.unwrap();
        assert_eq!(within("the end", ended).await.unwrap().how, How::Finished);
        assert_eq!(world.line("flow-close").await["reason"], "finished");
    }
}

#[tokio::test]
async fn f4_a_flow_that_nobody_reads_does_not_stop_another() {
    let world = World::new();
    let laptop = world.connect().await;
    let (_stalled, mut far, _, _ended) = flow(&world, &laptop).await;
    // Filled until nothing more is taken, at the cluster's end.
    let (mut near, mut other, _, _other) = flow(&world, &laptop).await;
    let filling = tokio::spawn(async move {
        let octets = pattern(64 << 10);
        // Without an end: no buffer on the way takes it all.
        loop {
            far.write_all(&octets).await.unwrap();
        }
    });
    let moved = pattern(2 << 20);
    let writing = async {
        other.write_all(&moved).await.unwrap();
        other.shutdown().await.unwrap();
    };
    let mut received = Vec::new();
    let (_, read) = within("the other flow", async {
        tokio::join!(writing, near.read_to_end(&mut received))
    })
    .await;
    read.unwrap();
    assert_eq!(received, moved);
    assert!(!filling.is_finished());
    filling.abort();
}

#[tokio::test]
async fn f6_datagrams_are_asked_and_answered() {
    let mut world = World::new();
    let laptop = world.connect().await;
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    world.lead(SHOP_UDP, Ok(server.local_addr().unwrap()));
    let stream = laptop
        .open(&world.open(Protocol::Udp, SHOP_UDP))
        .await
        .unwrap();
    let (down, mut answers) = queue::channel();
    let (questions, up) = queue::channel();
    let carrying = tokio::spawn(async move {
        let meter = Meter::default();
        carry_datagrams((up, down), stream, Duration::from_secs(600), &meter).await
    });
    let mut buffer = vec![0; 1 << 16];
    for length in [0, 1, 1400, 60_000] {
        questions.send(pattern(length).into()).unwrap();
        let (received, from) = within("a datagram", server.recv_from(&mut buffer))
            .await
            .unwrap();
        assert_eq!(buffer[..received], pattern(length));
        server.send_to(&pattern(length + 1), from).await.unwrap();
        let answer = within("its answer", answers.recv()).await.unwrap();
        assert_eq!(answer, pattern(length + 1));
    }
    drop(questions);
    within("the end", carrying).await.unwrap();
    let closed = world.line("flow-close").await;
    assert_eq!(closed["protocol"], "udp");
    assert_eq!(closed["bytes_up"], 61_401);
    assert_eq!(closed["bytes_down"], 61_405);
}
