//! Which frames a short exchange costs: each one wakes the other end.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use super::world::{Program, open, pipe};
use crate::flow::state::FIRST_WINDOW;
use crate::flow::{
    Attached, Budget, Credit, Ended, Frame, FrameReader, Meter, Reattach, Side, accepted, carry,
    http2,
};

/// A flow that has one stream.
struct Never;

impl Reattach for Never {
    async fn reattach(&mut self, _: u64) -> Option<(Attached, u64)> {
        None
    }
}

/// Both ends of a stream.
async fn stream() -> (Attached, Peer) {
    let (ours, theirs) = duplex(64 * 1024);
    let serving = tokio::spawn(async move {
        let mut connection = http2::server().handshake::<_, Bytes>(theirs).await.unwrap();
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        let send = respond.send_response(accepted(None), false).unwrap();
        tokio::spawn(async move { while connection.accept().await.is_some() {} });
        let receive = request.into_body();
        Attached { send, receive }
    });
    let (requests, connection) = http2::client().handshake(ours).await.unwrap();
    tokio::spawn(connection);
    let mut requests = requests.ready().await.unwrap();
    let (response, send) = requests
        .send_request(open(None).request().unwrap(), false)
        .unwrap();
    let stream = serving.await.unwrap();
    let receive = response.await.unwrap().into_body();
    let peer = Peer {
        stream,
        reader: FrameReader::stream(),
    };
    (Attached { send, receive }, peer)
}

/// The other end, frame by frame.
struct Peer {
    stream: Attached,
    reader: FrameReader,
}

impl Peer {
    async fn next(&mut self) -> Frame {
        loop {
            if let Some(frame) = self.reader.read().unwrap() {
                return frame;
            }
            let octets = self.stream.receive.data().await.unwrap().unwrap();
            self.reader.push(octets);
        }
    }

    fn say(&mut self, frame: &Frame) {
        self.stream.send.send_data(frame.encode(), false).unwrap();
    }
}

/// A flow whose one end is carried, its program, and the peer.
async fn flow(side: Side) -> (Program, Peer, JoinHandle<Ended>) {
    let (ours, peer) = stream().await;
    let (near, program) = pipe(1024);
    let carrying = tokio::spawn(async move {
        let (memory, meter) = (Budget::new(1 << 20), Meter::default());
        carry(side, near, ours, Never, &memory, &meter).await
    });
    (program, peer, carrying)
}

fn credit(consumed: u64) -> Frame {
    Frame::Credit(Credit {
        consumed,
        window: u32::try_from(FIRST_WINDOW).unwrap(),
    })
}

#[tokio::test(start_paused = true)]
async fn the_window_of_who_asked_goes_with_the_first_octets() {
    let (mut program, mut peer, carrying) = flow(Side::Asks).await;
    let early = timeout(Duration::from_millis(200), peer.next()).await;
    assert!(early.is_err(), "{early:?}");
    let before = Instant::now();
    program.stream.write_all(b"q").await.unwrap();

    assert_eq!(peer.next().await, Frame::Data(Bytes::from_static(b"q")));
    assert_eq!(peer.next().await, credit(0));

    assert_eq!(before.elapsed(), Duration::ZERO);
    carrying.abort();
}

#[tokio::test(start_paused = true)]
async fn the_window_of_who_asked_and_says_nothing_goes_soon() {
    let (_program, mut peer, carrying) = flow(Side::Asks).await;
    let before = Instant::now();

    assert_eq!(peer.next().await, credit(0));

    assert_eq!(before.elapsed(), Duration::from_millis(250));
    carrying.abort();
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_is_acknowledged_with_the_answer() {
    let (mut program, mut peer, carrying) = flow(Side::Answers).await;
    assert_eq!(peer.next().await, credit(0));
    peer.say(&Frame::Data(Bytes::from_static(b"question")));
    peer.say(&Frame::Fin);
    let mut asked = String::new();
    program.stream.read_to_string(&mut asked).await.unwrap();
    assert_eq!(asked, "question");

    program.stream.write_all(b"answer").await.unwrap();
    program.stream.shutdown().await.unwrap();

    let before = Instant::now();
    assert_eq!(
        peer.next().await,
        Frame::Data(Bytes::from_static(b"answer"))
    );
    assert_eq!(peer.next().await, credit(9));
    assert_eq!(peer.next().await, Frame::Fin);
    assert_eq!(before.elapsed(), Duration::ZERO);
    carrying.abort();
}

#[tokio::test(start_paused = true)]
async fn an_end_without_an_answer_is_acknowledged_soon() {
    let (_program, mut peer, carrying) = flow(Side::Answers).await;
    assert_eq!(peer.next().await, credit(0));
    let before = Instant::now();
    peer.say(&Frame::Fin);

    assert_eq!(peer.next().await, credit(1));

    assert_eq!(before.elapsed(), Duration::from_millis(250));
    carrying.abort();
}
