//! What may be dialled, and how dials fail.

use super::*;
use crate::kubernetes::endpoints::{Port, Slice};

#[tokio::test]
async fn f1_a_failed_dial_is_told_in_its_own_word() {
    let world = World::new();
    let laptop = world.connect().await;
    for kind in [
        FailureKind::Refused,
        FailureKind::HostUnreachable,
        FailureKind::NetworkUnreachable,
        FailureKind::Timeout,
        FailureKind::Denied,
        FailureKind::Limit,
        FailureKind::Internal,
    ] {
        world.lead(SHOP, Err(kind));
        assert_eq!(laptop.failure(&world.open_tcp(SHOP)).await.kind, kind);
    }
    let closed = world.listener(SHOP).await;
    drop(closed);
    assert_eq!(
        laptop.failure(&world.open_tcp(SHOP)).await.kind,
        FailureKind::Refused
    );
    assert_eq!(world.data.shared.table.open(), 0);
}

#[tokio::test]
async fn a_session_that_is_unknown_or_expired_gets_no_flow() {
    let world = World::new();
    let laptop = world.connect().await;
    let mut open_flow = world.open_tcp(SHOP);
    for id in ["0", &"0".repeat(32)] {
        open_flow.session = id.to_owned();
        let failure = laptop.failure(&open_flow).await;
        assert_eq!(failure.kind, FailureKind::Session);
        assert_eq!(failure.detail.as_deref(), Some("no such session"));
    }
    let expired = open(
        &world.sessions,
        Admission {
            expires: Some(Instant::now()),
            ..Admission::default()
        },
    );
    open_flow.session = expired.id().to_owned();
    let failure = laptop.failure(&open_flow).await;
    assert_eq!(failure.kind, FailureKind::Session);
    assert_eq!(
        failure.detail.as_deref(),
        Some("the session's tokens expired")
    );
    assert!(world.script.dialled.lock().is_empty());
}

#[tokio::test]
async fn a_request_that_makes_no_sense_is_refused_and_the_connection_goes_on() {
    let world = World::new();
    let laptop = world.connect().await;
    let ask = async |request: http::Request<()>| {
        let mut requests = laptop.requests.clone().ready().await.unwrap();
        let (response, _) = requests.send_request(request, true).unwrap();
        within("a response", response).await.unwrap()
    };
    let post = |path: &str| http::Request::post(format!("http://manager{path}"));
    let response = ask(post("/flow").body(()).unwrap()).await;
    assert_eq!(verdict(&response).unwrap_err().kind, FailureKind::Internal);
    let response = ask(post("/other").body(()).unwrap()).await;
    assert_eq!(response.status(), 404);
    let response = ask(post("/flow").header("kb-session", "x").body(()).unwrap()).await;
    assert_eq!(verdict(&response).unwrap_err().kind, FailureKind::Internal);
    let listener = world.listener(SHOP).await;
    laptop.open(&world.open_tcp(SHOP)).await.unwrap();
    within("the connection", listener.accept()).await.unwrap();
}

#[tokio::test]
async fn an_echo_comes_back_and_is_bounded() {
    let world = World::new();
    let laptop = world.connect().await;
    assert_eq!(laptop.echo(0).await, Some(0));
    assert_eq!(laptop.echo(16).await, Some(16));
    assert_eq!(laptop.echo(200_000).await, None);
    assert_eq!(laptop.echo(16).await, Some(16));
}

/// Every place of a cluster that somebody might try, and every protocol and port there.
fn everything() -> impl Iterator<Item = (Protocol, SocketAddr)> {
    const PORTS: [u16; 15] = [
        1, 22, 53, 80, 81, 443, 2379, 2380, 5353, 6443, 7080, 8080, 10250, 10255, 65535,
    ];
    let others = [
        "127.0.0.1",
        "::1",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "::ffff:127.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "fd00:ec2::254",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "255.255.255.255",
        "100.100.100.200",
        "fe80::1",
        "::ffff:10.96.0.21",
        "8.8.8.8",
        "2001:db8::1",
    ];
    let services = (0..=255_u8).map(|last| IpAddr::from([10, 96, 0, last]));
    let pods = (0..=15_u8).map(|last| IpAddr::from([10, 244, 1, last]));
    let others = others.into_iter().map(|text| text.parse().unwrap());
    services.chain(pods).chain(others).flat_map(|host: IpAddr| {
        let ports = |protocol| PORTS.map(move |port| (protocol, SocketAddr::new(host, port)));
        let ping = (Protocol::Icmp, SocketAddr::new(host, 0));
        let streams = ports(Protocol::Tcp).into_iter();
        streams.chain(ports(Protocol::Udp)).chain([ping])
    })
}

/// What of it the session has.
const ITS_OWN: [(Protocol, &str); 6] = [
    (Protocol::Tcp, "10.96.0.20:80"),
    (Protocol::Tcp, "10.96.0.20:81"),
    (Protocol::Udp, "10.96.0.20:5353"),
    (Protocol::Icmp, "10.96.0.20:0"),
    (Protocol::Tcp, "10.244.1.5:8080"),
    (Protocol::Icmp, "10.244.1.5:0"),
];

fn slice(namespace: &str, address: &str) -> Slice {
    Slice {
        namespace: namespace.to_owned(),
        name: "authors-x".to_owned(),
        service: "authors".to_owned(),
        addresses: vec![(address.parse().unwrap(), true)],
        ports: vec![Port {
            protocol: PortProtocol::Tcp,
            number: Some(8080),
        }],
    }
}

/// R2 at this layer: from a session, everything that is not its own.
#[tokio::test]
async fn r2_a_probe_of_everything_finds_the_sessions_own_service_alone_and_is_written_down() {
    let mut world = World::new();
    let endpoints = &world.data.egress().endpoints;
    endpoints.apply(slice("shop", "10.244.1.5"));
    endpoints.apply(slice("prod", "10.244.1.6"));
    let laptop = world.connect().await;
    let mut denied = 0;
    let mut found = Vec::new();
    for (protocol, to) in everything() {
        let failure = laptop.failure(&world.open(protocol, &to.to_string())).await;
        match (failure.kind, failure.detail.as_deref()) {
            (FailureKind::Denied, Some(_)) => denied += 1,
            // Allowed, and then dialled into nowhere.
            (FailureKind::HostUnreachable, None) => found.push((protocol, to.to_string())),
            other => panic!("{to}: {other:?}"),
        }
    }
    let expected: Vec<_> = ITS_OWN
        .map(|(protocol, to)| (protocol, to.to_owned()))
        .into();
    assert_eq!(found, expected);
    // What is denied costs no packet.
    let dialled: Vec<_> = world
        .script
        .dialled
        .lock()
        .iter()
        .map(ToString::to_string)
        .collect();
    let expected: Vec<_> = expected.into_iter().map(|(_, to)| to).collect();
    assert_eq!(dialled, expected);
    // And adds up in the audit log.
    let audit = Arc::clone(&world.data.shared.parts.audit);
    let ending = CancellationToken::new();
    ending.cancel();
    audit.flush_until(ending).await;
    let lines = world.lines("\"denied\"");
    let counted: u64 = lines
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line["call"] == "Flow")
        .map(|line| line["count"].as_u64().unwrap())
        .sum();
    assert_eq!(counted, denied);
    assert!(
        lines
            .iter()
            .any(|line| line.contains("\"namespace\":\"prod\""))
    );
    assert!(!lines.iter().any(|line| line.contains("8.8.8.8")));
}

#[tokio::test]
async fn what_the_session_resolved_is_dialled_and_what_it_did_not_is_not() {
    let world = World::new();
    let laptop = world.connect().await;
    let to = "203.0.113.5:443";
    let listener = world.listener(to).await;
    let failure = laptop.failure(&world.open_tcp(to)).await;
    assert_eq!(failure.detail.as_deref(), Some("not-listed"));
    let asked: Name = "db.corp.example".parse().unwrap();
    let reply = answer(&asked, [203, 0, 113, 5]);
    let view = world.session.view();
    let egress = world.data.egress();
    world
        .session
        .learn(&reply, &view, &egress.index, &egress.rules, Instant::now());
    laptop.open(&world.open_tcp(to)).await.unwrap();
    within("the connection", listener.accept()).await.unwrap();
}

/// An answer with one address.
fn answer(asked: &Name, address: [u8; 4]) -> Vec<u8> {
    let mut reply = vec![0, 1, 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    reply.extend(asked.as_wire());
    reply.extend([0, 1, 0, 1]);
    reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4]);
    reply.extend(address);
    reply
}
