//! The servers on real loopback sockets, with handlers that do what the packet says.

use std::pin::Pin;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::message::{QueryOptions, answers, encode_query};
use crate::name::{RecordType, ResponseCode};
use crate::test_util::{Answer, Record, loopback, name};

mod tcp;
mod udp;

type Reply = Pin<Box<dyn Future<Output = Option<Vec<u8>>> + Send>>;

/// A handler made of a closure, which gets the asked name and the packet.
struct Scripted<F>(F);

impl<F: Fn(String, Vec<u8>) -> Reply + Send + Sync + 'static> Handler for Scripted<F> {
    async fn handle(&self, packet: Vec<u8>, _: SocketAddr, _: Transport) -> Option<Vec<u8>> {
        (self.0)(asked(&packet), packet).await
    }
}

struct Server {
    address: SocketAddr,
    shutdown: CancellationToken,
    task: AbortOnDropHandle<io::Result<()>>,
}

impl Server {
    /// Starts a server on one port for both transports.
    async fn start<F>(limits: Limits, script: F) -> Self
    where
        F: Fn(String, Vec<u8>) -> Reply + Send + Sync + 'static,
    {
        let (udp, tcp) = loop {
            let tcp = TcpListener::bind(loopback()).await.unwrap();
            if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let handler = Arc::new(Scripted(script));
        let serving = serve(vec![udp], vec![tcp], handler, limits, shutdown.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(serving));
        Self {
            address,
            shutdown,
            task,
        }
    }

    async fn udp(&self) -> UdpSocket {
        let socket = UdpSocket::bind(loopback()).await.unwrap();
        socket.connect(self.address).await.unwrap();
        socket
    }

    async fn tcp(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
}

/// Answers at once, except names that begin with `slow`, which wait for the notification, and
/// `never`, which wait for ever; `none` gets no reply.
fn by_name(slow: Arc<Notify>) -> impl Fn(String, Vec<u8>) -> Reply + Send + Sync {
    move |name, packet| {
        let slow = Arc::clone(&slow);
        Box::pin(async move {
            if name.starts_with("slow") {
                slow.notified().await;
            }
            if name.starts_with("never") {
                std::future::pending::<()>().await;
            }
            let answer = Answer::address("x.test", [10, 0, 0, 1]);
            (name != "none").then(|| answer.reply_to(&packet))
        })
    }
}

fn asked(packet: &[u8]) -> String {
    crate::test_util::question(packet).map_or_else(String::new, |(name, _)| name.to_string())
}

fn query(id: u16, text: &str) -> Vec<u8> {
    encode_query(id, &name(text), RecordType::A, QueryOptions::default())
}

fn id(message: &[u8]) -> u16 {
    u16::from_be_bytes([message[0], message[1]])
}

/// An answer of about `size` bytes: one set of 16-byte records.
fn large(size: usize) -> Answer {
    let count = size / 16;
    let record =
        |n: usize| Record::address("x.test", [10, 0, n.to_be_bytes()[6], n.to_be_bytes()[7]]);
    Answer::records((0..count).map(record).collect::<Vec<_>>())
}

#[tokio::test]
async fn shutdown_finishes_what_is_in_flight_and_takes_no_more() {
    let slow = Arc::new(Notify::new());
    let server = Server::start(Limits::default(), by_name(Arc::clone(&slow))).await;
    let udp = server.udp().await;
    let mut tcp = server.tcp().await;
    // A fast query behind the slow one proves that both have been read.
    for text in ["slow.test", "fast.test"] {
        udp.send(&query(1, text)).await.unwrap();
        tcp::send(&mut tcp, &query(2, text)).await;
    }
    assert_eq!(asked(&udp::receive(&udp).await), "fast.test");
    assert_eq!(asked(&tcp::receive(&mut tcp).await.unwrap()), "fast.test");

    server.shutdown.cancel();
    tcp::refuses_connections(server.address).await;
    slow.notify_waiters();

    assert_eq!(asked(&udp::receive(&udp).await), "slow.test");
    assert_eq!(asked(&tcp::receive(&mut tcp).await.unwrap()), "slow.test");
    assert_eq!(tcp::receive(&mut tcp).await, None);
    server.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn shutdown_does_not_wait_longer_than_the_drain_time() {
    let limits = Limits {
        drain: Duration::from_millis(50),
        ..Limits::default()
    };
    let server = Server::start(limits, by_name(Arc::default())).await;
    let udp = server.udp().await;
    udp.send(&query(1, "never.test")).await.unwrap();
    udp.send(&query(1, "fast.test")).await.unwrap();
    udp::receive(&udp).await;

    server.shutdown.cancel();

    server.task.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_panicking_handler_costs_one_reply_and_not_the_server() {
    let script = |name: String, packet: Vec<u8>| -> Reply {
        assert_ne!(name, "bad.test", "the handler's bug");
        Box::pin(async move { Some(packet) })
    };
    let server = Server::start(Limits::default(), script).await;
    let udp = server.udp().await;
    let mut tcp = server.tcp().await;
    for text in ["bad.test", "good.test"] {
        udp.send(&query(1, text)).await.unwrap();
        tcp::send(&mut tcp, &query(1, text)).await;
    }
    assert_eq!(asked(&udp::receive(&udp).await), "good.test");
    assert_eq!(asked(&tcp::receive(&mut tcp).await.unwrap()), "good.test");
}
