//! The transport against a scripted server on real loopback sockets.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use super::*;
use crate::message::answers;
use crate::name::{RecordType, ResponseCode};
use crate::server::Transport;
use crate::test_util::{Action, Answer, LoopbackServer, Received, Record, name};

mod edns;
mod matching;
mod ports;
mod tcp;

/// Longer than any test takes on a busy machine.
const LONG: Duration = Duration::from_secs(20);
const BOTH: [PortPolicy; 2] = [PortPolicy::Pooled, PortPolicy::FreshPort];

fn query(text: &str) -> OutgoingQuery {
    OutgoingQuery::new(name(text), RecordType::A)
}

fn address() -> Answer {
    Answer::address("a.test", [10, 0, 0, 1])
}

/// An answer that does not fit 512 bytes.
fn long_answer() -> Answer {
    let record = |last| Record::address("a.test", [10, 0, 0, last]);
    Answer::records((1..=80).map(record).collect::<Vec<_>>())
}

/// Makes a transport that takes the server for a slow one, so that it sends nothing twice on a
/// machine that is busy with other tests.
fn patient(server: &LoopbackServer, policy: PortPolicy) -> Do53 {
    let upstream = Do53::new(server.address(), policy);
    upstream.rtt.lock().sample(Duration::from_secs(3600));
    upstream
}

async fn ask(upstream: &Do53, text: &str) -> Result<Vec<u8>, ExchangeError> {
    upstream.exchange(&query(text), Instant::now() + LONG).await
}

async fn ask_ok(upstream: &Do53, text: &str) -> Vec<u8> {
    ask(upstream, text).await.unwrap()
}

fn id(query: &Received) -> u16 {
    u16::from_be_bytes([query.message[0], query.message[1]])
}

fn reply(query: &Received) -> Vec<u8> {
    address().reply_to(&query.message)
}

fn with_id(mut message: Vec<u8>, id: u16) -> Vec<u8> {
    message[..2].copy_from_slice(&id.to_be_bytes());
    message
}

/// What the server was asked but for probes, which a slow machine brings about.
fn questions(server: &LoopbackServer) -> Vec<Received> {
    let mut received = server.received();
    received.retain(|query| query.message[12] != 0);
    received
}

/// Waits until nobody holds a port any more, be it another test that was given it since.
async fn is_freed(port: SocketAddr) {
    let freeing = async {
        while std::net::UdpSocket::bind(port).is_err() {
            tokio::task::yield_now().await;
        }
    };
    let freed = tokio::time::timeout(LONG, freeing).await;
    assert!(freed.is_ok(), "{port} is held");
}

fn transports(server: &LoopbackServer) -> Vec<Transport> {
    questions(server)
        .iter()
        .map(|query| query.transport)
        .collect()
}

#[tokio::test]
async fn a_question_is_asked_over_udp_and_its_reply_returned_as_it_came() {
    for policy in BOTH {
        let server = LoopbackServer::saying(address()).await;
        let upstream = patient(&server, policy);

        let got = ask_ok(&upstream, "A.Test").await;

        let received = server.received();
        assert_eq!(got, reply(&received[0]));
        assert_eq!(
            answers(&got).unwrap().question.unwrap().0.to_string(),
            "A.Test"
        );
        assert_eq!(transports(&server), [Transport::Udp]);
    }
}

#[tokio::test]
async fn a_silent_server_is_given_up_at_the_deadline() {
    for policy in BOTH {
        let server = LoopbackServer::saying(Answer::silence()).await;
        let upstream = patient(&server, policy);
        let deadline = Instant::now() + Duration::from_millis(50);

        let got = upstream.exchange(&query("a.test"), deadline).await;

        assert!(matches!(got, Err(ExchangeError::Timeout)));
        assert!(Instant::now() >= deadline);
    }
}

#[tokio::test]
async fn a_closed_port_fails_before_the_deadline() {
    for policy in BOTH {
        let server = LoopbackServer::saying(address()).await;
        let gone = server.address();
        drop(server);
        tokio::task::yield_now().await;
        let upstream = Do53::new(gone, policy);

        let got = ask(&upstream, "a.test").await;

        assert!(matches!(got, Err(ExchangeError::Io { .. })), "{got:?}");
    }
}

#[tokio::test]
async fn a_lost_query_is_sent_again_under_a_new_id_with_doubled_waits() {
    for policy in BOTH {
        let server = LoopbackServer::start(|query| match query.number {
            0 | 1 => Vec::new(),
            _ => vec![Action::Send(reply(query))],
        });
        let server = server.await;
        let upstream = Do53::new(server.address(), policy);
        let start = Instant::now();

        ask_ok(&upstream, "a.test").await;

        // 200 ms, then 400 ms.
        assert!(start.elapsed() >= Duration::from_millis(600));
        let received = server.received();
        let ids: BTreeSet<_> = received.iter().map(id).collect();
        // More than three where the reply to the third was waited for too long.
        assert!(received.len() >= 3 && ids.len() == received.len());
        assert!(received.iter().all(|query| query.peer == received[0].peer));
    }
}

#[tokio::test]
async fn a_reply_to_an_earlier_sending_is_taken() {
    for policy in BOTH {
        let first = Mutex::new(None);
        let server = LoopbackServer::start(move |query| {
            let early = first.lock().get_or_insert_with(|| query.clone()).clone();
            match query.number {
                0 => Vec::new(),
                _ => vec![Action::Send(reply(&early))],
            }
        });
        let server = server.await;
        let upstream = Do53::new(server.address(), policy);

        let got = ask_ok(&upstream, "a.test").await;

        assert_eq!(got, reply(&server.received()[0]));
        assert!(server.received().len() >= 2);
    }
}
