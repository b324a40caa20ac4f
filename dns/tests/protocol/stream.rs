//! C: clients on TCP, and our own TCP towards upstreams (RFC 7766).

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use futures::future::join_all;
use kubebridge_dns::name::RecordType;
use kubebridge_dns::server::{Limits, Transport};
use kubebridge_dns::test_util::{Action, Answer, LoopbackServer};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::packet::*;
use crate::world::*;

/// Answers every name with an address, names that begin with `slow` after a while.
async fn slow_for_some() -> World {
    let server = LoopbackServer::start(|received| {
        let asked = asked_name(received);
        let answer = Answer::address(&asked, [192, 0, 2, 1]);
        let slow = asked.starts_with("slow");
        let delay = Duration::from_millis(if slow { 150 } else { 0 });
        answer.after(delay).actions(received)
    });
    Plan::of(vec![server.await]).start().await
}

fn numbered(number: u16, text: &str) -> Vec<u8> {
    with_id(&query(text, RecordType::A), number)
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap();
    [&length.to_be_bytes()[..], message].concat()
}

/// C1
#[tokio::test]
async fn of_a_hundred_pipelined_queries_the_slow_one_is_answered_last() {
    let world = slow_for_some().await;
    let names: Vec<String> = (0..100)
        .map(|n| {
            if n == 0 {
                "slow.example.org".into()
            } else {
                format!("n{n}.example.org")
            }
        })
        .collect();
    let queries: Vec<Vec<u8>> = (0..100)
        .map(|n| numbered(n, &names[usize::from(n)]))
        .collect();
    for kept in [false, true] {
        let mut stream = world.connect().await;
        let all: Vec<u8> = queries.iter().flat_map(|query| framed(query)).collect();
        stream.write_all(&all).await.unwrap();
        let mut order = Vec::new();
        for _ in 0..100 {
            let reply = receive_frame(&mut stream).await.unwrap();
            let number = usize::from(id(&reply));
            assert_echoes("pipelined", &queries[number], &reply, REPLY);
            assert_eq!(shown(&reply), [format!("{} 30 A 192.0.2.1", names[number])]);
            order.push(number);
        }
        assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 100);
        assert!(kept || order[99] == 0, "{order:?}");
    }
    // One more than these may have been sent twice, when the machine is slow.
    assert_eq!(
        world.asked().into_iter().collect::<BTreeSet<_>>().len(),
        100
    );
}

/// C1
#[tokio::test]
async fn replies_overtake_a_slow_one_on_the_same_connection() {
    let world = slow_for_some().await;
    let mut stream = world.connect().await;
    for (number, text) in [
        (1, "slow.example.org"),
        (2, "a.example.org"),
        (3, "b.example.org"),
    ] {
        send_frame(&mut stream, &numbered(number, text)).await;
    }
    let mut order = Vec::new();
    for _ in 0..3 {
        order.push(id(&receive_frame(&mut stream).await.unwrap()));
    }
    assert_eq!(order[2], 1);
}

/// C2
#[tokio::test]
async fn a_reply_comes_with_its_length_in_one_segment() {
    let world = slow_for_some().await;
    let mut stream = world.connect().await;
    send_frame(&mut stream, &numbered(1, "a.example.org")).await;
    let mut segment = vec![0; 4096];
    let length = stream.read(&mut segment).await.unwrap();
    assert_eq!(
        length,
        2 + usize::from(u16::from_be_bytes([segment[0], segment[1]]))
    );
}

/// C2
#[tokio::test]
async fn a_query_may_come_byte_by_byte() {
    let world = slow_for_some().await;
    let mut stream = world.connect().await;
    stream.set_nodelay(true).unwrap();
    let query = numbered(1, "a.example.org");
    for byte in framed(&query) {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let reply = receive_frame(&mut stream).await.unwrap();
    assert_echoes("byte by byte", &query, &reply, REPLY);
}

/// C3
#[tokio::test]
async fn after_a_half_close_pending_replies_are_sent_and_the_stream_is_closed() {
    let world = slow_for_some().await;
    let mut stream = world.connect().await;
    send_frame(&mut stream, &numbered(1, "slow.example.org")).await;
    send_frame(&mut stream, &numbered(2, "a.example.org")).await;
    stream.shutdown().await.unwrap();
    let mut seen = BTreeSet::new();
    while let Some(reply) = receive_frame(&mut stream).await {
        seen.insert(id(&reply));
    }
    assert_eq!(seen, BTreeSet::from([1, 2]));
}

/// Waits for the server to close the connection and returns after how long it did.
async fn closed_after(stream: &mut TcpStream) -> Duration {
    let begun = Instant::now();
    assert_eq!(receive_frame(stream).await, None);
    begun.elapsed()
}

/// Rounded to the tenth of a second that timers may be off.
fn tenths(time: Duration) -> u128 {
    (time.as_millis() + 50) / 100
}

/// C4
#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_ten_seconds() {
    let world = slow_for_some().await;
    let mut fresh = world.connect().await;
    assert_eq!(tenths(closed_after(&mut fresh).await), 100);
    let mut used = world.connect().await;
    sleep(Duration::from_secs(9)).await;
    send_frame(&mut used, &numbered(1, "localhost")).await;
    receive_frame(&mut used).await.unwrap();
    assert_eq!(tenths(closed_after(&mut used).await), 100);
}

/// C4
#[tokio::test(start_paused = true)]
async fn a_connection_that_stops_within_a_frame_is_closed_after_three_seconds() {
    let world = slow_for_some().await;
    let whole = framed(&numbered(1, "localhost"));
    for cut in [1, 2, 10, whole.len() - 1] {
        let mut stream = world.connect().await;
        stream.write_all(&whole[..cut]).await.unwrap();
        assert_eq!(tenths(closed_after(&mut stream).await), 30, "{cut} bytes");
    }
}

/// C5
#[tokio::test]
async fn a_frame_shorter_than_a_header_closes_the_connection() {
    let world = slow_for_some().await;
    for length in 0..12_u8 {
        let mut stream = world.connect().await;
        send_frame(&mut stream, &numbered(1, "localhost")).await;
        assert!(receive_frame(&mut stream).await.is_some());
        stream.write_all(&[0, length]).await.unwrap();
        assert_eq!(receive_frame(&mut stream).await, None, "{length}");
    }
}

/// Asks on a connection that the server may have refused.
async fn is_served(mut stream: TcpStream) -> bool {
    let asked = stream.write_all(&framed(&numbered(1, "localhost"))).await;
    asked.is_ok() && receive_frame(&mut stream).await.is_some()
}

/// Lets this process have the descriptors that both ends of a thousand connections need.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

/// C6
#[tokio::test]
async fn a_thousand_idle_connections_keep_nobody_from_udp_and_no_address_takes_all() {
    allow_descriptors();
    let limits = Limits::default();
    let world = slow_for_some().await;
    let mut idle = Vec::new();
    for number in 0..1000_u16 {
        // Each address stays below its own limit, so that it is the limit of all that is met.
        let from = Ipv4Addr::new(127, 0, 1, u8::try_from(number / 100).unwrap());
        idle.push(world.connect_from(from).await);
    }
    for number in 0..100 {
        let packet = numbered(number, &format!("n{number}.example.org"));
        assert_echoes("UDP", &packet, &world.udp(&packet).await, REPLY);
    }
    let served = join_all(idle.into_iter().map(is_served)).await;
    let count = |served: &[bool]| served.iter().filter(|served| **served).count();
    assert_eq!(count(&served), limits.tcp_connections);

    let world = slow_for_some().await;
    let mut greedy = Vec::new();
    for _ in 0..200 {
        greedy.push(world.connect_from(Ipv4Addr::new(127, 0, 1, 1)).await);
    }
    let modest = world.connect_from(Ipv4Addr::new(127, 0, 1, 2)).await;
    assert!(is_served(modest).await);
    let served = join_all(greedy.into_iter().map(is_served)).await;
    assert_eq!(count(&served), limits.tcp_connections_per_address);
}

/// C7
#[tokio::test]
async fn many_queries_to_an_upstream_share_one_connection_under_ids_of_their_own() {
    let server = LoopbackServer::start(|received| {
        let answer = Answer::address(&asked_name(received), [192, 0, 2, 1]);
        let reply = answer.clone().truncated().reply_to(&received.message);
        match received.transport {
            Transport::Udp => vec![Action::Send(reply)],
            // Held back, so that all are outstanding at once.
            Transport::Tcp => answer.after(Duration::from_millis(100)).actions(received),
        }
    });
    let world = Plan::of(vec![server.await]).start().await;
    let queries: Vec<Vec<u8>> = (0..50)
        .map(|n| numbered(n, &format!("n{n}.example.org")))
        .collect();
    let replies = join_all(queries.iter().map(|query| world.udp(query))).await;
    for (query, reply) in queries.iter().zip(&replies) {
        assert_echoes("over TCP upstream", query, reply, REPLY);
        assert_eq!(parsed(reply).answers.len(), 1);
    }
    let received = world.received();
    let streams = received.iter().filter(|r| r.transport == Transport::Tcp);
    let (peers, ids): (BTreeSet<_>, BTreeSet<_>) =
        streams.map(|r| (r.peer, id(&r.message))).unzip();
    assert_eq!((peers.len(), ids.len()), (1, 50));
}
