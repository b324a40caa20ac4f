use super::*;
use crate::framing::frame;

pub(super) async fn send(stream: &mut TcpStream, message: &[u8]) {
    stream.write_all(&frame(message).unwrap()).await.unwrap();
}

/// Reads one message; `None` at the end of the stream.
pub(super) async fn receive(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let length = stream.read_u16().await.ok()?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await.unwrap();
    Some(message)
}

/// Connects until nobody listens any more; a connection nobody accepted is reset meanwhile.
pub(super) async fn refuses_connections(address: SocketAddr) {
    loop {
        match TcpStream::connect(address).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return,
            Ok(_) | Err(_) => tokio::task::yield_now().await,
        }
    }
}

async fn server() -> Server {
    Server::start(Limits::default(), by_name(Arc::default())).await
}

#[tokio::test]
async fn a_hundred_pipelined_queries_are_answered_while_one_is_slow() {
    let slow = Arc::new(Notify::new());
    let server = Server::start(Limits::default(), by_name(Arc::clone(&slow))).await;
    let mut tcp = server.tcp().await;
    let mut bytes = frame(&query(0, "slow.test")).unwrap();
    for id in 1..100 {
        bytes.extend(frame(&query(id, "fast.test")).unwrap());
    }
    tcp.write_all(&bytes).await.unwrap();

    let mut ids = Vec::new();
    for _ in 1..100 {
        ids.push(id(&receive(&mut tcp).await.unwrap()));
    }
    slow.notify_waiters();
    let last = receive(&mut tcp).await.unwrap();

    ids.sort_unstable();
    assert_eq!(ids, (1..100).collect::<Vec<_>>());
    assert_eq!(id(&last), 0);
}

#[tokio::test]
async fn queries_beyond_the_limit_of_a_connection_wait_and_are_answered() {
    let slow = Arc::new(Notify::new());
    let limits = Limits {
        tcp_in_flight: 2,
        ..Limits::default()
    };
    let server = Server::start(limits, by_name(Arc::clone(&slow))).await;
    let mut tcp = server.tcp().await;
    send(&mut tcp, &query(1, "fast.test")).await;
    for id in 2..=3 {
        send(&mut tcp, &query(id, "slow.test")).await;
    }
    assert_eq!(id(&receive(&mut tcp).await.unwrap()), 1);
    send(&mut tcp, &query(4, "fast.test")).await;
    // Another connection is not concerned.
    let mut other = server.tcp().await;
    send(&mut other, &query(9, "fast.test")).await;
    assert_eq!(id(&receive(&mut other).await.unwrap()), 9);
    slow.notify_one();
    slow.notify_one();

    let mut ids = Vec::new();
    for _ in 2..=4 {
        ids.push(id(&receive(&mut tcp).await.unwrap()));
    }
    ids.sort_unstable();
    assert_eq!(ids, [2, 3, 4]);
}

#[tokio::test]
async fn a_query_may_come_one_byte_at_a_time() {
    let server = server().await;
    let mut tcp = server.tcp().await;
    tcp.set_nodelay(true).unwrap();
    for byte in frame(&query(7, "a.test")).unwrap() {
        tcp.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(id(&receive(&mut tcp).await.unwrap()), 7);
}

#[tokio::test]
async fn a_long_reply_is_sent_whole() {
    let script = |_, packet: Vec<u8>| -> Reply {
        Box::pin(async move { Some(large(65_000).reply_to(&packet)) })
    };
    let server = Server::start(Limits::default(), script).await;
    let mut tcp = server.tcp().await;
    let asked = query(1, "x.test");
    send(&mut tcp, &asked).await;
    let reply = receive(&mut tcp).await.unwrap();
    assert!(reply == large(65_000).reply_to(&asked) && reply.len() > 64_000);
}

#[tokio::test]
async fn after_a_half_close_pending_replies_are_still_sent() {
    let slow = Arc::new(Notify::new());
    let server = Server::start(Limits::default(), by_name(Arc::clone(&slow))).await;
    let mut tcp = server.tcp().await;
    for (id, text) in [(1, "slow.test"), (2, "fast.test")] {
        send(&mut tcp, &query(id, text)).await;
    }
    assert_eq!(id(&receive(&mut tcp).await.unwrap()), 2);
    tcp.shutdown().await.unwrap();
    // Another connection's round trip gives the server time to see the end.
    let mut other = server.tcp().await;
    send(&mut other, &query(3, "fast.test")).await;
    receive(&mut other).await.unwrap();

    slow.notify_waiters();

    assert_eq!(id(&receive(&mut tcp).await.unwrap()), 1);
    assert_eq!(receive(&mut tcp).await, None);
}

#[tokio::test]
async fn a_frame_too_short_for_a_header_closes_the_connection() {
    let server = server().await;
    let mut tcp = server.tcp().await;
    send(&mut tcp, &[0; 11]).await;
    assert_eq!(receive(&mut tcp).await, None);
}

/// Runs down the clock until the server closes, and returns how long that took.
async fn closed_after(tcp: &mut TcpStream) -> Duration {
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    assert_eq!(receive(tcp).await, None);
    start.elapsed()
}

#[tokio::test]
async fn an_unused_connection_is_closed_after_ten_seconds() {
    let server = server().await;
    let mut tcp = server.tcp().await;
    send(&mut tcp, &query(1, "a.test")).await;
    receive(&mut tcp).await.unwrap();
    let idle = closed_after(&mut tcp).await;
    assert!((9..=10).contains(&idle.as_secs()), "{idle:?}");
}

#[tokio::test]
async fn a_connection_that_stops_within_a_message_is_closed_after_three_seconds() {
    let server = server().await;
    let mut tcp = server.tcp().await;
    send(&mut tcp, &query(1, "a.test")).await;
    tcp.write_all(&frame(&query(2, "a.test")).unwrap()[..9])
        .await
        .unwrap();
    receive(&mut tcp).await.unwrap();
    let stalled = closed_after(&mut tcp).await;
    assert!((2..=3).contains(&stalled.as_secs()), "{stalled:?}");
}

#[tokio::test]
async fn a_query_in_flight_keeps_its_connection_open() {
    let slow = Arc::new(Notify::new());
    let server = Server::start(Limits::default(), by_name(Arc::clone(&slow))).await;
    let mut tcp = server.tcp().await;
    for (id, text) in [(1, "slow.test"), (2, "fast.test")] {
        send(&mut tcp, &query(id, text)).await;
    }
    receive(&mut tcp).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(60)).await;
    tokio::time::resume();
    slow.notify_waiters();
    assert_eq!(id(&receive(&mut tcp).await.unwrap()), 1);
}

#[tokio::test]
async fn connections_above_the_limits_are_closed_and_a_place_is_given_back() {
    let one_address = Limits {
        tcp_connections_per_address: 2,
        ..Limits::default()
    };
    let in_all = Limits {
        tcp_connections: 2,
        ..Limits::default()
    };
    for limits in [one_address, in_all] {
        let server = Server::start(limits, by_name(Arc::default())).await;
        let mut first = server.tcp().await;
        let mut second = server.tcp().await;
        for tcp in [&mut first, &mut second] {
            send(tcp, &query(1, "a.test")).await;
            receive(tcp).await.unwrap();
        }
        let mut third = server.tcp().await;
        assert_eq!(receive(&mut third).await, None);

        first.shutdown().await.unwrap();
        assert_eq!(receive(&mut first).await, None);
        loop {
            let mut again = server.tcp().await;
            // The server may not have counted the closed connection out yet.
            if again
                .write_all(&frame(&query(1, "a.test")).unwrap())
                .await
                .is_ok()
                && receive(&mut again).await.is_some()
            {
                break;
            }
        }
    }
}

#[tokio::test]
async fn idle_connections_do_not_keep_udp_from_being_answered() {
    let limits = Limits {
        tcp_connections_per_address: 400,
        ..Limits::default()
    };
    let server = Server::start(limits, by_name(Arc::default())).await;
    let mut idle = Vec::new();
    for _ in 0..400 {
        idle.push(server.tcp().await);
    }
    let udp = server.udp().await;
    udp.send(&query(5, "a.test")).await.unwrap();
    assert_eq!(id(&udp::receive(&udp).await), 5);
}
