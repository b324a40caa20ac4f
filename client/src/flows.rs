//! Connections into the cluster, opened for whoever has a program's packets or a proxy's request.
//!
//! [`Opener`] is the seam: the laptop's stack and the proxies open flows through it, and their
//! tests have fakes of it. A flow is open when the manager has dialled its destination, so that
//! what the program is told is true. Who may go where is the manager's business.

mod abrupt;
mod connection;
mod counted;
mod counters;
mod datagram;
mod keep;
mod open;
mod plan;
mod shared;
mod status;
mod tcp;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kubebridge_proto::session::SessionInfo;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::control::way::Way;
use crate::task::Essential;
use shared::Shared;

pub use kubebridge_proto::flow::{Ended, FailureKind, How, Local};

pub use abrupt::AbruptStatus;
pub use datagram::{DatagramEnds, DatagramFlow};
pub use status::{ConnectionStatus, FlowsStatus};

/// The most data connections of a session: four carry what a lossy path takes, and more would be
/// unfair to others on it.
pub const MOST_CONNECTIONS: u8 = 4;

/// How long ending may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Opens flows into the cluster.
pub trait Opener: Send + Sync + 'static {
    /// Opens a TCP connection; returns after it was dialled. Dropping the future cancels the dial.
    fn open_tcp(&self, to: SocketAddr) -> BoxFuture<'_, Result<BoxTcpFlow, Failure>>;

    /// Opens a UDP flow from a port of its own at the manager.
    fn open_udp(&self, to: SocketAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>>;

    /// Opens a flow of ICMP echo: each datagram is one message, from its type on; its identifier
    /// and checksum are the manager's.
    fn ping(&self, to: IpAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>>;
}

/// A TCP connection that was dialled at the manager and has no local end yet. Dropping it resets
/// the connection.
pub trait TcpFlow: Send {
    /// Carries it until both directions are finished or either side resets it. Dropping the
    /// future resets the cluster's side.
    fn carry(self: Box<Self>, local: Box<dyn Local>) -> BoxFuture<'static, Ended>;
}

/// Some [`TcpFlow`].
pub type BoxTcpFlow = Box<dyn TcpFlow>;

/// A session's flows and the data connections they use. There is none before the first is wanted.
#[derive(Debug)]
pub struct Flows {
    shared: Arc<Shared>,
    keeper: tokio::sync::Mutex<Option<Essential>>,
    /// What carries datagrams.
    carrying: TaskTracker,
    shutdown: CancellationToken,
}

impl Flows {
    /// Starts the flows of a session that is kept by others, over at most so many connections.
    #[must_use]
    pub fn start(
        way: Arc<dyn Way>,
        session: watch::Receiver<SessionInfo>,
        connections: u8,
    ) -> Arc<Self> {
        let most = usize::from(connections.max(1));
        let shared = Arc::new(Shared::new(way, session, most));
        let shutdown = CancellationToken::new();
        let (ended, keeping) = (shutdown.clone(), keep::keep(Arc::clone(&shared)));
        let task = async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = keeping => {}
            }
        };
        let task = tokio::spawn(task.instrument(tracing::info_span!("flows")));
        let keeper = Essential::new("flows", shutdown.clone(), task);
        Arc::new(Self {
            shared,
            keeper: tokio::sync::Mutex::new(Some(keeper)),
            carrying: TaskTracker::new(),
            shutdown,
        })
    }

    /// Opens the first data connection ahead of the first flow.
    pub fn warm(&self) {
        self.shared.want();
    }

    /// Has all connections prove that they live: the machine slept, or the way is doubtful.
    pub fn doubt(&self) {
        let ready = self.shared.ready.borrow();
        ready.iter().for_each(|connection| connection.doubt());
    }

    /// Returns how things stand.
    #[must_use]
    pub fn status(&self) -> FlowsStatus {
        FlowsStatus::of(&self.shared)
    }

    /// Waits until the keeper of the connections ends by itself, which it should not.
    pub async fn ended(&self) {
        match &mut *self.keeper.lock().await {
            Some(keeper) => keeper.ended().await,
            None => std::future::pending().await,
        }
    }

    /// Ends the connections, and all flows with them.
    pub async fn stop(&self) {
        self.shutdown.cancel();
        let keeper = self.keeper.lock().await.take();
        if let Some(keeper) = keeper {
            keeper.stop(PATIENCE).await;
        }
        self.carrying.close();
        if tokio::time::timeout(PATIENCE, self.carrying.wait())
            .await
            .is_err()
        {
            tracing::warn!("flows of datagrams did not end in time");
        }
    }
}

impl Opener for Flows {
    fn open_tcp(&self, to: SocketAddr) -> BoxFuture<'_, Result<BoxTcpFlow, Failure>> {
        self.open_stream(to).boxed()
    }

    fn open_udp(&self, to: SocketAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>> {
        self.open_datagrams(to).boxed()
    }

    fn ping(&self, to: IpAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>> {
        self.open_echo(to).boxed()
    }
}

/// Why a flow was not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The manager says so.
    #[error(transparent)]
    Manager(#[from] kubebridge_proto::flow::Failure),
    /// The session has as many flows as it may have.
    #[error("too many open flows")]
    Full,
    /// There is no connection to the manager.
    #[error("no connection to the manager")]
    Down,
}

/// What a program is told of a flow that was not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// A reset: nobody listens there, or not now.
    Reset,
    /// ICMP: host unreachable.
    HostUnreachable,
    /// ICMP: network unreachable.
    NetworkUnreachable,
    /// ICMP: administratively prohibited.
    Prohibited,
    /// Nothing: the program's own clock decides.
    Silence,
}

impl Failure {
    /// Returns what the program is told.
    #[must_use]
    pub fn answer(&self) -> Answer {
        match self {
            Self::Manager(failure) => match failure.kind {
                FailureKind::Refused
                | FailureKind::Limit
                | FailureKind::Gone
                | FailureKind::Internal => Answer::Reset,
                FailureKind::HostUnreachable => Answer::HostUnreachable,
                FailureKind::NetworkUnreachable | FailureKind::Session => {
                    Answer::NetworkUnreachable
                }
                FailureKind::Denied => Answer::Prohibited,
                FailureKind::Timeout => Answer::Silence,
            },
            Self::Full => Answer::Reset,
            Self::Down => Answer::NetworkUnreachable,
        }
    }
}

#[cfg(test)]
mod tests;
