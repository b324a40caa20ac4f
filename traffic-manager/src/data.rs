//! The data plane's end in the pod: HTTP/2 streams of laptops → plain sockets in the cluster.
//!
//! Data connections come in on the gRPC listener ([`peek`], or by their ALPN protocol). A stream asks
//! for a flow; it gets one when its session is known, [`egress`](crate::egress) allows the
//! destination, there is room, and the dial succeeds. Octets are carried by the contract's crate.
//! Flows outlive their connection for half a minute, their session's tokens for ten minutes, and
//! the manager's shutdown for its drain window. Only this folder names h2.

use std::sync::Arc;
use std::time::Duration;

use kubebridge_proto::cidr::Cidr;
use kubebridge_proto::flow::Budget;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, debug_span, info};

use self::table::Table;
use crate::access::audit::Audit;
use crate::dial::Dial;
use crate::egress::Egress;
use crate::metrics::flows::FlowCounts;
use crate::sessions::{MAX_SESSIONS, Sessions};

mod admit;
mod again;
mod connection;
mod flow;
#[cfg(test)]
pub(crate) mod laptop;
mod life;
pub mod peek;
pub mod probe;
mod rate;
mod table;

/// The most open flows of all sessions: with what each costs at least (two windows of 16 KiB and the
/// kernel's buffers) some 1 GiB, and well below the descriptors a process may have.
const FLOWS: usize = 20_000;

/// The most data connections: four for each session that is possible.
pub const MAX_CONNECTIONS: usize = 4 * MAX_SESSIONS;

/// What flows may hold beyond their least windows. When three quarters are taken windows shrink.
const MEMORY: usize = 256 << 20;

/// How long open flows may go on after a shutdown began: Kubernetes kills a pod 30 s after it.
const DRAIN: Duration = Duration::from_secs(20);

/// How long connections may take to say of flows that were cut that they are.
const CUT: Duration = Duration::from_secs(1);

/// Serves flows; clones are the same one.
#[derive(Debug, Clone)]
pub struct Data {
    shared: Arc<Shared>,
}

/// What flows need.
#[derive(Debug)]
pub struct Parts {
    /// Who may have flows.
    pub sessions: Arc<Sessions>,
    /// Where to.
    pub egress: Egress,
    /// How.
    pub dial: Arc<dyn Dial>,
    /// The most open flows of one session.
    pub flows_per_session: u16,
    /// Where it is written down.
    pub audit: Arc<Audit>,
    /// What is counted.
    pub counts: FlowCounts,
    /// Ends new flows at once, and open ones after the drain window.
    pub shutdown: CancellationToken,
}

#[derive(Debug)]
struct Shared {
    parts: Parts,
    table: Arc<Table>,
    memory: Budget,
    tasks: TaskTracker,
    /// Cuts what is still open.
    cut: CancellationToken,
}

impl Data {
    /// Makes the server of flows; [`Self::run`] has to run as long as flows may be there.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let limits = table::Limits {
            of_session: parts.flows_per_session.into(),
            of_pod: FLOWS,
        };
        Self {
            shared: Arc::new(Shared {
                table: Arc::new(Table::new(limits)),
                memory: Budget::new(MEMORY),
                tasks: TaskTracker::new(),
                cut: CancellationToken::new(),
                parts,
            }),
        }
    }

    /// Returns what decides where flows may go.
    #[must_use]
    pub fn egress(&self) -> &Egress {
        &self.shared.parts.egress
    }

    /// Returns the ranges of pod addresses that are known.
    #[must_use]
    pub fn pod_ranges(&self) -> Vec<Cidr> {
        let nodes = self.shared.parts.egress.nodes.borrow();
        nodes.pod_ranges.iter().copied().collect()
    }

    /// Returns the most open flows of one session.
    #[must_use]
    pub fn flows_per_session(&self) -> u16 {
        self.shared.parts.flows_per_session
    }

    /// Returns the memory that flows share.
    #[must_use]
    pub fn memory(&self) -> &Budget {
        &self.shared.memory
    }

    /// Serves a data connection until it ends. One too many is dropped.
    pub fn serve<C>(&self, connection: C)
    where
        C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let counted = self.shared.parts.counts.connection();
        if counted.open() > i64::try_from(MAX_CONNECTIONS).unwrap_or(i64::MAX) {
            return;
        }
        let data = self.clone();
        let serving = async move {
            connection::serve(data, connection).await;
            drop(counted);
        };
        let tasks = &self.shared.tasks;
        tasks.spawn(serving.instrument(debug_span!("data connection")));
    }

    /// Waits for the shutdown, lets open flows go on for a while, and cuts what is left then.
    /// Dropping the future cuts at once.
    pub async fn run(self) {
        let cut = self.shared.cut.clone().drop_guard();
        self.shared.parts.shutdown.cancelled().await;
        let tasks = &self.shared.tasks;
        tasks.close();
        if timeout(DRAIN, tasks.wait()).await.is_ok() {
            return;
        }
        info!(
            flows = self.shared.table.open(),
            "cut the flows that were open"
        );
        drop(cut);
        // What does not end then is dropped with the runtime.
        let _ = timeout(2 * CUT, tasks.wait()).await;
    }
}

#[cfg(test)]
mod tests;
