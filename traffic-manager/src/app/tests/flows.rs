//! Flows and the questions about them, on the port that gRPC has too.

use kubebridge_dns::test_util::{Answer, LoopbackServer};
use kubebridge_proto::flow::{FailureKind, FlowId, Open, PREAMBLE, Protocol};
use kubebridge_proto::probe::{Endpoints, ProbeRequest, Probed, Verdict};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tonic::Code;

use super::dns::Exchange;
use super::*;
use crate::data::laptop::Laptop;

/// Opens a data connection beside the gRPC ones.
async fn connect_data(world: &World) -> Laptop {
    let mut stream = TcpStream::connect(world.running.grpc).await.unwrap();
    stream.write_all(PREAMBLE).await.unwrap();
    Laptop::over(stream).await
}

fn flow(session: &str, to: &str) -> Open {
    Open {
        session: session.to_owned(),
        flow: FlowId::new(rand::random()),
        protocol: Protocol::Tcp,
        destination: to.parse().unwrap(),
        resume: None,
    }
}

async fn probe(
    world: &mut World,
    session: &str,
    protocol: Protocol,
    to: &str,
) -> Result<Probed, Status> {
    let request = ProbeRequest {
        session_id: session.to_owned(),
        protocol,
        destination: to.parse().unwrap(),
    };
    let answer = world.client.probe(v1::ProbeRequest::from(request)).await?;
    Ok(answer.into_inner().into())
}

#[tokio::test]
async fn flows_are_served_on_the_port_of_grpc_to_sessions_alone() {
    let mut world = World::start_with(|config| config.flows_per_session = 77).await;
    let session = world.open(&["default"]).await;
    assert_eq!(session.limits.flows, Some(77));
    let data = connect_data(&world).await;
    assert_eq!(data.echo(16).await, Some(16));
    for (session, to, kind, detail) in [
        (
            session.id.as_str(),
            "10.96.0.21:80",
            FailureKind::Denied,
            "namespace-not-granted",
        ),
        (
            &session.id,
            "10.96.0.20:81",
            FailureKind::Denied,
            "no-such-port",
        ),
        (&session.id, "127.0.0.1:80", FailureKind::Denied, "loopback"),
        (
            "nobody",
            "10.96.0.20:80",
            FailureKind::Session,
            "no such session",
        ),
    ] {
        let failure = data.failure(&flow(session, to)).await;
        assert_eq!(failure.kind, kind, "{to}");
        assert_eq!(failure.detail.as_deref(), Some(detail), "{to}");
    }
    // gRPC goes on beside it.
    world.open(&["shop"]).await;
}

#[tokio::test]
async fn the_manager_itself_is_never_dialled() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let data = connect_data(&world).await;
    for to in [
        world.running.grpc,
        world.running.admin,
        world.running.dns[0],
    ] {
        let failure = data.failure(&flow(&session, &to.to_string())).await;
        assert_eq!(failure.kind, FailureKind::Denied);
    }
}

#[tokio::test]
async fn a_probe_tells_of_the_sessions_own_services_alone() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let probed = probe(&mut world, &session, Protocol::Tcp, "10.96.0.21:80")
        .await
        .unwrap();
    let nothing = Probed {
        verdict: Verdict::Denied("namespace-not-granted".to_owned()),
        service: None,
        dial: None,
    };
    assert_eq!(probed, nothing);
    let probed = probe(&mut world, &session, Protocol::Tcp, "10.96.0.20:81")
        .await
        .unwrap();
    assert_eq!(probed.verdict, Verdict::Denied("no-such-port".to_owned()));
    let service = probed.service.unwrap();
    assert_eq!(
        (service.namespace.as_str(), service.name.as_str()),
        ("default", "authors")
    );
    let unknown = Endpoints::Unknown("the manager has no source of endpoints".to_owned());
    assert_eq!(service.endpoints, unknown);
    let status = probe(&mut world, "nobody", Protocol::Tcp, "10.96.0.20:80")
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn what_an_exchange_answered_may_be_dialled_by_the_session_that_asked() {
    let upstream = LoopbackServer::start(|query| {
        Answer::address("docs.example", [203, 0, 113, 90]).actions(query)
    })
    .await;
    let address = upstream.address().to_string();
    let mut world = World::start_with(|config| {
        config.resolution.upstreams = vec![address.parse().unwrap()];
    })
    .await;
    let session = world.open(&["default"]).await.id;
    let other = world.open(&["default"]).await.id;
    // Of ICMP a probe makes a socket, and sends nothing.
    let to = "203.0.113.90:0";
    let before = probe(&mut world, &session, Protocol::Icmp, to)
        .await
        .unwrap();
    assert_eq!(before.verdict, Verdict::Denied("not-listed".to_owned()));
    let mut exchange = Exchange::open(&mut world.client, &session).await;
    let answer = exchange.ask("docs", RecordType::A).await;
    assert!(answer.contains("A=203.0.113.90"), "{answer}");
    let after = probe(&mut world, &session, Protocol::Icmp, to)
        .await
        .unwrap();
    assert_eq!(after.verdict, Verdict::Allowed("resolved".to_owned()));
    let elsewhere = probe(&mut world, &other, Protocol::Icmp, to).await.unwrap();
    assert_eq!(elsewhere.verdict, Verdict::Denied("not-listed".to_owned()));
}
