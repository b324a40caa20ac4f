use super::*;

fn ports(server: &LoopbackServer) -> Vec<SocketAddr> {
    server.received().iter().map(|query| query.peer).collect()
}

/// Stops the clock, also while all tasks wait for a socket: it does not run ahead as long as a
/// blocking task lives, which ends when what is returned is dropped.
fn freeze() -> std::sync::mpsc::Sender<()> {
    let (hold, held) = std::sync::mpsc::channel();
    tokio::task::spawn_blocking(move || held.recv());
    tokio::time::pause();
    hold
}

#[tokio::test]
async fn pooled_queries_take_turns_on_four_ports() {
    let server = LoopbackServer::saying(address()).await;
    let upstream = patient(&server, PortPolicy::Pooled);
    for _ in 0..12 {
        ask_ok(&upstream, "a.test").await;
    }
    let ports = ports(&server);
    let distinct: BTreeSet<_> = ports[..4].iter().collect();
    assert_eq!(distinct.len(), 4);
    assert_eq!(ports[4..8], ports[..4]);
    assert_eq!(ports[8..], ports[..4]);
}

#[tokio::test]
async fn a_pooled_socket_is_replaced_after_1000_queries() {
    let server = LoopbackServer::saying(address()).await;
    let upstream = patient(&server, PortPolicy::Pooled);
    // Their age is no matter here, however long this takes.
    let _frozen = freeze();
    for _ in 0..4001 {
        ask_ok(&upstream, "a.test").await;
    }
    let ports = ports(&server);
    assert_eq!(ports[..4000].iter().collect::<BTreeSet<_>>().len(), 4);
    assert!(!ports[..4000].contains(&ports[4000]));
}

#[tokio::test]
async fn a_pooled_socket_is_replaced_after_ten_seconds() {
    let server = LoopbackServer::saying(address()).await;
    let upstream = patient(&server, PortPolicy::Pooled);
    for _ in 0..4 {
        ask_ok(&upstream, "a.test").await;
    }
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(10)).await;
    tokio::time::resume();
    for _ in 0..4 {
        ask_ok(&upstream, "a.test").await;
    }
    assert_eq!(ports(&server).iter().collect::<BTreeSet<_>>().len(), 8);
}

#[tokio::test]
async fn every_query_has_a_fresh_port_outside_the_cluster() {
    let server = LoopbackServer::saying(address()).await;
    let upstream = patient(&server, PortPolicy::FreshPort);
    for _ in 0..64 {
        ask_ok(&upstream, "a.test").await;
    }
    let ports = ports(&server);
    let distinct: BTreeSet<_> = ports.iter().collect();
    // The kernel draws from about 28,000 ports and may draw one again.
    assert!(distinct.len() >= 60, "{}", distinct.len());
    let steps: BTreeSet<_> = ports
        .windows(2)
        .map(|w| w[1].port().wrapping_sub(w[0].port()))
        .collect();
    assert!(steps.len() >= 32, "ports do not follow a rule");
}

#[tokio::test]
async fn ids_are_drawn_anew_for_every_query() {
    for policy in BOTH {
        let server = LoopbackServer::saying(address()).await;
        let upstream = patient(&server, policy);
        for _ in 0..64 {
            ask_ok(&upstream, "a.test").await;
        }
        let ids: BTreeSet<_> = server.received().iter().map(id).collect();
        assert!(ids.len() >= 60, "{}", ids.len());
    }
}

#[tokio::test]
async fn sockets_to_one_server_are_bounded() {
    let server = LoopbackServer::saying(Answer::silence()).await;
    let upstream = patient(&server, PortPolicy::FreshPort);
    let asked = query("a.test");
    let holders = (0..MAX_SOCKETS).map(|_| upstream.exchange(&asked, Instant::now() + LONG));
    let holders = futures::future::join_all(holders);
    let late = async {
        server.receives(MAX_SOCKETS).await;
        let deadline = Instant::now() + Duration::from_millis(50);
        let late = (0..50).map(|_| upstream.exchange(&asked, deadline));
        futures::future::join_all(late).await
    };

    let refused = tokio::select! {
        _ = holders => unreachable!("nobody answers"),
        refused = late => refused,
    };

    let timeouts = |result: &Result<_, _>| matches!(result, Err(ExchangeError::Timeout));
    assert!(refused.iter().all(timeouts));
    let distinct: BTreeSet<_> = ports(&server).into_iter().collect();
    assert_eq!(distinct.len(), MAX_SOCKETS);
}

#[tokio::test]
async fn a_dropped_transport_closes_its_sockets() {
    let server = LoopbackServer::saying(address()).await;
    let upstream = patient(&server, PortPolicy::Pooled);
    ask_ok(&upstream, "a.test").await;
    let port = ports(&server)[0];

    drop(upstream);

    // The reader was the last to hold the socket, so its port is free again.
    is_freed(port).await;
}

/// 1,000 queries a second, each sent four times: on one socket after the other the ids would run out.
#[tokio::test(start_paused = true)]
async fn d16_a_silent_server_costs_few_sockets_and_no_query_lacks_an_id() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let upstream = Do53::new(silent.local_addr().unwrap(), PortPolicy::Pooled);
    let Udp::Pooled(pool) = &upstream.udp else {
        panic!("not pooled")
    };
    let ask = async |number: u64| {
        tokio::time::sleep(Duration::from_millis(number)).await;
        let asked = query(&format!("n{number}.test"));
        let deadline = Instant::now() + Duration::from_secs(2);
        let got = upstream.exchange(&asked, deadline).await;
        assert!(matches!(got, Err(ExchangeError::Timeout)), "{got:?}");
        assert!(pool.open_sockets() <= 48, "{}", pool.open_sockets());
    };

    futures::future::join_all((0..6000).map(ask)).await;
}
