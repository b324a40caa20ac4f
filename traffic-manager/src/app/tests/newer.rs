//! W16 at the server: requests of a newer client, written octet by octet.
//!
//! What a newer server sends to us is in `proto/src/routes/tests/newer.rs`.

use futures::{StreamExt, stream};
use http::uri::PathAndQuery;
use kubebridge_proto::test_util::{Message, Raw};
use tonic::Request;
use tonic::client::Grpc;

use super::*;

/// Opens a two-way stream with one request of raw octets.
async fn call<D: Message + Default + 'static>(
    address: SocketAddr,
    method: &str,
    request: Vec<u8>,
) -> Result<Streaming<D>, Status> {
    let channel = Channel::from_shared(format!("http://{address}")).unwrap();
    let mut grpc = Grpc::new(channel.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = PathAndQuery::try_from(format!("/kubebridge.v1.TrafficManager/{method}")).unwrap();
    // The client's end stays open, as a stream of requests does.
    let requests = stream::iter([request]).chain(stream::pending());
    let answer = grpc
        .streaming(Request::new(requests), path, Raw::default())
        .await?;
    Ok(answer.into_inner())
}

/// A field of octets; all numbers here are below 16 and all lengths below 128.
fn octets(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap();
    assert!(number < 16 && length < 128);
    [&[number << 3 | 2, length], value].concat()
}

/// Fields of every wire type under numbers that no message of this version has.
fn unknown() -> Vec<u8> {
    [
        [15 << 3, 0x96, 0x01].as_slice(),
        &[15 << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8],
        &[15 << 3 | 5, 1, 2, 3, 4],
        &octets(15, b"from tomorrow"),
        // A number of two octets, 1000.
        &[0xc2, 0x3e, 3, 9, 9, 9],
    ]
    .concat()
}

async fn open_raw(world: &World, version: &str) -> v1::OpenSessionResponse {
    let request = [
        unknown(),
        octets(1, version.as_bytes()),
        octets(3, b"default"),
        octets(4, &[unknown(), octets(1, b"default")].concat()),
        unknown(),
    ]
    .concat();
    let channel = Channel::from_shared(format!("http://{}", world.running.grpc)).unwrap();
    let mut grpc = Grpc::new(channel.connect().await.unwrap());
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/kubebridge.v1.TrafficManager/OpenSession");
    let answer = grpc
        .unary(Request::new(request), path, Raw::default())
        .await;
    answer.unwrap().into_inner()
}

/// W16: fields only a newer client knows are passed over, wherever they stand.
#[tokio::test]
async fn a_newer_client_gets_its_routes_in_spite_of_fields_unknown_here() {
    let world = World::start_of_one("default").await;
    let session = open_raw(&world, "0.2.0").await.session_id;
    let wanted = [unknown(), octets(1, b"default"), unknown()].concat();
    let request = [
        unknown(),
        octets(1, session.as_bytes()),
        octets(2, &wanted),
        unknown(),
    ]
    .concat();
    let mut frames = call(world.running.grpc, "WatchNamespaceRoutes", request)
        .await
        .unwrap();
    let mut routes = 0;
    loop {
        let frame: v1::WatchNamespaceRoutesResponse = frames.message().await.unwrap().unwrap();
        if let RouteUpdate::Page {
            routes: page, last, ..
        } = RouteUpdate::try_from(frame).unwrap()
        {
            routes += page.len();
            if last {
                break;
            }
        }
    }
    assert_eq!(routes, 5);
}

/// W16: the same for questions.
#[tokio::test]
async fn a_newer_client_is_answered_in_spite_of_fields_unknown_here() {
    let world = World::start_of_one("default").await;
    let session = open_raw(&world, "0.2.0").await.session_id;
    let request = [
        octets(1, session.as_bytes()),
        unknown(),
        vec![2 << 3, 7],
        octets(3, &query("authors", RecordType::A)),
        unknown(),
    ]
    .concat();
    let mut replies = call(world.running.grpc, "ExchangeDns", request)
        .await
        .unwrap();
    let reply: v1::ExchangeDnsResponse = replies.message().await.unwrap().unwrap();
    assert_eq!(reply.tag, 7);
    let Some(v1::exchange_dns_response::Outcome::Reply(reply)) = reply.outcome else {
        panic!("no reply")
    };
    assert_eq!(text(&reply), "NOERROR A=10.96.0.20");
}

/// W16: the manager serves older and newer clients, and says its own version so that they can show
/// the difference.
#[tokio::test]
async fn older_and_newer_clients_get_a_session_and_the_managers_version() {
    let world = World::start_of_one("default").await;
    for version in ["0.0.1", "0.1.0", "0.2.0-rc.1", "1.3.0"] {
        let answer = open_raw(&world, version).await;
        assert_eq!(answer.manager_version, env!("CARGO_PKG_VERSION"));
        assert!(!answer.session_id.is_empty(), "{version}");
    }
}
