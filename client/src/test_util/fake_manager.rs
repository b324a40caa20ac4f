//! A manager that does what a test says: for what a real one will not do on demand, such as falling
//! silent. [`FakeManager`] serves on a loopback port, [`in_memory`] on paused time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use hyper_util::rt::TokioIo;
use kubebridge_proto::routes::RouteUpdate;
use kubebridge_proto::session::SessionInfo;
use kubebridge_proto::v1::traffic_manager_server::{TrafficManager, TrafficManagerServer};
use kubebridge_proto::v1::{self, exchange_dns_response};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status, Streaming};

use super::session_info;

/// How the manager behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// It answers.
    Willing,
    /// It takes everything and says nothing more.
    Silent,
}

/// What a pipe holds before its writer waits.
const PIPE: usize = 64 * 1024;

type Answer = Box<dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync>;

/// What a test and its manager share.
pub(crate) struct Script {
    pub(crate) mood: watch::Sender<Mood>,
    /// Frames for the route stream now open.
    pub(crate) frames:
        Mutex<Option<mpsc::Sender<Result<v1::WatchNamespaceRoutesResponse, Status>>>>,
    /// What the client asked of route streams.
    pub(crate) subscriptions: watch::Sender<Vec<v1::WatchNamespaceRoutesRequest>>,
    /// The sessions opened, by the id asked for.
    pub(crate) opened: Mutex<Vec<String>>,
    /// The namespaces asked for each time.
    pub(crate) namespaces: Mutex<Vec<Vec<String>>>,
    /// The tokens presented each time.
    pub(crate) tokens: Mutex<Vec<Vec<String>>>,
    /// Whether it knows the sessions that clients name, or has forgotten them.
    pub(crate) remembers: AtomicBool,
    /// What it says about itself and a session.
    pub(crate) info: Mutex<SessionInfo>,
    /// Why it opens no session.
    pub(crate) refusal: Mutex<Option<Status>>,
    pub(crate) answer: Answer,
    /// The steps it tells of every answer; without them it does not know the call.
    pub(crate) story: Mutex<Option<Vec<v1::ExplainStep>>>,
    /// Its upstreams.
    pub(crate) upstreams: Mutex<Vec<v1::UpstreamStatus>>,
    sessions: AtomicUsize,
}

impl Script {
    pub(crate) fn new(
        answer: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            mood: watch::Sender::new(Mood::Willing),
            frames: Mutex::default(),
            subscriptions: watch::Sender::new(Vec::new()),
            opened: Mutex::default(),
            namespaces: Mutex::default(),
            tokens: Mutex::default(),
            remembers: AtomicBool::new(false),
            info: Mutex::new(session_info(&["10.96.0.0/16"])),
            refusal: Mutex::default(),
            answer: Box::new(answer),
            story: Mutex::default(),
            upstreams: Mutex::default(),
            sessions: AtomicUsize::new(0),
        })
    }

    /// Sends a frame on the route stream that is open.
    pub(crate) async fn send(&self, update: RouteUpdate) {
        let sender = self.frames.lock().clone().expect("a route stream is open");
        sender.send(Ok(update.into())).await.unwrap();
    }

    /// Waits until the client has subscribed this many times.
    pub(crate) async fn subscribed(&self, times: usize) -> v1::WatchNamespaceRoutesRequest {
        let mut seen = self.subscriptions.subscribe();
        let all = seen.wait_for(|all| all.len() >= times).await.unwrap();
        all[times - 1].clone()
    }
}

/// A manager that runs until it is dropped.
pub(crate) struct FakeManager {
    pub(crate) address: SocketAddr,
    listener: std::net::TcpListener,
    /// Its own, so that its connections die with it.
    runtime: Option<Runtime>,
}

impl Drop for FakeManager {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl FakeManager {
    pub(crate) async fn start(script: &Arc<Script>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::serve(script, listener.into_std().unwrap())
    }

    /// Dies with its connections, and returns its socket, where clients then wait unheard.
    pub(crate) fn die(self) -> std::net::TcpListener {
        self.listener.try_clone().unwrap()
    }

    /// Serves on a socket, the last manager's for example.
    pub(crate) fn serve(script: &Arc<Script>, listener: std::net::TcpListener) -> Self {
        let address = listener.local_addr().unwrap();
        let kept = listener.try_clone().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let service = TrafficManagerServer::new(Manager(Arc::clone(script)));
        runtime.spawn(async move {
            let incoming = TcpListenerStream::new(TcpListener::from_std(listener).unwrap());
            let server = tonic::transport::Server::builder().add_service(service);
            server.serve_with_incoming(incoming).await.unwrap();
        });
        Self {
            address,
            listener: kept,
            runtime: Some(runtime),
        }
    }
}

/// Serves on one connection that is a pipe in memory: where tokio's clock is paused, nothing but
/// time itself takes time. A second connection is refused.
pub(crate) fn in_memory(script: &Arc<Script>) -> Channel {
    let (near, far) = tokio::io::duplex(PIPE);
    let service = TrafficManagerServer::new(Manager(Arc::clone(script)));
    let server = tonic::transport::Server::builder().add_service(service);
    let incoming = futures::stream::iter([Ok::<_, io::Error>(far)]);
    tokio::spawn(server.serve_with_incoming(incoming.chain(futures::stream::pending())));
    let mut near = Some(TokioIo::new(near));
    let connector = tower::service_fn(move |_: tonic::transport::Uri| {
        let taken = near.take().ok_or(io::ErrorKind::ConnectionRefused);
        std::future::ready(taken.map_err(io::Error::from))
    });
    Endpoint::from_static("http://manager").connect_with_connector_lazy(connector)
}

struct Manager(Arc<Script>);

impl Manager {
    /// Waits for ever once the manager has fallen silent.
    async fn speak(&self) {
        let mut mood = self.0.mood.subscribe();
        let _ = mood.wait_for(|mood| *mood == Mood::Willing).await;
    }
}

#[tonic::async_trait]
impl TrafficManager for Manager {
    type WatchNamespaceRoutesStream =
        ReceiverStream<Result<v1::WatchNamespaceRoutesResponse, Status>>;
    type WatchNamespacesStream = BoxStream<'static, Result<v1::WatchNamespacesResponse, Status>>;
    type ExchangeDnsStream = BoxStream<'static, Result<v1::ExchangeDnsResponse, Status>>;
    type WatchUpstreamsStream = BoxStream<'static, Result<v1::WatchUpstreamsResponse, Status>>;

    async fn open_session(
        &self,
        request: Request<v1::OpenSessionRequest>,
    ) -> Result<Response<v1::OpenSessionResponse>, Status> {
        self.speak().await;
        let request = request.into_inner();
        let tokens = request.tokens.into_iter().map(|token| token.token);
        self.0.tokens.lock().push(tokens.collect());
        self.0.namespaces.lock().push(request.namespaces);
        let asked = request.session_id;
        self.0.opened.lock().push(asked.clone());
        let remembers = self.0.remembers.load(Ordering::Relaxed);
        if !asked.is_empty() && !remembers {
            return Err(Status::failed_precondition("unknown session"));
        }
        if let Some(refusal) = self.0.refusal.lock().clone() {
            return Err(refusal);
        }
        let mut info = self.0.info.lock().clone();
        info.id = match asked.is_empty() {
            true => format!(
                "session-{}",
                self.0.sessions.fetch_add(1, Ordering::Relaxed)
            ),
            false => asked,
        };
        Ok(Response::new(info.into()))
    }

    async fn watch_namespace_routes(
        &self,
        request: Request<Streaming<v1::WatchNamespaceRoutesRequest>>,
    ) -> Result<Response<Self::WatchNamespaceRoutesStream>, Status> {
        let (sender, frames) = mpsc::channel(16);
        *self.0.frames.lock() = Some(sender);
        let script = Arc::clone(&self.0);
        let mut requests = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(request)) = requests.message().await {
                script.subscriptions.send_modify(|all| all.push(request));
            }
        });
        Ok(Response::new(ReceiverStream::new(frames)))
    }

    async fn watch_namespaces(
        &self,
        _request: Request<v1::WatchNamespacesRequest>,
    ) -> Result<Response<Self::WatchNamespacesStream>, Status> {
        Err(Status::unimplemented("not in this fake"))
    }

    async fn exchange_dns(
        &self,
        request: Request<Streaming<v1::ExchangeDnsRequest>>,
    ) -> Result<Response<Self::ExchangeDnsStream>, Status> {
        let script = Arc::clone(&self.0);
        Ok(Response::new(replies(script, request.into_inner()).boxed()))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        self.speak().await;
        let Some(steps) = self.0.story.lock().clone() else {
            return Err(Status::unimplemented("not in this fake"));
        };
        let reply = (self.0.answer)(&request.into_inner().query);
        Ok(Response::new(v1::ExplainResponse {
            reply: reply.unwrap_or_default(),
            steps,
            left_out: 0,
        }))
    }

    async fn probe(
        &self,
        _request: Request<v1::ProbeRequest>,
    ) -> Result<Response<v1::ProbeResponse>, Status> {
        Err(Status::unimplemented("not in this fake"))
    }

    async fn watch_upstreams(
        &self,
        _request: Request<v1::WatchUpstreamsRequest>,
    ) -> Result<Response<Self::WatchUpstreamsStream>, Status> {
        let upstreams = self.0.upstreams.lock().clone();
        let list = v1::WatchUpstreamsResponse { upstreams };
        // Nothing changes, and the stream stays open.
        let lists = futures::stream::iter([Ok(list)]).chain(futures::stream::pending());
        Ok(Response::new(lists.boxed()))
    }

    async fn echo(
        &self,
        request: Request<v1::EchoRequest>,
    ) -> Result<Response<v1::EchoResponse>, Status> {
        self.speak().await;
        let payload = request.into_inner().payload;
        Ok(Response::new(v1::EchoResponse { payload }))
    }
}

fn replies(
    script: Arc<Script>,
    requests: Streaming<v1::ExchangeDnsRequest>,
) -> impl Stream<Item = Result<v1::ExchangeDnsResponse, Status>> {
    requests.filter_map(move |request| {
        let script = Arc::clone(&script);
        async move {
            let request = request.ok()?;
            if *script.mood.borrow() == Mood::Silent || request.query.is_empty() {
                return None;
            }
            let reply = (script.answer)(&request.query)?;
            Some(Ok(v1::ExchangeDnsResponse {
                tag: request.tag,
                outcome: Some(exchange_dns_response::Outcome::Reply(reply)),
            }))
        }
    })
}
