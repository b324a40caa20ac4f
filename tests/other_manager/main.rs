//! A manager of another version than this tree's, for what a client makes of that.
//!
//! `other-manager LISTEN VERSION [MINIMUM]` speaks the contract, says that it is VERSION and works
//! with clients of MINIMUM and above, has no Services, and knows no name. It resolves nothing and
//! tests nothing else: the real manager is for that.

use std::net::SocketAddr;
use std::pin::Pin;

use anyhow::{Context, Result};
use kubebridge_proto::routes::{NamespaceState, RouteUpdate};
use kubebridge_proto::v1;
use kubebridge_proto::v1::exchange_dns_response::Outcome;
use kubebridge_proto::v1::traffic_manager_server::{TrafficManager, TrafficManagerServer};
use tokio::sync::mpsc;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status, Streaming};

/// Frames that the network has not taken yet: two for each of a session's few namespaces.
const FRAMES: usize = 64;

/// The flags of a DNS reply that say "there is no such name".
const NO_SUCH_NAME: [u8; 2] = [0x81, 0x83];

struct Manager {
    version: String,
    minimum: String,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let usage = "other-manager LISTEN VERSION [MINIMUM]";
    let listen: SocketAddr = words.next().context(usage)?.parse()?;
    let manager = Manager {
        version: words.next().context(usage)?,
        minimum: words.next().unwrap_or_default(),
    };
    let listener = tokio::net::TcpListener::bind(listen).await?;
    say(&format!("listening on {}", listener.local_addr()?));
    tonic::transport::Server::builder()
        .add_service(TrafficManagerServer::new(manager))
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await?;
    Ok(())
}

#[expect(clippy::print_stdout, reason = "whoever starts it waits for that")]
fn say(line: &str) {
    println!("{line}");
}

type Replies<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl TrafficManager for Manager {
    type WatchNamespaceRoutesStream =
        ReceiverStream<Result<v1::WatchNamespaceRoutesResponse, Status>>;
    type WatchNamespacesStream = Replies<v1::WatchNamespacesResponse>;
    type ExchangeDnsStream = Replies<v1::ExchangeDnsResponse>;
    type WatchUpstreamsStream = Replies<v1::WatchUpstreamsResponse>;

    async fn open_session(
        &self,
        _request: Request<v1::OpenSessionRequest>,
    ) -> Result<Response<v1::OpenSessionResponse>, Status> {
        Ok(Response::new(v1::OpenSessionResponse {
            session_id: "another".to_owned(),
            manager_version: self.version.clone(),
            minimum_client_version: self.minimum.clone(),
            cluster_domain: "cluster.local".to_owned(),
            search: vec!["default.svc.cluster.local".to_owned()],
            ndots: 5,
            ..Default::default()
        }))
    }

    async fn watch_namespace_routes(
        &self,
        request: Request<Streaming<v1::WatchNamespaceRoutesRequest>>,
    ) -> Result<Response<Self::WatchNamespaceRoutesStream>, Status> {
        let (sender, frames) = mpsc::channel(FRAMES);
        let mut requests = request.into_inner();
        // It ends with the stream.
        tokio::spawn(async move {
            while let Ok(Some(wanted)) = requests.message().await {
                for namespace in wanted.namespaces {
                    for frame in nothing_in(&namespace.namespace) {
                        if sender.send(Ok(frame)).await.is_err() {
                            return;
                        }
                    }
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(frames)))
    }

    async fn watch_namespaces(
        &self,
        _request: Request<v1::WatchNamespacesRequest>,
    ) -> Result<Response<Self::WatchNamespacesStream>, Status> {
        Err(Status::unimplemented("not by this manager"))
    }

    async fn exchange_dns(
        &self,
        request: Request<Streaming<v1::ExchangeDnsRequest>>,
    ) -> Result<Response<Self::ExchangeDnsStream>, Status> {
        let replies = request.into_inner().filter_map(|request| {
            let request = request.ok()?;
            let mut reply = request.query;
            reply.get_mut(2..4)?.copy_from_slice(&NO_SUCH_NAME);
            Some(Ok(v1::ExchangeDnsResponse {
                tag: request.tag,
                outcome: Some(Outcome::Reply(reply)),
            }))
        });
        Ok(Response::new(Box::pin(replies)))
    }

    async fn explain(
        &self,
        _request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        Err(Status::unimplemented("not by this manager"))
    }

    async fn probe(
        &self,
        _request: Request<v1::ProbeRequest>,
    ) -> Result<Response<v1::ProbeResponse>, Status> {
        Err(Status::unimplemented("not by this manager"))
    }

    async fn watch_upstreams(
        &self,
        _request: Request<v1::WatchUpstreamsRequest>,
    ) -> Result<Response<Self::WatchUpstreamsStream>, Status> {
        Err(Status::unimplemented("not by this manager"))
    }

    async fn echo(
        &self,
        request: Request<v1::EchoRequest>,
    ) -> Result<Response<v1::EchoResponse>, Status> {
        let payload = request.into_inner().payload;
        Ok(Response::new(v1::EchoResponse { payload }))
    }
}

/// The frames of a namespace without Services.
fn nothing_in(namespace: &str) -> [v1::WatchNamespaceRoutesResponse; 2] {
    let namespace = namespace.to_owned();
    let state = RouteUpdate::State {
        namespace: namespace.clone(),
        state: NamespaceState::Synced,
    };
    let page = RouteUpdate::Page {
        namespace,
        revision: 1,
        routes: Vec::new(),
        last: true,
    };
    [state.into(), page.into()]
}
