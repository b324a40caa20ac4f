//! A flow's stream without the driver: what the tunnel sees of a laptop that has ended.

use std::future::poll_fn;

use tokio::time::Instant;

use super::laptop::{confirming, data, end, reset, syn};
use super::tcp::segment;
use super::*;
use crate::netstack::flow::{Flow, Outcome};
use crate::netstack::packet::FlowKey;
use crate::netstack::stream::FlowStream;

/// A confirmed connection whose driver is the test.
struct Bare {
    flow: Arc<Flow>,
    wakes: Arc<Wakes>,
    out: Outbox,
    stream: FlowStream,
    /// The number of the first octet to the laptop.
    first: i32,
}

impl Bare {
    fn open() -> Self {
        let key = FlowKey {
            source: at(LAPTOP),
            destination: at(SERVICE),
        };
        let wakes = Arc::new(Wakes::new());
        let flow = Flow::accept(key, &syn(LAPTOP, SERVICE, 1000), MTU, Arc::clone(&wakes));
        let mut bare = Self {
            stream: FlowStream::new(Arc::clone(&flow)),
            flow,
            wakes,
            out: Outbox::default(),
            first: 0,
        };
        bare.drive();
        bare.first = segment(bare.out.first().unwrap()).1 + 1;
        bare.takes(&confirming(LAPTOP, SERVICE, 1001, bare.first));
        bare
    }

    fn takes(&mut self, packet: &[u8]) {
        self.flow.receive(packet, &mut self.out);
        self.drive();
    }

    /// Polls the flow if it was woken; whether it is over.
    fn drive(&mut self) -> bool {
        let polled = self.wakes.take().into_iter();
        let mut outcomes = polled.map(|flow| flow.poll(Instant::now(), &mut self.out));
        outcomes.any(|outcome| outcome == Outcome::Over)
    }

    async fn was_reset(&mut self) -> bool {
        poll_fn(|cx| Poll::Ready(self.stream.poll_reset(cx).is_ready())).await
    }

    async fn read(&mut self, most: usize) -> Vec<u8> {
        let mut octets = vec![0; most];
        let count = self.stream.read(&mut octets).await.unwrap();
        octets.truncate(count);
        octets
    }
}

#[tokio::test(start_paused = true)]
async fn f2_a_connection_that_both_sides_have_ended_was_not_reset() {
    let mut bare = Bare::open();
    bare.takes(&data(LAPTOP, SERVICE, 1001, bare.first));
    bare.takes(&end(LAPTOP, SERVICE, 1002, bare.first));
    bare.stream.shutdown().await.unwrap();
    bare.drive();

    bare.takes(&confirming(LAPTOP, SERVICE, 1003, bare.first + 1));

    assert!(!bare.was_reset().await);
    assert_eq!(bare.read(10).await, b"x");
    assert_eq!(bare.read(10).await, b"");
    assert!(!bare.was_reset().await);
}

#[tokio::test(start_paused = true)]
async fn f2_a_connection_that_one_side_has_ended_may_be_reset() {
    let mut bare = Bare::open();
    bare.takes(&end(LAPTOP, SERVICE, 1001, bare.first));
    assert!(!bare.was_reset().await);

    bare.takes(&reset(LAPTOP, SERVICE, 1002));

    assert!(bare.was_reset().await);
}

#[tokio::test(start_paused = true)]
async fn f2_what_the_laptop_sent_can_be_read_long_after_it_has_ended() {
    let mut bare = Bare::open();
    bare.stream.shutdown().await.unwrap();
    bare.drive();
    bare.takes(&data(LAPTOP, SERVICE, 1001, bare.first + 1));
    bare.takes(&data(LAPTOP, SERVICE, 1002, bare.first + 1));
    bare.flow
        .receive(&end(LAPTOP, SERVICE, 1003, bare.first + 1), &mut bare.out);
    assert!(bare.drive());

    // The tunnel was away for a while.
    tokio::time::advance(Duration::from_secs(25)).await;

    assert_eq!(bare.read(1).await, b"x");
    bare.drive();
    assert_eq!(bare.read(1).await, b"x");
    assert_eq!(bare.read(1).await, b"");
    assert!(!bare.was_reset().await);
}
