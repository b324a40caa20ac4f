use std::sync::Arc;

use tokio::io::duplex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::*;
use crate::flow::frame::MAX_DATAGRAM;
use crate::flow::{accepted, echo_request, http2, queue};

const IDLE: Duration = Duration::from_secs(60);

/// A flow of datagrams: the laptop's program has queues, the manager's socket is given.
struct World {
    out: Option<Input>,
    back: Output,
    near: JoinHandle<Ended>,
    far: JoinHandle<Ended>,
    meter: Arc<Meter>,
}

async fn open<D: Datagrams + 'static>(socket: D) -> World {
    let (ours, theirs) = duplex(64 * 1024);
    let (give, attached) = oneshot::channel();
    tokio::spawn(async move {
        let mut connection = http2::server().handshake::<_, Bytes>(theirs).await.unwrap();
        let (request, mut respond) = connection.accept().await.unwrap().unwrap();
        let send = respond.send_response(accepted(None), false).unwrap();
        let receive = request.into_body();
        assert!(give.send(Attached { send, receive }).is_ok());
        while connection.accept().await.is_some() {}
    });
    let (requests, connection) = http2::client().handshake(ours).await.unwrap();
    tokio::spawn(connection);
    let mut requests = requests;
    let (response, send) = requests.send_request(echo_request(), false).unwrap();
    let receive = response.await.unwrap().into_body();
    let (out, from_program) = queue::channel();
    let (to_program, back) = queue::channel();
    let meter = Arc::new(Meter::default());
    let metered = Arc::clone(&meter);
    let near = tokio::spawn(async move {
        let _requests = requests;
        let stream = Attached { send, receive };
        let mut ends = (from_program, to_program);
        let ended = carry_datagrams(&mut ends, stream, IDLE, &metered).await;
        if ended.how == How::Refused {
            ends.1.refuse();
        }
        ended
    });
    let stream = attached.await.unwrap();
    let far =
        tokio::spawn(async move { carry_datagrams(socket, stream, IDLE, &Meter::default()).await });
    World {
        out: Some(out),
        back,
        near,
        far,
        meter,
    }
}

impl World {
    fn send(&self, datagram: impl Into<Bytes>) {
        self.out.as_ref().unwrap().send(datagram.into()).unwrap();
    }

    async fn receive(&mut self) -> Bytes {
        let waiting = timeout(Duration::from_secs(10), self.back.recv());
        waiting.await.expect("a datagram comes").unwrap()
    }
}

/// A socket whose peer sends everything back, or refuses it.
struct Socket {
    waiting: Queue,
    waker: Option<std::task::Waker>,
    refuses: bool,
}

impl Socket {
    fn echoing() -> Self {
        Self {
            waiting: Queue::default(),
            waker: None,
            refuses: false,
        }
    }
}

impl Datagrams for Socket {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        if let Some(datagram) = self.waiting.pop() {
            if self.refuses {
                return Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into()));
            }
            return Poll::Ready(Ok(Some(datagram)));
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn poll_send(&mut self, _: &mut Context<'_>, datagram: &[u8]) -> Poll<io::Result<()>> {
        self.waiting.push(Bytes::copy_from_slice(datagram));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
        Poll::Ready(Ok(()))
    }
}

#[tokio::test(start_paused = true)]
async fn f6_datagrams_of_every_length_come_back_as_they_went() {
    let mut world = open(Socket::echoing()).await;
    for length in [0, 1, 1_200, 40_000, MAX_DATAGRAM] {
        let datagram = Bytes::from(vec![length as u8; length]);
        world.send(datagram.clone());
        assert!(world.receive().await == datagram, "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn f6_an_idle_flow_ends_at_both_ends_and_a_used_one_does_not() {
    let mut world = open(Socket::echoing()).await;
    for _ in 0..5 {
        sleep(IDLE * 3 / 4).await;
        world.send("question");
        assert_eq!(world.receive().await, "question");
    }
    sleep(IDLE + Duration::from_secs(1)).await;
    assert!(world.out.as_ref().unwrap().is_closed());
    assert!(matches!(
        world.near.await.unwrap().how,
        How::Idle | How::Finished
    ));
    assert!(matches!(
        world.far.await.unwrap().how,
        How::Idle | How::Finished
    ));
}

#[tokio::test(start_paused = true)]
async fn f6_a_port_where_nobody_listens_ends_the_flow_and_says_so() {
    let mut world = open(Socket {
        refuses: true,
        ..Socket::echoing()
    })
    .await;
    world.send("question");

    assert_eq!(world.back.recv().await, None);

    assert!(world.back.is_refused());
    assert_eq!(world.near.await.unwrap().how, How::Refused);
    assert_eq!(world.far.await.unwrap().how, How::Refused);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_goes_ends_the_flow() {
    let mut world = open(Socket::echoing()).await;
    world.send("question");
    assert_eq!(world.receive().await, "question");

    world.out = None;

    assert_eq!(world.near.await.unwrap().how, How::Finished);
    let far = world.far.await.unwrap();
    assert_eq!((far.how, far.sent, far.received), (How::Finished, 8, 8));
}

/// A socket that takes nothing.
struct Stalled;

impl Datagrams for Stalled {
    fn poll_receive(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        Poll::Pending
    }

    fn poll_send(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_socket_that_takes_nothing_costs_no_more_than_its_queue() {
    let world = open(Stalled).await;
    for _ in 0..100 {
        for _ in 0..10 {
            world.send(vec![0; 10_000]);
        }
        tokio::task::yield_now().await;
        sleep(Duration::from_millis(1)).await;
    }
    // What was carried was dropped at the far side: the connection is never stalled by it.
    assert_eq!(
        world.meter.sent() + 10_000 * world.meter.dropped(),
        10_000_000
    );
    assert!(!world.far.is_finished());
}
