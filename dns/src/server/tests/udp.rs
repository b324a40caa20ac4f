use super::*;

pub(super) async fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_535];
    let length = socket.recv(&mut buffer).await.unwrap();
    buffer.truncate(length);
    buffer
}

#[tokio::test]
async fn an_answer_at_hand_does_not_wait_behind_one_that_is_not() {
    let slow = Arc::new(Notify::new());
    let server = Server::start(Limits::default(), by_name(Arc::clone(&slow))).await;
    let udp = server.udp().await;
    for (id, text) in [(1, "slow.test"), (2, "a.test"), (3, "b.test")] {
        udp.send(&query(id, text)).await.unwrap();
    }
    let mut ids = [id(&receive(&udp).await), id(&receive(&udp).await)];
    ids.sort_unstable();
    assert_eq!(ids, [2, 3]);
    slow.notify_waiters();
    assert_eq!(id(&receive(&udp).await), 1);
}

#[tokio::test]
async fn above_the_limit_queries_are_shed_unless_their_answer_is_at_hand() {
    let limits = Limits {
        udp_in_flight: 2,
        ..Limits::default()
    };
    let server = Server::start(limits, by_name(Arc::default())).await;
    let udp = server.udp().await;
    for id in 1..=2 {
        udp.send(&query(id, "never.test")).await.unwrap();
    }

    udp.send(&query(3, "never.test")).await.unwrap();
    let shed = receive(&udp).await;
    udp.send(&query(4, "fast.test")).await.unwrap();
    let answered = receive(&udp).await;

    let shed = answers(&shed).unwrap();
    assert_eq!((shed.id, shed.code), (3, ResponseCode::SERVFAIL));
    assert_eq!(shed.question.unwrap().0, name("never.test"));
    let answered = answers(&answered).unwrap();
    assert_eq!((answered.id, answered.code), (4, ResponseCode::NOERROR));
}

#[tokio::test]
async fn above_the_limit_what_is_no_query_is_dropped() {
    let limits = Limits {
        udp_in_flight: 0,
        ..Limits::default()
    };
    let server = Server::start(limits, |_, _| Box::pin(std::future::pending())).await;
    let udp = server.udp().await;
    let mut response = query(1, "a.test");
    response[2] |= 0x80;
    for packet in [&b"short"[..], &response, &query(2, "a.test")] {
        udp.send(packet).await.unwrap();
    }
    assert_eq!(id(&receive(&udp).await), 2);
}

#[tokio::test]
async fn a_reply_is_cut_to_what_the_asker_takes() {
    let script = |_, packet: Vec<u8>| -> Reply {
        Box::pin(async move { Some(large(4000).reply_to(&packet)) })
    };
    let server = Server::start(Limits::default(), script).await;
    let udp = server.udp().await;
    let with_edns = QueryOptions::default();
    let without = QueryOptions {
        edns: false,
        ..with_edns
    };
    for (options, limit) in [(without, 512), (with_edns, 1232)] {
        let query = encode_query(1, &name("x.test"), RecordType::A, options);
        udp.send(&query).await.unwrap();
        let reply = receive(&udp).await;
        assert!(reply.len() <= limit, "{} > {limit}", reply.len());
        let reply = answers(&reply).unwrap();
        assert!(reply.flags.truncated);
        assert_eq!(reply.edns.is_some(), options.edns);
    }
}

#[tokio::test]
async fn a_reply_that_fits_is_sent_as_it_is() {
    let script = |_, packet: Vec<u8>| -> Reply {
        Box::pin(async move { Some(large(1100).reply_to(&packet)) })
    };
    let server = Server::start(Limits::default(), script).await;
    let udp = server.udp().await;
    let asked = query(1, "x.test");
    udp.send(&asked).await.unwrap();
    assert_eq!(receive(&udp).await, large(1100).reply_to(&asked));
}

#[tokio::test]
async fn the_reply_comes_from_the_address_that_was_asked() {
    let server = Server::start(Limits::default(), by_name(Arc::default())).await;
    let udp = UdpSocket::bind(loopback()).await.unwrap();
    udp.send_to(&query(1, "none"), server.address)
        .await
        .unwrap();
    udp.send_to(&query(2, "a.test"), server.address)
        .await
        .unwrap();
    let mut buffer = [0; 512];
    let (length, from) = udp.recv_from(&mut buffer).await.unwrap();
    // Nothing came for the first: its handler had nothing to say.
    assert_eq!((id(&buffer[..length]), from), (2, server.address));
}
