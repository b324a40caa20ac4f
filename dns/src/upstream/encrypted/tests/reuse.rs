use futures::future::join_all;

use super::*;

#[tokio::test]
async fn a_hundred_questions_take_one_handshake() {
    for protocol in BOTH {
        let world = World::new();
        let server = world.server(protocol, answer()).await;
        let upstream = world.upstream(protocol, server.address);
        let names: Vec<String> = (0..50).map(|n| format!("n{n}.test")).collect();

        join_all(names.iter().map(|name| ask_ok(&upstream, name))).await;
        for name in &names {
            ask_ok(&upstream, name).await;
        }

        let log = server.log();
        assert_eq!(
            (log.connections, log.handshakes, log.asked.len()),
            (1, 1, 100)
        );
    }
}

#[tokio::test]
async fn a_slow_question_holds_up_no_other() {
    for protocol in BOTH {
        let world = World::new();
        let server = Server::start(protocol, world.certificate(), |asked| match asked.number {
            0 => Reaction::After(Duration::from_secs(3600), address()),
            _ => answer(),
        });
        let server = server.await;
        let upstream = world.upstream(protocol, server.address);
        let slow = ask(&upstream, "slow.test");
        let others = async {
            server.sees(|log| log.asked.len() == 1).await;
            for _ in 0..20 {
                ask_ok(&upstream, "a.test").await;
            }
        };
        tokio::select! {
            got = slow => panic!("{got:?}"),
            () = others => {}
        }
        assert_eq!(server.log().handshakes, 1);
    }
}

#[tokio::test]
async fn upstreams_reached_in_the_same_way_share_their_connection() {
    for protocol in BOTH {
        let world = World::new();
        let server = world.server(protocol, answer()).await;
        let first = world.upstream(protocol, server.address);
        let second = world.upstream(protocol, server.address);
        ask_ok(&first, "a.test").await;
        ask_ok(&second, "a.test").await;
        drop(first);
        ask_ok(&second, "a.test").await;
        assert_eq!(server.log().handshakes, 1);

        let mut apart = world.settings.clone();
        apart.trust.ca_files.push(apart.trust.ca_files[0].clone());
        let third = connect(&spec(protocol, server.address), &apart).unwrap();
        ask_ok(&third, "a.test").await;
        assert_eq!(server.log().handshakes, 2, "another trust store");

        drop((second, third));
        server.sees(|log| log.closed == 2).await;
    }
}

#[tokio::test]
async fn renewed_connections_are_opened_anew_and_resume_their_session() {
    for protocol in BOTH {
        let world = World::new();
        let server = world.server(protocol, answer()).await;
        let upstream = world.upstream(protocol, server.address);
        ask_ok(&upstream, "a.test").await;

        world.settings.connections.renew();
        ask_ok(&upstream, "a.test").await;

        let log = server.log();
        assert_eq!((log.handshakes, log.resumed), (2, 1));
        server.sees(|log| log.closed == 1).await;
    }
}

#[tokio::test]
async fn a_connection_goes_on_opening_when_the_first_to_ask_has_left() {
    for protocol in BOTH {
        let world = World::new();
        let server = world.server(protocol, answer()).await;
        let upstream = world.upstream(protocol, server.address);

        let got = ask_within(&upstream, Duration::ZERO).await;

        assert!(matches!(got, Err(ExchangeError::Timeout)), "{got:?}");
        server.sees(|log| log.handshakes == 1).await;
        assert!(server.log().asked.is_empty());
        ask_ok(&upstream, "a.test").await;
        assert_eq!(server.log().connections, 1);
    }
}

#[tokio::test]
async fn all_who_wait_for_a_connection_learn_of_its_failure_at_once() {
    for protocol in BOTH {
        let world = World::new();
        let certificate = world.authority.certify(NAME, Validity::Past);
        let server = Server::start(protocol, certificate, |_| answer()).await;
        let upstream = world.upstream(protocol, server.address);
        let all = join_all((0..20).map(|_| refusal(&upstream))).await;
        assert_eq!(all, vec![TlsRefusal::Expired; 20]);
        assert_eq!(server.log().connections, 1);
    }
}

#[tokio::test]
async fn a_closed_port_fails_at_once() {
    for protocol in BOTH {
        let world = World::new();
        let server = world.server(protocol, answer()).await;
        let gone = server.address;
        drop(server);
        tokio::task::yield_now().await;
        let upstream = world.upstream(protocol, gone);
        let got = ask(&upstream, "a.test").await;
        assert!(matches!(got, Err(ExchangeError::Io { .. })), "{got:?}");
    }
}
