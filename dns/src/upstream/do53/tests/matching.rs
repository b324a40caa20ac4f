use std::collections::BTreeMap;

use super::*;
use crate::message::{QueryOptions, encode_query};

/// Packets that look like replies and are none, though their id is right.
fn impostors(query: &Received) -> Vec<Vec<u8>> {
    let change = |at: usize, value: u8| {
        let mut message = reply(query);
        message[at] = value;
        message
    };
    let name_end = 12 + name("a.test").as_wire().len();
    vec![
        // A query, another opcode, no question, two questions.
        change(2, 0x01),
        change(2, 0xa1),
        change(5, 0),
        change(5, 2),
        // Another name, type and class.
        change(13, b'b'),
        change(name_end + 1, 28),
        change(name_end + 3, 3),
        // Cut within the question, within the header.
        reply(query)[..20].to_vec(),
        reply(query)[..11].to_vec(),
    ]
}

#[tokio::test]
async fn packets_that_do_not_match_are_ignored_and_waiting_goes_on() {
    for policy in BOTH {
        for number in 0..impostors_len() {
            let server = LoopbackServer::start(move |query| {
                let impostor = impostors(query).swap_remove(number);
                vec![Action::Send(impostor), Action::Send(reply(query))]
            });
            let server = server.await;
            let upstream = patient(&server, policy);

            let got = ask_ok(&upstream, "a.test").await;

            let received = server.received();
            assert_eq!(received.len(), 1, "impostor {number}");
            assert_eq!(got, reply(&received[0]));
        }
    }
}

fn impostors_len() -> usize {
    let query = encode_query(0, &name("a.test"), RecordType::A, QueryOptions::default());
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    impostors(&Received {
        transport: Transport::Udp,
        peer,
        number: 0,
        message: query,
    })
    .len()
}

#[tokio::test]
async fn a_reply_from_another_port_is_not_heard() {
    for policy in BOTH {
        let server = LoopbackServer::start(|query| {
            let mut forged = reply(query);
            forged[3] |= 5;
            vec![
                Action::SendFromElsewhere(forged),
                Action::Send(reply(query)),
            ]
        });
        let server = server.await;
        let upstream = patient(&server, policy);

        let got = ask_ok(&upstream, "a.test").await;

        assert_eq!(answers(&got).unwrap().code, ResponseCode::NOERROR);
    }
}

/// Says something under ids that were not asked, then stays silent over UDP.
fn guesses(query: &Received, guesses: u16) -> Vec<Action> {
    match query.transport {
        Transport::Udp => {
            let ids = (1..=guesses).map(|n| id(query).wrapping_add(n));
            ids.map(|id| Action::Send(with_id(reply(query), id)))
                .collect()
        }
        Transport::Tcp => vec![Action::Send(reply(query))],
    }
}

#[tokio::test]
async fn the_first_strange_id_closes_a_pooled_socket_and_its_queries_go_to_tcp() {
    let server = LoopbackServer::start(|query| guesses(query, 1)).await;
    let upstream = patient(&server, PortPolicy::Pooled);

    ask_ok(&upstream, "a.test").await;

    assert_eq!(transports(&server), [Transport::Udp, Transport::Tcp]);
    // The socket is closed, so its port is free.
    is_freed(server.received()[0].peer).await;
    for _ in 1..=4 {
        ask_ok(&upstream, "a.test").await;
    }
    let received = server.received();
    let over_udp = received.iter().filter(|q| q.transport == Transport::Udp);
    let ports: BTreeSet<_> = over_udp.map(|query| query.peer).collect();
    assert_eq!(ports.len(), 5, "every closed socket was replaced");
}

#[tokio::test]
async fn eight_mismatches_at_a_fresh_port_lead_to_tcp_and_seven_do_not() {
    let server = LoopbackServer::start(|query| guesses(query, 8)).await;
    let upstream = patient(&server, PortPolicy::FreshPort);
    ask_ok(&upstream, "a.test").await;
    assert_eq!(transports(&server), [Transport::Udp, Transport::Tcp]);

    let server = LoopbackServer::start(|query| {
        let mut actions = guesses(query, 7);
        actions.push(Action::Send(reply(query)));
        actions
    });
    let server = server.await;
    let upstream = patient(&server, PortPolicy::FreshPort);
    ask_ok(&upstream, "a.test").await;
    assert_eq!(transports(&server), [Transport::Udp]);
}

#[tokio::test]
async fn a_late_reply_to_a_cancelled_query_is_dropped_in_silence() {
    let cancelled = Mutex::new(BTreeMap::new());
    let server = LoopbackServer::start(move |query| {
        let mut cancelled = cancelled.lock();
        if query.number < 4 {
            cancelled.insert(query.peer, reply(query));
            return Vec::new();
        }
        let late = cancelled.remove(&query.peer).map(Action::Send);
        late.into_iter()
            .chain([Action::Send(reply(query))])
            .collect()
    });
    let server = server.await;
    let upstream = patient(&server, PortPolicy::Pooled);
    for number in 1..=4 {
        let asked = query("a.test");
        tokio::select! {
            _ = upstream.exchange(&asked, Instant::now() + LONG) => unreachable!("nobody answers"),
            () = server.receives(number) => {}
        }
    }

    // Each of the four sockets gets a late reply, and must stay in use.
    for _ in 0..4 {
        ask_ok(&upstream, "a.test").await;
    }

    assert_eq!(transports(&server), [Transport::Udp; 8]);
    let ports: BTreeSet<_> = server.received().iter().map(|query| query.peer).collect();
    assert_eq!(ports.len(), 4);
}

#[tokio::test]
async fn a_repeated_reply_is_no_stranger() {
    let server = LoopbackServer::start(|query| vec![Action::Send(reply(query)); 3]).await;
    let upstream = patient(&server, PortPolicy::Pooled);
    for _ in 0..12 {
        ask_ok(&upstream, "a.test").await;
    }
    assert_eq!(transports(&server), [Transport::Udp; 12]);
}

#[tokio::test]
async fn concurrent_questions_get_their_own_replies() {
    let server = LoopbackServer::start(|query| {
        let early = query.number % 2 == 0;
        let delay = Duration::from_millis(if early { 30 } else { 1 });
        vec![Action::SendAfter(delay, reply(query))]
    });
    let server = server.await;
    let upstream = patient(&server, PortPolicy::Pooled);
    let names: Vec<String> = (0..40).map(|n| format!("n{n}.test")).collect();
    let asked = names.iter().map(|name| ask_ok(&upstream, name));
    let replies = futures::future::join_all(asked).await;
    for (text, reply) in names.iter().zip(replies) {
        let (echoed, _) = answers(&reply).unwrap().question.unwrap();
        assert_eq!(echoed, name(text));
    }
}
