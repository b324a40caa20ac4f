//! The way to the manager: one gRPC channel, kept up for as long as the session lives.
//!
//! [`dial`] and [`open_session`] are the first attempt, whose failure ends `connect`. From then on
//! [`Control`] owns the channel: it watches it, reopens it, and says through watches how it stands.
//! It changes nothing on the machine: names outside the cluster never notice.

pub(crate) mod backoff;
pub mod calls;
pub(crate) mod echo;
pub mod exchange;
mod keep;
pub mod namespaces;
mod renew;
pub mod secure;
mod watch_routes;
pub mod way;

use std::sync::Arc;
use std::time::Duration;

use kubebridge_platform::Clock;
use kubebridge_proto::session::{SessionInfo, SessionRequest};
use kubebridge_proto::token::Reason;
use kubebridge_proto::v1::OpenSessionRequest;
use kubebridge_proto::v1::traffic_manager_client::TrafficManagerClient;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::transport::Channel;
use tracing::Instrument;

use crate::access::{Lacking, Tokens};
use crate::routes::RouteTable;
use crate::session::Health;
use crate::task::Essential;
use calls::Calls;
use exchange::Exchange;
use namespaces::{Changes, Namespaces};
use way::Reach;

/// How long connecting and each call that has one reply may take: far above any working tunnel's
/// round trip, short enough for recovery within 5 s at any place of the back-off.
const CALL_TIME: Duration = Duration::from_secs(2);
/// How long tokens may take: an exec plugin has 30 s (condition lifecycle 19).
const TOKENS_TIME: Duration = Duration::from_secs(35);

/// The client of the manager's calls.
pub(crate) type Client = TrafficManagerClient<Channel>;

/// How the way to the manager stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tunnel {
    /// The manager answers.
    Up {
        /// When it last did, by the clock that counts time asleep.
        seen: Instant,
        /// How long its last echo took; `None` before the first.
        round_trip: Option<Duration>,
    },
    /// It does not.
    Down {
        /// Since when, by the same clock.
        since: Instant,
        /// Why.
        reason: String,
    },
}

impl Tunnel {
    /// Whether the manager answers.
    #[must_use]
    pub fn health(&self) -> Health {
        match self {
            Self::Up { .. } => Health::Good,
            Self::Down { .. } => Health::Degraded,
        }
    }
}

/// Why no session could be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There are no tokens to open it with.
    #[error("cannot get tokens")]
    Tokens(#[source] anyhow::Error),
    /// A namespace has no token, and one is wanted.
    #[error(transparent)]
    Lacking(Lacking),
    /// The manager said no, or nothing.
    #[error(transparent)]
    Refused(#[from] Status),
}

/// Connects to the manager.
///
/// # Errors
///
/// Nobody listens there, or nobody answers in time.
pub async fn dial(reach: &Reach) -> anyhow::Result<Channel> {
    let patience = reach.way.patience();
    match timeout(patience, reach.way.dial()).await {
        Ok(channel) => channel,
        Err(_) => anyhow::bail!("no connection within {patience:?}"),
    }
}

/// Opens a session, for all of the request's namespaces or none.
///
/// # Errors
///
/// There are no tokens, or what the manager answered, a timeout as [`tonic::Code::DeadlineExceeded`].
pub async fn open_session(
    reach: &Reach,
    channel: Channel,
    request: &SessionRequest,
) -> Result<SessionInfo, OpenError> {
    let mut client = TrafficManagerClient::new(channel);
    let Tokens { made, lacking } = tokens(reach, &request.namespaces).await?;
    let request = SessionRequest {
        tokens: made,
        ..request.clone()
    };
    let opened = open_once(&mut client, request).await;
    opened.map_err(|status| match lacking.into_iter().next() {
        // What stands in the way of a token says more than that it is not there.
        Some(lacking) if Reason::of(&status) == Some(Reason::TokenMissing) => {
            OpenError::Lacking(lacking)
        }
        Some(_) | None => OpenError::Refused(status),
    })
}

/// Gets fresh tokens for namespaces.
async fn tokens(reach: &Reach, namespaces: &[String]) -> Result<Tokens, OpenError> {
    let finding = reach.tokens.tokens(namespaces);
    match timeout(TOKENS_TIME, finding).await {
        Ok(tokens) => tokens.map_err(OpenError::Tokens),
        Err(_) => {
            let error = anyhow::anyhow!("none within {TOKENS_TIME:?}");
            Err(OpenError::Tokens(error))
        }
    }
}

async fn open_once(client: &mut Client, request: SessionRequest) -> Result<SessionInfo, Status> {
    let call = client.open_session(OpenSessionRequest::from(request));
    let response = timeout(CALL_TIME, call)
        .await
        .map_err(|_| Status::deadline_exceeded("the manager does not answer"))??;
    SessionInfo::try_from(response.into_inner())
        .map_err(|error| Status::internal(format!("the manager's session: {error}")))
}

/// When a session was opened or renewed, and how long its tokens last from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Before the manager was asked, by the clock that counts time asleep.
    pub at: Instant,
    /// How long the tokens last; `None` without tokens.
    pub expires_in: Option<Duration>,
}

impl Opened {
    /// When the tokens expire, and when they are renewed.
    #[must_use]
    pub fn life(&self) -> Option<(Instant, Instant)> {
        let lasts = self.expires_in?;
        Some((self.at + lasts, self.at + renew::due(lasts)))
    }
}

/// What the tasks around one channel share.
#[derive(Debug)]
struct Shared {
    reach: Reach,
    /// What is asked for but for the namespaces.
    request: SessionRequest,
    namespaces: watch::Sender<Namespaces>,
    clock: Clock,
    tunnel: watch::Sender<Tunnel>,
    session: watch::Sender<SessionInfo>,
    opened: watch::Sender<Opened>,
    routes: watch::Sender<RouteTable>,
    /// The channel that is up.
    line: watch::Sender<Option<Client>>,
    /// Rung when a query got no reply, so that the echo need not wait for its turn.
    suspicion: Arc<Notify>,
}

impl Shared {
    /// Takes down what a session is like, and what it holds, that was asked for at an instant.
    fn note_opened(&self, session: SessionInfo, namespaces: Namespaces, at: Instant) {
        self.opened.send_replace(Opened {
            at,
            expires_in: session.expires_in,
        });
        let is_other = *self.namespaces.borrow() != namespaces;
        if is_other {
            self.routes.send_modify(|table| table.cover(&namespaces));
            self.namespaces.send_replace(namespaces);
        }
        // Last: who is told of it finds the rest as it is now.
        self.session.send_replace(session);
    }
}

/// Keeps the way to the manager up and tells how it stands.
#[derive(Debug)]
pub struct Control {
    task: Essential,
    tunnel: watch::Receiver<Tunnel>,
    session: watch::Receiver<SessionInfo>,
    routes: watch::Receiver<RouteTable>,
    opened: watch::Receiver<Opened>,
    namespaces: watch::Receiver<Namespaces>,
    exchange: Exchange,
    calls: Calls,
    changes: Changes,
    suspicion: Arc<Notify>,
}

impl Control {
    /// Takes over a channel with an open session.
    #[must_use]
    pub fn start(
        reach: Reach,
        channel: Channel,
        request: SessionRequest,
        session: SessionInfo,
        clock: Clock,
    ) -> Self {
        let now = clock.now();
        let up = Tunnel::Up {
            seen: now,
            round_trip: None,
        };
        let opened = Opened {
            at: now,
            expires_in: session.expires_in,
        };
        let (tunnel_sender, tunnel) = watch::channel(up);
        let (opened_sender, opened) = watch::channel(opened);
        let (routes_sender, routes) = watch::channel(RouteTable::new(&request.namespaces));
        let held = Namespaces::new(request.namespaces.clone());
        let (namespaces_sender, namespaces) = watch::channel(held);
        let (session_sender, session) = watch::channel(session);
        let suspicion = Arc::new(Notify::new());
        let client = TrafficManagerClient::new(channel.clone());
        let (line_sender, line) = watch::channel(Some(client));
        let (changes, asked) = namespaces::channel(line.clone());
        let calls = Calls {
            line,
            session: session.clone(),
        };
        let (exchange, asks) = exchange::channel(tunnel.clone(), Arc::clone(&suspicion));
        let shared = Shared {
            reach,
            opened: opened_sender,
            request,
            namespaces: namespaces_sender,
            clock,
            tunnel: tunnel_sender,
            session: session_sender,
            routes: routes_sender,
            line: line_sender,
            suspicion: Arc::clone(&suspicion),
        };
        let shutdown = CancellationToken::new();
        let keeping = keep::keep(shared, channel, keep::Queues { asks, asked });
        let ended = shutdown.clone();
        let task = async move {
            tokio::select! {
                () = ended.cancelled() => {}
                () = keeping => {}
            }
        };
        let task = tokio::spawn(task.instrument(tracing::info_span!("control")));
        Self {
            task: Essential::new("control", shutdown, task),
            tunnel,
            session,
            routes,
            opened,
            namespaces,
            exchange,
            calls,
            changes,
            suspicion,
        }
    }

    /// Asks for an echo at once: the machine slept, or something else makes the tunnel doubtful.
    pub fn doubt(&self) {
        self.suspicion.notify_one();
    }

    /// Follows how the manager answers.
    #[must_use]
    pub fn tunnel(&self) -> watch::Receiver<Tunnel> {
        self.tunnel.clone()
    }

    /// Follows what the manager last said about itself and the session.
    #[must_use]
    pub fn session(&self) -> watch::Receiver<SessionInfo> {
        self.session.clone()
    }

    /// Follows the Services.
    #[must_use]
    pub fn routes(&self) -> watch::Receiver<RouteTable> {
        self.routes.clone()
    }

    /// Follows which namespaces the session has.
    #[must_use]
    pub fn namespaces(&self) -> watch::Receiver<Namespaces> {
        self.namespaces.clone()
    }

    /// Follows how long the session's tokens last.
    #[must_use]
    pub fn opened(&self) -> watch::Receiver<Opened> {
        self.opened.clone()
    }

    /// Returns what changes the session's namespaces.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.changes.clone()
    }

    /// Returns what resolves names in the cluster.
    #[must_use]
    pub fn exchange(&self) -> Exchange {
        self.exchange.clone()
    }

    /// Returns what calls the manager for people.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.calls.clone()
    }

    /// Waits until the task ends by itself, which it should not.
    pub async fn ended(&mut self) {
        self.task.ended().await;
    }

    /// Ends the task and drops the channel.
    pub async fn stop(self) {
        self.task.stop(CALL_TIME).await;
    }
}

#[cfg(test)]
mod tests;
