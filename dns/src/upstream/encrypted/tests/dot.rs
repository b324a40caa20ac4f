use std::collections::BTreeSet;

use super::*;
use crate::framing::frame;

#[tokio::test]
async fn the_server_name_is_sent_and_the_protocol_named() {
    let world = World::new();
    let server = world.server(Protocol::Dot, answer()).await;
    let upstream = world.upstream(Protocol::Dot, server.address);
    ask_ok(&upstream, "a.test").await;
    let expected = (Some(NAME.to_owned()), Some(b"dot".to_vec()));
    assert_eq!(server.log().hellos, [expected]);
}

#[tokio::test]
async fn questions_in_flight_have_ids_of_their_own_and_may_be_answered_in_any_order() {
    let world = World::new();
    let server = Server::start(Protocol::Dot, world.certificate(), |asked| {
        let delay = 20 - 2 * (asked.number as u64 % 10);
        Reaction::After(Duration::from_millis(delay), address())
    });
    let server = server.await;
    let upstream = world.upstream(Protocol::Dot, server.address);
    let names: Vec<String> = (0..50).map(|n| format!("n{n}.test")).collect();
    futures::future::join_all(names.iter().map(|name| ask_ok(&upstream, name))).await;
    let asked = server.log().asked;
    let ids: BTreeSet<_> = asked
        .iter()
        .map(|asked| asked.message[..2].to_vec())
        .collect();
    assert_eq!(ids.len(), 50);
}

#[tokio::test]
async fn a_question_given_up_leaves_the_connection_and_its_late_reply_is_dropped() {
    let world = World::new();
    let given_up = parking_lot::Mutex::new(Vec::new());
    let server = Server::start(Protocol::Dot, world.certificate(), move |asked| {
        let reply = || frame(&address().reply_to(&asked.message)).unwrap();
        match asked.number {
            1 => {
                *given_up.lock() = reply();
                Reaction::Silence
            }
            2 => Reaction::Bytes([given_up.lock().clone(), reply()].concat()),
            _ => answer(),
        }
    });
    let server = server.await;
    let upstream = world.upstream(Protocol::Dot, server.address);
    ask_ok(&upstream, "a.test").await;

    let got = ask_within(&upstream, Duration::from_millis(100)).await;
    assert!(matches!(got, Err(ExchangeError::Timeout)), "{got:?}");
    // The late reply comes before the one to this.
    ask_ok(&upstream, "b.test").await;
    ask_ok(&upstream, "c.test").await;

    let log = server.log();
    assert_eq!((log.handshakes, log.asked.len()), (1, 4));
}

#[tokio::test]
async fn many_more_questions_than_there_are_ids_at_once_go_over_one_connection() {
    let world = World::new();
    let server = world.server(Protocol::Dot, answer()).await;
    let upstream = world.upstream(Protocol::Dot, server.address);
    for _ in 0..25 {
        futures::future::join_all((0..100).map(|_| ask_ok(&upstream, "a.test"))).await;
    }
    assert_eq!(server.log().handshakes, 1);
}

#[tokio::test]
async fn a_reply_to_another_question_is_not_taken() {
    let world = World::new();
    let server = Server::start(Protocol::Dot, world.certificate(), |asked| {
        let mut reply = address().reply_to(&asked.message);
        reply[13] = b'x';
        Reaction::Bytes(frame(&reply).unwrap())
    });
    let server = server.await;
    let upstream = world.upstream(Protocol::Dot, server.address);
    let got = ask_within(&upstream, Duration::from_millis(200)).await;
    assert!(matches!(got, Err(ExchangeError::Timeout)), "{got:?}");
}

#[tokio::test]
async fn what_cannot_be_dns_fails_the_connection() {
    let world = World::new();
    let server = world
        .server(Protocol::Dot, Reaction::Bytes(vec![0; 13]))
        .await;
    let upstream = world.upstream(Protocol::Dot, server.address);
    let got = ask(&upstream, "a.test").await;
    assert!(matches!(got, Err(ExchangeError::Malformed(_))), "{got:?}");
}

#[tokio::test]
async fn a_truncated_reply_is_never_passed_on() {
    for protocol in BOTH {
        let world = World::new();
        let reaction = Reaction::Answer(address().truncated());
        let server = world.server(protocol, reaction).await;
        let upstream = world.upstream(protocol, server.address);
        let got = ask(&upstream, "a.test").await;
        assert!(matches!(got, Err(ExchangeError::Malformed(_))), "{got:?}");
    }
}

#[tokio::test]
async fn a_server_that_rejects_edns_is_asked_again_without() {
    for protocol in BOTH {
        let world = World::new();
        let server = Server::start(protocol, world.certificate(), |asked| {
            let has_opt = asked.message[11] > 0;
            let formerr = Answer::code(ResponseCode::FORMERR);
            Reaction::Answer(if has_opt {
                formerr.without_edns()
            } else {
                address()
            })
        });
        let server = server.await;
        let upstream = world.upstream(protocol, server.address);
        ask_ok(&upstream, "a.test").await;
        ask_ok(&upstream, "a.test").await;
        let asked = server.log().asked;
        let opts: Vec<_> = asked.iter().map(|asked| asked.message[11]).collect();
        assert_eq!(opts, [1, 0, 0]);
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_a_minute() {
    let world = World::new();
    let server = world.server(Protocol::Dot, answer()).await;
    let upstream = world.upstream(Protocol::Dot, server.address);
    ask_ok(&upstream, "a.test").await;
    tokio::time::pause();
    let start = Instant::now();
    server.sees(|log| log.closed == 1).await;
    let idle = start.elapsed().as_secs();
    assert!((59..=60).contains(&idle), "{idle}");
}
