//! A session lasts as long as its tokens do (R3), by a clock that goes as fast as tokio's.

use anyhow::Result;
use futures::future::BoxFuture;
use kubebridge_proto::token::Reason;
use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::time::{Instant, advance};
use tonic::transport::{Endpoint, Uri};

use super::dns::Exchange;
use super::routes::fed::service_over;
use super::*;
use crate::access::Gate;
use crate::access::audit::Audit;
use crate::access::keeper::{Keeper, KeySource, Published};
use crate::access::wall::Wall;
use crate::grpc::serve::{Reflection, serve_on};
use crate::kubernetes::index::{Index, Served};

const NOW: u64 = 1_800_000_000;

struct Held(Published);

impl KeySource for Held {
    fn fetch(&self) -> BoxFuture<'_, Result<Published>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}

/// A manager within the test: no socket, so that time may jump.
struct Within {
    client: Client,
    issuer: Issuer,
    wall: Wall,
    sessions: Arc<Sessions>,
    audit: mpsc::Receiver<String>,
    shutdown: CancellationToken,
}

impl Within {
    async fn start() -> Self {
        let (issuer, wall) = (Issuer::default(), Wall::at(NOW));
        let shutdown = CancellationToken::new();
        let (keeper, keeping) = Keeper::new(Held(issuer.published()), shutdown.clone());
        tokio::spawn(keeping);
        let (lines, audit) = mpsc::channel(64);
        let log = Arc::new(Audit::new(Some(lines), wall));
        let index = Arc::new(Index::new(
            Served::Namespaces(["shop".to_owned()].into()),
            1,
        ));
        let gate = Gate::Tokens { keeper, wall };
        let (service, plain) = service_over(&index, gate, log, &shutdown);
        let sessions = Arc::clone(&service.sessions);
        tokio::spawn(Arc::clone(&sessions).sweep_until(shutdown.clone()));
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            // The plain view lives as long as the server.
            let _plain = plain;
            let one = tokio_stream::once(Ok::<_, std::io::Error>(far));
            let open = tokio_stream::StreamExt::chain(one, futures::stream::pending());
            serve_on(open, Reflection::Off, service).await.unwrap();
        });
        Self {
            client: TrafficManagerClient::new(over(near).await),
            issuer,
            wall,
            sessions,
            audit,
            shutdown,
        }
    }

    fn token(&self) -> Vec<v1::NamespaceToken> {
        vec![v1::NamespaceToken {
            namespace: "shop".to_owned(),
            token: self.issuer.sign(&Issuer::claims("shop", self.wall.unix())),
        }]
    }

    async fn open(&mut self, id: Option<&str>) -> SessionInfo {
        let tokens = self.token();
        open(&mut self.client, id, &["shop"], tokens).await.unwrap()
    }

    async fn event(&mut self) -> Value {
        serde_json::from_str(&self.audit.recv().await.unwrap()).unwrap()
    }
}

async fn over(stream: DuplexStream) -> Channel {
    let mut stream = Some(stream);
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take().map(hyper_util::rt::TokioIo::new);
        std::future::ready(stream.ok_or_else(|| std::io::Error::other("connected already")))
    });
    Endpoint::from_static("http://within")
        .connect_with_connector(connector)
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn r3_a_right_that_is_taken_away_ends_within_the_hour_and_a_renewal_puts_it_off() {
    let mut world = Within::start().await;
    let opened = world.open(None).await;
    assert_eq!(opened.expires_in, Some(Duration::from_secs(3600)));
    let mut routes = Routes::open(&mut world.client, &opened.id, &[("shop", 0)]).await;
    routes.next().await;
    let mut exchange = Exchange::open(&mut world.client, &opened.id).await;
    exchange.ask("authors", RecordType::A).await;

    // At 80 % the client renews; the streams go on and are the same.
    advance(Duration::from_secs(2880)).await;
    let renewed = world.open(Some(&opened.id)).await;
    assert_eq!(renewed.id, opened.id);
    assert_eq!(renewed.expires_in, Some(Duration::from_secs(3600)));
    // From here on nobody gives the client a token any more.
    let taken_away = Instant::now();
    let last = world.token();

    advance(Duration::from_secs(3500)).await;
    exchange.ask("authors", RecordType::A).await;
    let status = routes.failure().await;
    assert_eq!(Reason::of(&status), Some(Reason::SessionExpired));
    let lasted = taken_away.elapsed();
    assert!(lasted <= Duration::from_secs(70 * 60), "{lasted:?}");
    assert_eq!(lasted.as_secs(), 3600);

    let status = exchange.failure().await;
    assert_eq!(Reason::of(&status), Some(Reason::SessionExpired));
    let request = v1::WatchNamespacesRequest {
        session_id: opened.id.clone(),
    };
    let status = world.client.watch_namespaces(request).await.unwrap_err();
    let over = [Some(Reason::SessionExpired), Some(Reason::SessionUnknown)];
    assert!(over.contains(&Reason::of(&status)), "{status}");
    let renewal = open(&mut world.client, Some(&opened.id), &["shop"], last).await;
    assert_eq!(
        Reason::of(&renewal.unwrap_err()),
        Some(Reason::TokenExpired)
    );

    let (first, second) = (world.event().await, world.event().await);
    assert_eq!(
        (&first["event"], &second["event"]),
        (&"open".into(), &"renew".into())
    );
    assert_ne!(first["tokens"][0]["id"], second["tokens"][0]["id"]);
    loop {
        let event = world.event().await;
        if event["event"] == "close" {
            assert_eq!(event["reason"], "expired");
            assert_eq!(event["session"], opened.id[..8]);
            break;
        }
    }
    assert_eq!(world.sessions.count(), 0);
    world.shutdown.cancel();
}

#[tokio::test(start_paused = true)]
async fn r3_an_open_session_is_closed_in_the_audit_log_at_shutdown() {
    let mut world = Within::start().await;
    world.open(None).await;
    assert_eq!(world.event().await["event"], "open");
    world.shutdown.cancel();
    let event = world.event().await;
    assert_eq!(
        (&event["event"], &event["reason"]),
        (&"close".into(), &"shutdown".into())
    );
}
