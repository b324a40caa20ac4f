use super::*;

fn only_tcp(query: &Received) -> Option<Vec<Action>> {
    let truncated = address().truncated();
    (query.transport == Transport::Udp).then(|| truncated.actions(query))
}

#[tokio::test]
async fn a_truncated_reply_is_fetched_over_tcp_from_the_same_server() {
    for policy in BOTH {
        let server = LoopbackServer::saying(long_answer().truncated()).await;
        let upstream = patient(&server, policy);

        let got = ask_ok(&upstream, "a.test").await;

        let got = answers(&got).unwrap();
        assert_eq!((got.answers.len(), got.flags.truncated), (80, false));
        assert_eq!(transports(&server), [Transport::Udp, Transport::Tcp]);
    }
}

#[tokio::test]
async fn a_truncated_reply_with_a_cut_body_is_fetched_over_tcp() {
    let server = LoopbackServer::start(|query| {
        let mut message = reply(query);
        if query.transport == Transport::Udp {
            message[2] |= 0x02;
            message.truncate(message.len() - 14);
        }
        vec![Action::Send(message)]
    });
    let server = server.await;
    let upstream = patient(&server, PortPolicy::Pooled);
    let got = ask_ok(&upstream, "a.test").await;
    assert_eq!(answers(&got).unwrap().answers.len(), 1);
    assert_eq!(transports(&server), [Transport::Udp, Transport::Tcp]);
}

#[tokio::test]
async fn a_reply_over_512_bytes_without_edns_is_fetched_over_tcp() {
    let server = LoopbackServer::saying(long_answer().without_edns()).await;
    let upstream = patient(&server, PortPolicy::FreshPort);
    ask_ok(&upstream, "a.test").await;
    assert_eq!(transports(&server), [Transport::Udp, Transport::Tcp]);

    let server = LoopbackServer::saying(long_answer()).await;
    let upstream = patient(&server, PortPolicy::FreshPort);
    let got = ask_ok(&upstream, "a.test").await;
    assert!(got.len() > 1232, "larger than announced and yet whole");
    assert_eq!(transports(&server), [Transport::Udp]);
}

#[tokio::test]
async fn a_datagram_that_fills_the_buffer_is_fetched_over_tcp() {
    let big = Answer::records([Record::new("a.test", RecordType::TXT, vec![0; 5000])]);
    let server = LoopbackServer::saying(big).await;
    let upstream = patient(&server, PortPolicy::FreshPort);
    let got = ask_ok(&upstream, "a.test").await;
    assert!(got.len() > 5000);
    assert_eq!(transports(&server), [Transport::Udp, Transport::Tcp]);
}

fn long_text() -> Answer {
    let data = vec![7; 65_400];
    Answer::records([Record::new("a.test", RecordType::TXT, data)])
}

#[tokio::test]
async fn sixty_four_kib_arrive_intact() {
    let server = LoopbackServer::start(|query| {
        only_tcp(query).unwrap_or_else(|| long_text().actions(query))
    });
    let server = server.await;
    let upstream = patient(&server, PortPolicy::Pooled);
    let got = ask_ok(&upstream, "a.test").await;
    let whole = long_text().reply_to(&server.received()[1].message);
    assert!(got == whole && got.len() > 65_400);
}

#[tokio::test]
async fn a_reply_truncated_over_tcp_is_never_passed_on() {
    let server = LoopbackServer::start(|query| {
        let answer = address().truncated();
        vec![Action::Send(answer.reply_to(&query.message))]
    });
    let server = server.await;
    let upstream = patient(&server, PortPolicy::Pooled);
    let got = ask(&upstream, "a.test").await;
    assert!(matches!(got, Err(ExchangeError::Malformed(_))));
}

#[tokio::test]
async fn one_connection_carries_many_questions_under_distinct_ids() {
    let server = LoopbackServer::start(|query| {
        only_tcp(query).unwrap_or_else(|| {
            let delay = Duration::from_millis(20 - 2 * (query.number as u64 % 10));
            vec![Action::SendAfter(delay, reply(query))]
        })
    });
    let server = server.await;
    let upstream = patient(&server, PortPolicy::Pooled);
    ask_ok(&upstream, "first.test").await;
    let names: Vec<String> = (0..50).map(|n| format!("n{n}.test")).collect();
    let asked = names.iter().map(|name| ask_ok(&upstream, name));

    let replies = futures::future::join_all(asked).await;

    for (text, reply) in names.iter().zip(&replies) {
        assert_eq!(answers(reply).unwrap().question.unwrap().0, name(text));
    }
    let received = questions(&server);
    let over_tcp: Vec<_> = received
        .iter()
        .filter(|q| q.transport == Transport::Tcp)
        .collect();
    assert_eq!(over_tcp.len(), 51);
    assert_eq!(
        over_tcp
            .iter()
            .map(|q| q.peer)
            .collect::<BTreeSet<_>>()
            .len(),
        1
    );
    assert_eq!(
        over_tcp
            .iter()
            .map(|q| id(q))
            .collect::<BTreeSet<_>>()
            .len(),
        51
    );
}

#[tokio::test]
async fn a_connection_closed_by_the_server_is_opened_again_once() {
    let server = LoopbackServer::start(|query| {
        only_tcp(query).unwrap_or_else(|| match query.number {
            1 => vec![Action::Send(reply(query))],
            // The second question on the connection finds it closing.
            3 => vec![Action::Close],
            _ => vec![Action::Send(reply(query))],
        })
    });
    let server = server.await;
    let upstream = patient(&server, PortPolicy::Pooled);

    ask_ok(&upstream, "a.test").await;
    ask_ok(&upstream, "a.test").await;

    use Transport::{Tcp, Udp};
    assert_eq!(transports(&server), [Udp, Tcp, Udp, Tcp, Tcp]);
    let received = server.received();
    assert_eq!(received[1].peer, received[3].peer);
    assert_ne!(received[3].peer, received[4].peer);
}

#[tokio::test]
async fn a_server_that_always_closes_is_an_error_after_one_connection() {
    let server =
        LoopbackServer::start(|query| only_tcp(query).unwrap_or_else(|| vec![Action::Close]));
    let server = server.await;
    let upstream = patient(&server, PortPolicy::Pooled);
    let got = ask(&upstream, "a.test").await;
    assert!(matches!(got, Err(ExchangeError::Closed)), "{got:?}");
    assert_eq!(transports(&server), [Transport::Udp, Transport::Tcp]);
}

#[tokio::test]
async fn a_connection_gone_silent_is_replaced() {
    let first = Mutex::new(None);
    let server = LoopbackServer::start(move |query| {
        only_tcp(query).unwrap_or_else(|| {
            let opened = *first.lock().get_or_insert(query.peer);
            match query.number {
                0..3 => vec![Action::Send(reply(query))],
                _ if query.peer == opened => Vec::new(),
                _ => vec![Action::Send(reply(query))],
            }
        })
    });
    let server = server.await;
    let upstream = patient(&server, PortPolicy::Pooled);
    ask_ok(&upstream, "a.test").await;

    ask_ok(&upstream, "a.test").await;

    let received = questions(&server);
    assert_eq!(received[1].peer, received[3].peer);
    assert_ne!(received[3].peer, received[4].peer);
}

#[tokio::test]
async fn the_deadline_holds_over_tcp() {
    let server = LoopbackServer::start(|query| only_tcp(query).unwrap_or_default()).await;
    let upstream = patient(&server, PortPolicy::Pooled);
    let asked = query("a.test");
    let deadline = Instant::now() + Duration::from_millis(100);
    let got = upstream.exchange(&asked, deadline).await;
    assert!(matches!(got, Err(ExchangeError::Timeout)));
    assert!(Instant::now() >= deadline);

    // It is silence over TCP that lasts until then.
    tokio::select! {
        _ = upstream.exchange(&asked, Instant::now() + LONG) => unreachable!("nobody answers"),
        () = async { while !transports(&server).contains(&Transport::Tcp) {
            tokio::task::yield_now().await;
        } } => {}
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_ten_seconds() {
    let server = LoopbackServer::saying(long_answer().truncated()).await;
    let upstream = patient(&server, PortPolicy::FreshPort);
    ask_ok(&upstream, "a.test").await;
    tokio::time::pause();
    let start = Instant::now();

    server.sees_closed(1).await;

    let idle = start.elapsed();
    assert!((9..=10).contains(&idle.as_secs()), "{idle:?}");
}

#[tokio::test]
async fn a_dropped_transport_closes_its_connection() {
    let server = LoopbackServer::saying(long_answer().truncated()).await;
    let upstream = patient(&server, PortPolicy::FreshPort);
    ask_ok(&upstream, "a.test").await;
    drop(upstream);
    server.sees_closed(1).await;
}

#[tokio::test]
async fn a_frame_too_short_for_dns_fails_the_questions_on_the_connection() {
    let server = LoopbackServer::start(|query| {
        only_tcp(query).unwrap_or_else(|| vec![Action::Send(vec![0; 11])])
    });
    let server = server.await;
    let upstream = patient(&server, PortPolicy::Pooled);
    let got = ask(&upstream, "a.test").await;
    assert!(matches!(got, Err(ExchangeError::Malformed(_))), "{got:?}");
}
