use super::relay::Relay;
use super::*;

#[tokio::test]
async fn a_silent_connection_is_given_up_after_a_second_and_a_fresh_one_tried() {
    for protocol in BOTH {
        let world = World::new();
        let server = world.server(protocol, answer()).await;
        let relay = Relay::to(server.address).await;
        let upstream = world.upstream(protocol, relay.address);
        ask_ok(&upstream, "a.test").await;
        relay.freeze();
        let start = Instant::now();

        ask_ok(&upstream, "a.test").await;

        let waited = start.elapsed();
        assert!(waited >= Duration::from_secs(1), "{waited:?}");
        assert_eq!(server.log().handshakes, 2);
    }
}

#[tokio::test]
async fn a_fresh_connection_that_is_silent_too_is_tried_only_once() {
    for protocol in BOTH {
        let world = World::new();
        let server = Server::start(protocol, world.certificate(), |asked| match asked.number {
            0 => answer(),
            _ => Reaction::Silence,
        });
        let server = server.await;
        let relay = Relay::to(server.address).await;
        let upstream = world.upstream(protocol, relay.address);
        ask_ok(&upstream, "a.test").await;
        relay.freeze();

        let got = ask_within(&upstream, Duration::from_millis(2500)).await;

        assert!(matches!(got, Err(ExchangeError::Timeout)), "{got:?}");
        assert_eq!(server.log().handshakes, 2);
    }
}

#[tokio::test]
async fn a_connection_on_which_short_questions_died_is_not_used_again() {
    for protocol in BOTH {
        let world = World::new();
        let server = world.server(protocol, answer()).await;
        let relay = Relay::to(server.address).await;
        let upstream = world.upstream(protocol, relay.address);
        ask_ok(&upstream, "a.test").await;
        relay.freeze();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(1) {
            let limit = Duration::from_millis(100);
            let got = ask_within(&upstream, limit).await;
            assert!(matches!(got, Err(ExchangeError::Timeout)), "{got:?}");
        }

        ask_ok(&upstream, "a.test").await;

        assert_eq!(server.log().handshakes, 2);
    }
}

#[tokio::test]
async fn a_server_that_thinks_long_is_waited_for() {
    for protocol in BOTH {
        let world = World::new();
        let slow = Reaction::After(Duration::from_millis(1300), address());
        let server = Server::start(protocol, world.certificate(), move |asked| {
            match asked.number {
                0 => answer(),
                _ => slow.clone(),
            }
        });
        let server = server.await;
        let upstream = world.upstream(protocol, server.address);
        ask_ok(&upstream, "a.test").await;

        ask_ok(&upstream, "a.test").await;

        // Asked meanwhile whether it is there, it said so.
        let log = server.log();
        assert_eq!((log.handshakes, log.asked.len()), (1, 2));
    }
}

#[tokio::test]
async fn a_connection_closed_by_the_server_is_replaced_for_the_question_it_took() {
    for protocol in BOTH {
        for end in [Reaction::Close, Reaction::Cut] {
            let world = World::new();
            let server = Server::start(protocol, world.certificate(), move |asked| {
                match asked.number {
                    1 => end.clone(),
                    _ => answer(),
                }
            });
            let server = server.await;
            let upstream = world.upstream(protocol, server.address);
            ask_ok(&upstream, "a.test").await;

            ask_ok(&upstream, "a.test").await;

            let asked = server.log().asked;
            let connections: Vec<_> = asked.iter().map(|asked| asked.connection).collect();
            assert_eq!(connections, [0, 0, 1]);
        }
    }
}

#[tokio::test]
async fn a_server_that_always_hangs_up_is_an_error_after_one_connection() {
    for protocol in BOTH {
        for end in [Reaction::Close, Reaction::Cut] {
            let world = World::new();
            let server = world.server(protocol, end).await;
            let upstream = world.upstream(protocol, server.address);
            let got = ask(&upstream, "a.test").await;
            let hung_up = matches!(got, Err(ExchangeError::Closed | ExchangeError::Io { .. }));
            assert!(hung_up, "{got:?}");
            assert_eq!(server.log().asked.len(), 1);
        }
    }
}

#[tokio::test]
async fn the_deadline_holds() {
    for protocol in BOTH {
        let world = World::new();
        let server = world.server(protocol, Reaction::Silence).await;
        let upstream = world.upstream(protocol, server.address);
        let start = Instant::now();
        let got = ask_within(&upstream, Duration::from_millis(200)).await;
        assert!(matches!(got, Err(ExchangeError::Timeout)), "{got:?}");
        assert!(start.elapsed() >= Duration::from_millis(200));
    }
}
