//! The gRPC service over sessions, index and resolver. Knows no Kubernetes object.
//!
//! Each call has its file; this one holds what they share.

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use kubebridge_dns::resolver::Resolver;
use kubebridge_proto::token::Reason;
use kubebridge_proto::v1::traffic_manager_server::TrafficManager;
use kubebridge_proto::{error::InvalidMessage, v1};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

use crate::access::Gate;
use crate::access::audit::Audit;
use crate::data::Data;
use crate::kubernetes::cidrs::Ranges;
use crate::kubernetes::index::Index;
use crate::kubernetes::namespaces::Observed;
use crate::metrics::Metrics;
use crate::sessions::{Lease, Refused, Session, Sessions};

pub use self::explain::Explains;

mod denied;
mod exchange;
mod explain;
mod namespaces;
mod open;
mod probe;
mod routes;
pub mod serve;
mod upstreams;

/// The longest echo: enough to fill a few packets, too little to be a way to move data.
const MAX_ECHO: usize = 4096;

/// A stream of responses.
type Responses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The gRPC service.
#[derive(Clone)]
pub struct Service {
    /// The open sessions.
    pub sessions: Arc<Sessions>,
    /// The routes of every namespace.
    pub index: Arc<Index>,
    /// The namespaces seen in the cluster.
    pub observed: watch::Receiver<Observed>,
    /// The ranges of `ClusterIPs`.
    pub ranges: watch::Receiver<Ranges>,
    /// The engine that answers for sessions.
    pub resolver: Arc<Resolver>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Who gets a session.
    pub gate: Gate,
    /// Where it is written down.
    pub audit: Arc<Audit>,
    /// What serves flows.
    pub data: Data,
    /// What is being explained.
    pub explains: Arc<Explains>,
    /// Ends the streams.
    pub shutdown: CancellationToken,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Service")
            .field("gate", &self.gate)
            .finish_non_exhaustive()
    }
}

impl Service {
    /// Finds the session a call names.
    fn session(&self, id: &str) -> Result<Arc<Session>, Status> {
        if id.is_empty() {
            return Err(invalid(&InvalidMessage::Missing {
                field: "session_id",
            }));
        }
        self.sessions.find(id, Instant::now()).map_err(refused)
    }
}

#[tonic::async_trait]
impl TrafficManager for Service {
    type WatchNamespaceRoutesStream = Responses<v1::WatchNamespaceRoutesResponse>;
    type WatchNamespacesStream = Responses<v1::WatchNamespacesResponse>;
    type ExchangeDnsStream = Responses<v1::ExchangeDnsResponse>;
    type WatchUpstreamsStream = Responses<v1::WatchUpstreamsResponse>;

    async fn open_session(
        &self,
        request: Request<v1::OpenSessionRequest>,
    ) -> Result<Response<v1::OpenSessionResponse>, Status> {
        let peer = request.extensions().get().cloned();
        open::open(self, peer, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn watch_namespace_routes(
        &self,
        request: Request<Streaming<v1::WatchNamespaceRoutesRequest>>,
    ) -> Result<Response<Self::WatchNamespaceRoutesStream>, Status> {
        Ok(Response::new(Box::pin(routes::stream(
            self.clone(),
            request.into_inner(),
        ))))
    }

    async fn watch_namespaces(
        &self,
        request: Request<v1::WatchNamespacesRequest>,
    ) -> Result<Response<Self::WatchNamespacesStream>, Status> {
        let session = self.session(&request.into_inner().session_id)?;
        Ok(Response::new(Box::pin(namespaces::stream(self, session))))
    }

    async fn exchange_dns(
        &self,
        request: Request<Streaming<v1::ExchangeDnsRequest>>,
    ) -> Result<Response<Self::ExchangeDnsStream>, Status> {
        Ok(Response::new(Box::pin(exchange::stream(
            self.clone(),
            request.into_inner(),
        ))))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        let explained = explain::explain(self, request.into_inner()).await?;
        Ok(Response::new(explained))
    }

    async fn probe(
        &self,
        request: Request<v1::ProbeRequest>,
    ) -> Result<Response<v1::ProbeResponse>, Status> {
        let probed = probe::probe(self, request.into_inner()).await?;
        Ok(Response::new(probed))
    }

    async fn watch_upstreams(
        &self,
        request: Request<v1::WatchUpstreamsRequest>,
    ) -> Result<Response<Self::WatchUpstreamsStream>, Status> {
        let session = self.session(&request.into_inner().session_id)?;
        Ok(Response::new(Box::pin(upstreams::stream(self, session))))
    }

    async fn echo(
        &self,
        request: Request<v1::EchoRequest>,
    ) -> Result<Response<v1::EchoResponse>, Status> {
        let payload = request.into_inner().payload;
        if payload.len() > MAX_ECHO {
            let found = payload.len();
            let message = format!("payload has {found} octets, at most {MAX_ECHO} come back");
            return Err(Status::invalid_argument(message));
        }
        Ok(Response::new(v1::EchoResponse { payload }))
    }
}

/// Refuses a message that makes no sense.
fn invalid(error: &InvalidMessage) -> Status {
    Status::invalid_argument(error.to_string())
}

/// Says why there is no such session; the client opens a new one where that helps.
fn refused(refused: Refused) -> Status {
    match refused {
        Refused::Unknown => {
            Reason::SessionUnknown.status("unknown or expired session: open a new one")
        }
        Refused::Expired => expired(),
        Refused::Full => Status::resource_exhausted("too many sessions: try again later"),
        Refused::Invalid(reason) => Status::invalid_argument(reason),
    }
}

/// Says that a session is over because its tokens are.
fn expired() -> Status {
    Reason::SessionExpired.status("the session's tokens expired: open a new one with fresh tokens")
}

/// Waits until the tokens of a stream's session have expired; for ever before there is one.
async fn expiry(session: Option<&mut Lease>) {
    match session {
        Some(session) => session.expired().await,
        None => std::future::pending().await,
    }
}
