use super::server::Setup;
use super::*;

#[tokio::test]
async fn a_question_is_a_post_to_the_server_name_under_id_0() {
    let world = World::new();
    let server = world.server(Protocol::Doh, answer()).await;
    let upstream = world.upstream(Protocol::Doh, server.address);
    ask_ok(&upstream, "a.test").await;
    let log = server.log();
    assert_eq!(log.hellos, [(Some(NAME.to_owned()), Some(b"h2".to_vec()))]);
    let port = server.address.port();
    let request = format!("POST https://dns.test:{port}/dns-query application/dns-message");
    assert_eq!(log.asked[0].request, Some(request));
    assert_eq!(log.asked[0].message[..2], [0, 0]);
}

#[tokio::test]
async fn a_status_other_than_200_is_an_error_that_names_it() {
    for status in [301, 404, 429, 503] {
        let world = World::new();
        let reaction = Reaction::Http(status, "text/html", b"no".to_vec());
        let server = world.server(Protocol::Doh, reaction).await;
        let upstream = world.upstream(Protocol::Doh, server.address);
        let error = ask(&upstream, "a.test").await.unwrap_err();
        assert!(matches!(error, ExchangeError::HttpStatus(s) if s == status));
        assert!(error.to_string().contains(&status.to_string()));
        assert_eq!(server.log().asked.len(), 1);
    }
}

#[tokio::test]
async fn what_cannot_be_the_answer_is_malformed() {
    const DNS: &str = "application/dns-message";
    let other = address().reply_to(b"\0\x01\x01\0\0\x01\0\0\0\0\0\0\x01a\x04test\0\0\x01\0\x01");
    for (kind, body) in [
        ("text/html", b"<p>captive portal</p>".to_vec()),
        (DNS, Vec::new()),
        (DNS, vec![0; 70_000]),
        (DNS, other),
    ] {
        let world = World::new();
        let reaction = Reaction::Http(200, kind, body);
        let server = world.server(Protocol::Doh, reaction).await;
        let upstream = world.upstream(Protocol::Doh, server.address);
        let got = ask(&upstream, "a.test").await;
        assert!(matches!(got, Err(ExchangeError::Malformed(_))), "{got:?}");
    }
}

#[tokio::test]
async fn sixty_four_kib_arrive_intact_many_times_over() {
    let world = World::new();
    let record = crate::test_util::Record::new("a.test", RecordType::TXT, vec![7; 65_400]);
    let long = Reaction::Answer(Answer::records([record]));
    let server = world.server(Protocol::Doh, long).await;
    let upstream = world.upstream(Protocol::Doh, server.address);
    let all = futures::future::join_all((0..40).map(|_| ask(&upstream, "a.test"))).await;
    assert!(
        all.iter()
            .all(|reply| reply.as_ref().unwrap().len() > 65_400)
    );
    assert_eq!(server.log().handshakes, 1);
}

#[tokio::test]
async fn a_request_refused_unseen_is_sent_once_more() {
    let world = World::new();
    let server = Server::start(Protocol::Doh, world.certificate(), |asked| {
        match asked.number {
            0 => Reaction::Refuse,
            _ => answer(),
        }
    });
    let server = server.await;
    let upstream = world.upstream(Protocol::Doh, server.address);
    ask_ok(&upstream, "a.test").await;
    assert_eq!(server.log().asked.len(), 2);

    let server = world.server(Protocol::Doh, Reaction::Refuse).await;
    let upstream = world.upstream(Protocol::Doh, server.address);
    let got = ask(&upstream, "a.test").await;
    assert!(matches!(got, Err(ExchangeError::Closed)), "{got:?}");
    assert_eq!(server.log().asked.len(), 2);
}

#[tokio::test]
async fn a_connection_that_goes_away_under_a_request_is_replaced_once() {
    for (going_away, succeeds) in [(1, true), (2, false)] {
        let world = World::new();
        let setup = Setup {
            going_away,
            ..Setup::right(Protocol::Doh)
        };
        let server = Server::with(setup, world.certificate(), |_| answer()).await;
        let upstream = world.upstream(Protocol::Doh, server.address);
        let got = ask(&upstream, "a.test").await;
        assert_eq!(got.is_ok(), succeeds, "{got:?}");
        assert_eq!(server.log().handshakes, 2);
    }
}

#[tokio::test]
async fn a_connection_that_goes_away_in_peace_costs_no_question() {
    let world = World::new();
    let server = world
        .server(Protocol::Doh, Reaction::LastAnswer(address()))
        .await;
    let upstream = world.upstream(Protocol::Doh, server.address);
    for _ in 0..5 {
        ask_ok(&upstream, "a.test").await;
    }
    let log = server.log();
    assert!(log.handshakes > 1, "it went away");
    assert_eq!(log.asked.len(), 5, "nothing is asked twice");
}

#[tokio::test]
async fn a_question_given_up_is_taken_back() {
    let world = World::new();
    let server = Server::start(Protocol::Doh, world.certificate(), |asked| {
        match asked.number {
            0 => Reaction::Silence,
            _ => answer(),
        }
    });
    let server = server.await;
    let upstream = world.upstream(Protocol::Doh, server.address);
    tokio::select! {
        got = ask(&upstream, "a.test") => panic!("{got:?}"),
        () = server.sees(|log| log.asked.len() == 1) => {}
    }

    server.sees(|log| log.resets == [h2::Reason::CANCEL]).await;

    ask_ok(&upstream, "a.test").await;
    assert_eq!(server.log().handshakes, 1);
}

#[tokio::test]
async fn an_idle_connection_is_kept_for_five_minutes() {
    let world = World::new();
    let server = world.server(Protocol::Doh, answer()).await;
    let upstream = world.upstream(Protocol::Doh, server.address);
    ask_ok(&upstream, "a.test").await;
    let seen = server.sees(|log| log.closed == 1);
    let idle = in_paused_time(seen).await.as_secs();
    assert!((295..=330).contains(&idle), "{idle}");
}

/// Lets the clock run, a second at a time so that loopback keeps up with it.
async fn in_paused_time(end: impl Future<Output = ()>) -> Duration {
    tokio::time::pause();
    let start = Instant::now();
    tokio::pin!(end);
    loop {
        tokio::select! {
            biased;
            () = &mut end => return start.elapsed(),
            () = async {
                // Whatever is in the sockets is taken in first.
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                    std::thread::yield_now();
                }
                tokio::time::advance(Duration::from_secs(1)).await;
            } => {}
        }
    }
}
