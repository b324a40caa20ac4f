//! DNS under the view of a session, and plain DNS beside it.

use kubebridge_proto::v1::exchange_dns_response::Outcome;
use tokio::net::UdpSocket;
use tonic::Code;

use super::*;

/// One open exchange.
pub(super) struct Exchange {
    queries: mpsc::Sender<v1::ExchangeDnsRequest>,
    replies: Streaming<v1::ExchangeDnsResponse>,
    session: String,
}

impl Exchange {
    pub(super) async fn open(client: &mut Client, session: &str) -> Self {
        let (queries, requests) = mpsc::channel(16);
        let replies = client
            .exchange_dns(ReceiverStream::new(requests))
            .await
            .unwrap();
        Self {
            queries,
            replies: replies.into_inner(),
            session: session.to_owned(),
        }
    }

    async fn send(&mut self, tag: u64, query: Vec<u8>) {
        // Only the first request has to name the session.
        let session_id = std::mem::take(&mut self.session);
        let request = v1::ExchangeDnsRequest {
            session_id,
            tag,
            query,
        };
        self.queries.send(request).await.unwrap();
    }

    async fn receive(&mut self) -> (u64, Outcome) {
        let response = self
            .replies
            .message()
            .await
            .unwrap()
            .expect("the stream ended");
        (response.tag, response.outcome.unwrap())
    }

    pub(super) async fn failure(&mut self) -> Status {
        loop {
            match self.replies.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended well"),
                Err(status) => return status,
            }
        }
    }

    pub(super) async fn ask(&mut self, name: &str, rtype: RecordType) -> String {
        self.send(1, query(name, rtype)).await;
        match self.receive().await {
            (1, Outcome::Reply(reply)) => text(&reply),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) async fn plain(world: &World, name: &str, rtype: RecordType) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket
        .send_to(&query(name, rtype), world.running.dns[0])
        .await
        .unwrap();
    let mut reply = [0; 1500];
    let length = socket.recv(&mut reply).await.unwrap();
    text(&reply[..length])
}

#[tokio::test]
async fn a_session_resolves_every_form_of_a_name() {
    let mut world = World::start().await;
    let session = world.open(&["default", "shop"]).await.id;
    let mut exchange = Exchange::open(&mut world.client, &session).await;
    for (name, rtype, expected) in [
        ("authors", RecordType::A, "NOERROR A=10.96.0.20"),
        ("authors.default", RecordType::A, "NOERROR A=10.96.0.20"),
        ("authors.default.svc", RecordType::A, "NOERROR A=10.96.0.20"),
        (
            "authors.default.svc.cluster.local",
            RecordType::A,
            "NOERROR A=10.96.0.20",
        ),
        ("authors.shop", RecordType::A, "NOERROR A=10.96.0.21"),
        ("authors", RecordType::AAAA, "NOERROR"),
        ("dual", RecordType::AAAA, "NOERROR AAAA=fd00::22"),
        ("db", RecordType::A, "NOERROR"),
        ("unknown", RecordType::A, "NXDOMAIN"),
        (
            "20.0.96.10.in-addr.arpa",
            RecordType::PTR,
            "NOERROR PTR=authors.default.svc.cluster.local",
        ),
    ] {
        assert_eq!(exchange.ask(name, rtype).await, expected, "{name} {rtype}");
    }
}

/// D22: the namespace of each session decides short names.
#[tokio::test]
async fn two_sessions_in_two_namespaces_get_their_own_answers() {
    let mut world = World::start().await;
    for (namespace, expected) in [("default", "10.96.0.20"), ("shop", "10.96.0.21")] {
        let session = world.open(&[namespace]).await.id;
        let mut exchange = Exchange::open(&mut world.client, &session).await;
        let answer = exchange.ask("authors", RecordType::A).await;
        assert_eq!(answer, format!("NOERROR A={expected}"));
    }
}

#[tokio::test]
async fn a_name_of_a_namespace_that_was_not_granted_is_refused() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let mut exchange = Exchange::open(&mut world.client, &session).await;
    let answer = exchange
        .ask("authors.shop.svc.cluster.local", RecordType::A)
        .await;
    assert_eq!(answer, "REFUSED");
    world
        .try_open(Some(&session), &["default", "shop"])
        .await
        .unwrap();
    let answer = exchange
        .ask("authors.shop.svc.cluster.local", RecordType::A)
        .await;
    assert_eq!(answer, "NOERROR A=10.96.0.21");
}

#[tokio::test]
async fn replies_carry_the_tag_of_their_query() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let mut exchange = Exchange::open(&mut world.client, &session).await;
    let names = ["authors", "dual", "balanced"];
    for tag in 0..300_usize {
        let name = names[tag % names.len()];
        exchange
            .send(u64::try_from(tag).unwrap(), query(name, RecordType::A))
            .await;
    }
    let mut seen = std::collections::BTreeMap::new();
    for _ in 0..300 {
        let (tag, outcome) = exchange.receive().await;
        let Outcome::Reply(reply) = outcome else {
            panic!("{outcome:?}")
        };
        let parsed = message::answers(&reply).unwrap();
        let (asked, _) = parsed.question.unwrap();
        assert_eq!(
            asked.to_string(),
            names[usize::try_from(tag).unwrap() % names.len()]
        );
        assert!(seen.insert(tag, ()).is_none(), "tag {tag} twice");
    }
}

#[tokio::test]
async fn what_is_no_query_is_a_failure_of_its_tag_and_the_stream_goes_on() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let mut exchange = Exchange::open(&mut world.client, &session).await;
    for (tag, bytes) in [(5, vec![]), (6, vec![0; 11])] {
        exchange.send(tag, bytes).await;
        let (found, outcome) = exchange.receive().await;
        assert_eq!(found, tag);
        let Outcome::Failure(failure) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(failure.reason(), v1::dns_failure::Reason::NotAQuery);
    }
    assert_eq!(
        exchange.ask("authors", RecordType::A).await,
        "NOERROR A=10.96.0.20"
    );
}

#[tokio::test]
async fn an_exchange_without_a_session_is_refused() {
    let mut world = World::start().await;
    for (session, code) in [
        ("", Code::InvalidArgument),
        ("nope", Code::FailedPrecondition),
    ] {
        let mut exchange = Exchange::open(&mut world.client, session).await;
        exchange.send(1, query("authors", RecordType::A)).await;
        assert_eq!(exchange.replies.message().await.unwrap_err().code(), code);
    }
}

#[tokio::test]
async fn a_service_that_changes_is_right_at_once_for_sessions_and_plain_dns() {
    let mut world = World::start().await;
    let session = world.open(&["shop"]).await.id;
    let mut exchange = Exchange::open(&mut world.client, &session).await;
    let full = "authors.shop.svc.cluster.local";
    assert_eq!(
        exchange.ask("authors", RecordType::A).await,
        "NOERROR A=10.96.0.21"
    );
    assert_eq!(exchange.ask("late", RecordType::A).await, "NXDOMAIN");
    assert_eq!(
        plain(&world, full, RecordType::A).await,
        "NOERROR A=10.96.0.21"
    );

    let mut routes = Routes::open(&mut world.client, &session, &[("shop", 0)]).await;
    for _ in 0..2 {
        routes.next().await;
    }
    world.write(
        "kind: List\nitems:\n\
         - {kind: Service, metadata: {name: authors, namespace: shop}, spec: {clusterIP: 10.96.7.7}}\n\
         - {kind: Service, metadata: {name: late, namespace: shop}, spec: {clusterIP: 10.96.7.8}}\n",
    );
    routes.next().await;
    assert_eq!(
        exchange.ask("authors", RecordType::A).await,
        "NOERROR A=10.96.7.7"
    );
    assert_eq!(
        exchange.ask("late", RecordType::A).await,
        "NOERROR A=10.96.7.8"
    );
    assert_eq!(
        plain(&world, full, RecordType::A).await,
        "NOERROR A=10.96.7.7"
    );

    world.write(
        "{kind: Service, metadata: {name: late, namespace: shop}, spec: {clusterIP: 10.96.7.8}}\n",
    );
    routes.next().await;
    assert_eq!(exchange.ask("authors", RecordType::A).await, "NXDOMAIN");
    assert_eq!(plain(&world, full, RecordType::A).await, "NXDOMAIN");
}
