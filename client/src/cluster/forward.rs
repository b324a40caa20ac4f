//! A port-forward to one Pod of the manager, as the byte stream of one gRPC channel or one data
//! connection.
//!
//! One port-forward for each: a slow stream never holds another up. When it ends, so does what it
//! carries; the next channel is a new port-forward, maybe to another Pod. A data connection goes to
//! the Pod it is asked for, since flows live there.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::Portforwarder;
use kubebridge_proto::flow::PREAMBLE;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tonic::transport::{Channel, Endpoint};

use super::pods;
use super::problem::{FORWARD, Kind, Problem};
use super::rights;
use super::{Cluster, HOME};
use crate::control::way::{BoxIo, Place, Way};

/// The manager's gRPC port on its Pod's loopback.
const PORT: u16 = 7080;
/// How long the API server may take to open a forward, and the manager for its first bytes.
const LEG: Duration = Duration::from_secs(3);
/// How long finding a Pod and opening a forward may take in all, with another Pod tried where the
/// first fails. Each leg has a limit of its own, so that a dead network is noticed sooner.
const PATIENCE: Duration = Duration::from_secs(10);
/// A Pod that was left again this soon is tried last.
const SUSPECT: Duration = Duration::from_secs(10);
/// Pods tried in one go; the next attempt lists them anew.
const TRIES: usize = 3;

/// The way through the API server.
#[derive(Debug)]
pub struct PortForward {
    cluster: Arc<Cluster>,
    last: Mutex<Option<(String, Instant)>>,
}

impl PortForward {
    /// Makes the way to the manager of a cluster.
    #[must_use]
    pub fn new(cluster: Arc<Cluster>) -> Self {
        Self {
            cluster,
            last: Mutex::default(),
        }
    }

    /// Tries the Pods one after the other.
    async fn connect(&self) -> Result<Channel, Problem> {
        let candidates = self.cluster.pods().await?;
        let order = pods::order(&candidates, self.suspect().as_deref());
        let mut problem = None;
        for pod in order.into_iter().take(TRIES) {
            match self.open(&pod).await {
                Ok(channel) => {
                    *self.last.lock() = Some((pod, Instant::now()));
                    return Ok(channel);
                }
                Err(refused) if refused.kind == Kind::Forbidden => {
                    let rights = rights::of_reach();
                    return Err(self.cluster.name_missing(refused, &rights).await);
                }
                // Another Pod does not help against what the API server says of the user.
                Err(refused)
                    if refused.kind != Kind::Unreachable && refused.kind != Kind::Missing =>
                {
                    return Err(refused);
                }
                Err(failed) => problem = Some(failed),
            }
        }
        Err(problem.unwrap_or_else(|| no_pod(pods::why_none(&candidates))))
    }

    /// The Pod that was dialled a moment ago, and is no good if we are here again.
    fn suspect(&self) -> Option<String> {
        let last = self.last.lock();
        let recent = last.as_ref().filter(|(_, at)| at.elapsed() < SUSPECT);
        recent.map(|(pod, _)| pod.clone())
    }

    /// Opens the channel of a session.
    async fn open(&self, pod: &str) -> Result<Channel, Problem> {
        let (stream, first) = self.forward(pod).await?;
        let channel = over(stream)
            .await
            .map_err(|error| self.failed(pod, &error.to_string()))?;
        // An HTTP/2 server speaks at once: until then nobody knows whether the port is open.
        match timeout(LEG, first).await {
            Ok(Ok(Ok(()))) => Ok(channel),
            Ok(Ok(Err(error))) => Err(self.failed(pod, &error)),
            Ok(Err(_)) => Err(self.failed(pod, "it ended at once")),
            Err(_) => Err(self.failed(pod, &format!("nothing comes within {LEG:?}"))),
        }
    }

    async fn forward(&self, pod: &str) -> Result<(Stream, First), Problem> {
        let doing = format!("{FORWARD} to pod {pod}");
        let forwarder = self
            .cluster
            .ask(&doing, LEG, |client| async move {
                let pods: Api<Pod> = Api::namespaced(client, HOME);
                pods.portforward(pod, &[PORT]).await
            })
            .await?;
        Stream::new(forwarder).ok_or_else(|| self.failed(pod, "no stream"))
    }

    fn failed(&self, pod: &str, error: &str) -> Problem {
        let words = format!("{FORWARD} to pod {pod}: {error}");
        Problem::new(Kind::Unreachable, words).with_hint(format!(
            "is the manager well? kubectl --context {} -n {HOME} logs {pod}",
            self.cluster.context()
        ))
    }
}

impl fmt::Display for PortForward {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.last.lock();
        let pod = last.as_ref().map_or("a pod", |(pod, _)| pod);
        write!(formatter, "{pod} by {}", self.cluster)
    }
}

impl Way for PortForward {
    fn dial(&self) -> BoxFuture<'_, anyhow::Result<Channel>> {
        async move { Ok(self.connect().await?) }.boxed()
    }

    fn endpoints(&self) -> BoxFuture<'_, Vec<IpAddr>> {
        self.cluster.endpoints().boxed()
    }

    fn place(&self) -> Place {
        let last = self.last.lock();
        last.as_ref()
            .map(|(pod, _)| Place::named(pod))
            .unwrap_or_default()
    }

    fn raw<'a>(&'a self, place: &'a Place) -> BoxFuture<'a, anyhow::Result<BoxIo>> {
        async move {
            let (mut stream, _) = self.forward(place.name()).await?;
            stream.write_all(PREAMBLE).await?;
            Ok(Box::new(stream) as BoxIo)
        }
        .boxed()
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }
}

fn no_pod(why: Option<String>) -> Problem {
    match why {
        None => Problem::new(
            Kind::Missing,
            format!("there is no traffic-manager in namespace {HOME}"),
        )
        .with_hint("kubebridge install"),
        Some(why) => Problem::new(Kind::Missing, format!("no traffic-manager is ready: {why}"))
            .with_hint(format!("kubectl -n {HOME} describe pods")),
    }
}

/// Makes a channel over a stream; it does not connect a second time.
async fn over(stream: Stream) -> Result<Channel, tonic::transport::Error> {
    let mut stream = Some(stream);
    let connector = tower::service_fn(move |_| {
        let stream = stream.take().map(TokioIo::new);
        std::future::ready(stream.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected)))
    });
    Endpoint::from_static("http://traffic-manager")
        .connect_with_connector(connector)
        .await
}

type First = oneshot::Receiver<Result<(), String>>;
type Said = BoxFuture<'static, Option<String>>;

/// The forwarded port. The task behind it ends with it.
struct Stream {
    io: DuplexStream,
    forwarder: Portforwarder,
    /// Told when the first bytes come, or why none do.
    first: Option<oneshot::Sender<Result<(), String>>>,
    said: Option<Said>,
}

impl Stream {
    fn new(mut forwarder: Portforwarder) -> Option<(Self, First)> {
        let io = forwarder.take_stream(PORT)?;
        let said = forwarder.take_error(PORT)?.boxed();
        let (sender, first) = oneshot::channel();
        let stream = Self {
            io,
            forwarder,
            first: Some(sender),
            said: Some(said),
        };
        Some((stream, first))
    }

    /// What the node says about a stream that has ended.
    fn poll_said(&mut self, context: &mut Context<'_>) -> Poll<Option<String>> {
        let said = match &mut self.said {
            Some(said) => ready!(said.poll_unpin(context)),
            None => None,
        };
        self.said = None;
        Poll::Ready(said)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.forwarder.abort();
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        let is_end = buffer.filled().len() == before;
        if !is_end {
            if let Some(first) = self.first.take() {
                // Nobody may wait for it any longer.
                let _ = first.send(Ok(()));
            }
            return Poll::Ready(Ok(()));
        }
        let said = ready!(self.poll_said(context));
        if let Some(first) = self.first.take() {
            let why = said
                .clone()
                .unwrap_or_else(|| "it ended at once".to_owned());
            let _ = first.send(Err(why));
        }
        Poll::Ready(match said {
            Some(said) => Err(io::Error::other(said)),
            None => Ok(()),
        })
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
