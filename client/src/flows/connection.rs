//! One data connection: opened, heard once, and watched by echoes of its own.

use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use h2::client::SendRequest;
use h2::{Ping, PingPong, Reason};
use http::Request;
use kubebridge_proto::flow::{
    Attached, FailureKind, after_others, echo_request, echo_request_of, http2, verdict,
};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::counted::{Counted, Octets};
use crate::control::echo::watch_echo;
use crate::control::way::{BoxIo, Place};

/// How long the first echo may take: as long as opening any connection.
const FIRST_ECHO: Duration = Duration::from_secs(3);
/// An echo this late waits behind bulk data or what was lost: both are better with more
/// connections. It is as good as answered when octets came meanwhile; less than the least time an
/// echo in doubt has.
const LATE: Duration = Duration::from_millis(400);
/// How often is looked whether any came.
const LOOK: Duration = Duration::from_millis(50);
/// How often a connection is tried whose manager ends, and how long it may take to show that it
/// lives: as echoes would.
const EVERY: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(4);
/// How long a late echo counts.
const LATELY: Duration = Duration::from_secs(30);

/// A data connection that has echoed.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) id: u64,
    pub(super) place: Place,
    requests: SendRequest<Bytes>,
    /// Whether it is for the flows it has, and for no others.
    is_aside: AtomicBool,
    /// Open flows.
    pub(super) flows: AtomicUsize,
    /// Flows that move much.
    pub(super) busy: AtomicUsize,
    octets: Arc<Octets>,
    suspicion: Notify,
    heard: Mutex<Heard>,
    /// Whether the manager ends: it takes no request any longer, and what is open goes on.
    drains: AtomicBool,
    close: CancellationToken,
}

/// Why there was no echo.
enum Unheard {
    /// The manager ends.
    Drains,
    /// Anything else.
    Failed(Status),
}

#[derive(Debug)]
struct Heard {
    round_trip: Duration,
    /// When it last echoed, or octets came in an echo's place.
    answered: Instant,
    late: Option<Instant>,
    /// When a flow was last opened or closed.
    used: Instant,
}

impl Connection {
    /// Runs a connection until it is closed or dead, and says why; `ready` is told when it has
    /// echoed. Where the way may lead to several managers, it has to be that of the session.
    pub(super) async fn run(
        id: u64,
        place: Place,
        io: BoxIo,
        session: &str,
        ready: impl FnOnce(Arc<Self>),
    ) -> anyhow::Error {
        let octets = Arc::new(Octets::default());
        let counted = Counted::new(io, Arc::clone(&octets));
        let shaking = timeout(FIRST_ECHO, http2::client().handshake(counted));
        let (requests, mut connection) = match shaking.await {
            Ok(Ok(both)) => both,
            Ok(Err(error)) => return anyhow::Error::new(error).context("no HTTP/2"),
            Err(_) => return anyhow::anyhow!("no HTTP/2 within {FIRST_ECHO:?}"),
        };
        let pings = connection.ping_pong();
        let first = match place.is_unnamed() {
            true => echo_request_of(session),
            false => Ok(echo_request()),
        };
        let first = match first {
            Ok(first) => first,
            Err(error) => return error.into(),
        };
        let using = async {
            match Self::use_it(id, place, requests, first, octets, ready).await {
                (Some(drained), _) if drained.drains.load(Ordering::Relaxed) => {
                    drained.let_end(pings).await
                }
                (_, error) => error,
            }
        };
        tokio::select! {
            error = using => error,
            ended = after_others(|context| connection.poll_unpin(context)) => match ended {
                Ok(()) => anyhow::anyhow!("the manager ended it"),
                Err(error) => anyhow::Error::new(error).context("connection lost"),
            },
        }
    }

    async fn use_it(
        id: u64,
        place: Place,
        requests: SendRequest<Bytes>,
        first: Request<()>,
        octets: Arc<Octets>,
        ready: impl FnOnce(Arc<Self>),
    ) -> (Option<Arc<Self>>, anyhow::Error) {
        let start = Instant::now();
        match timeout(FIRST_ECHO, echo(requests.clone(), first)).await {
            Ok(Ok(())) => {}
            Ok(Err(unheard)) => {
                let status = Status::from(unheard);
                return (None, anyhow::anyhow!("no echo: {}", status.message()));
            }
            Err(_) => return (None, anyhow::anyhow!("no echo within {FIRST_ECHO:?}")),
        }
        let connection = Arc::new(Self {
            id,
            place,
            requests: requests.clone(),
            is_aside: AtomicBool::new(false),
            flows: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            octets: Arc::clone(&octets),
            suspicion: Notify::new(),
            heard: Mutex::new(Heard {
                round_trip: start.elapsed(),
                answered: Instant::now(),
                late: None,
                used: Instant::now(),
            }),
            drains: AtomicBool::new(false),
            close: CancellationToken::new(),
        });
        ready(Arc::clone(&connection));
        let ask = || Arc::clone(&connection).echo_or_life();
        let error = tokio::select! {
            error = watch_echo(ask, |_| {}, &connection.suspicion) => error,
            () = connection.close.cancelled() => anyhow::anyhow!("not needed any longer"),
        };
        (Some(connection), error)
    }

    /// Waits until a connection is silent whose manager ends: it echoes nothing any longer, and lets
    /// the flows it has come to their ends.
    async fn let_end(&self, pings: Option<PingPong>) -> anyhow::Error {
        tracing::debug!("the manager ends, what is open goes on");
        tokio::select! {
            () = self.silence(pings) => anyhow::anyhow!("silent while the manager was ending"),
            () = self.close.cancelled() => anyhow::anyhow!("not needed any longer"),
        }
    }

    /// Waits until a ping is not answered, and nothing else comes.
    async fn silence(&self, pings: Option<PingPong>) {
        let Some(mut pings) = pings else {
            return pending().await;
        };
        loop {
            tokio::select! {
                () = sleep(EVERY) => {}
                () = self.suspicion.notified() => {}
            }
            let mut ping = pin!(pings.ping(Ping::opaque()));
            loop {
                let before = self.octets.received();
                match timeout(PATIENCE, &mut ping).await {
                    Ok(Ok(_)) => break,
                    Ok(Err(_)) => return,
                    Err(_) if self.octets.received() == before => return,
                    Err(_) => {}
                }
            }
        }
    }

    /// Sends a request for a flow, and returns its response and its stream.
    pub(super) async fn request(
        &self,
        request: Request<()>,
    ) -> Result<(http::Response<()>, Attached), h2::Error> {
        let mut requests = self.requests.clone().ready().await?;
        let (response, send) = requests.send_request(request, false)?;
        let (parts, receive) = response.await?.into_parts();
        let stream = Attached { send, receive };
        Ok((http::Response::from_parts(parts, ()), stream))
    }

    /// Has an echo asked for at once.
    pub(super) fn doubt(&self) {
        self.suspicion.notify_one();
    }

    /// Keeps it for the flows it has; without any it ends.
    pub(super) fn put_aside(&self) {
        self.is_aside.store(true, Ordering::Relaxed);
        self.end_if_unused();
    }

    /// Takes note that a flow has left.
    pub(super) fn note_left(&self) {
        self.flows.fetch_sub(1, Ordering::Relaxed);
        self.note_use();
        self.end_if_unused();
    }

    fn end_if_unused(&self) {
        if self.is_aside.load(Ordering::Relaxed) && self.flows.load(Ordering::Relaxed) == 0 {
            self.close();
        }
    }

    /// Ends it.
    pub(super) fn close(&self) {
        self.close.cancel();
    }

    /// Whether it was ended by us.
    pub(super) fn is_closed(&self) -> bool {
        self.close.is_cancelled()
    }

    pub(super) fn octets(&self) -> &Octets {
        &self.octets
    }

    pub(super) fn round_trip(&self) -> Duration {
        self.heard.lock().round_trip
    }

    pub(super) fn echo_age(&self) -> Duration {
        self.heard.lock().answered.elapsed()
    }

    /// Whether echoes were late lately.
    pub(super) fn is_lossy(&self) -> bool {
        let late = self.heard.lock().late;
        late.is_some_and(|at| at.elapsed() < LATELY)
    }

    /// How long no flow was open.
    pub(super) fn quiet(&self) -> Duration {
        match self.flows.load(Ordering::Relaxed) {
            0 => self.heard.lock().used.elapsed(),
            _ => Duration::ZERO,
        }
    }

    pub(super) fn note_use(&self) {
        self.heard.lock().used = Instant::now();
    }

    /// One echo, or octets that came while it was late.
    async fn echo_or_life(self: Arc<Self>) -> Result<(), Status> {
        let start = Instant::now();
        // What comes at once was on its way before, and is no sign of life.
        let on_its_way = self.round_trip().clamp(LOOK, LATE / 2);
        let living = async {
            sleep(on_its_way).await;
            let before = self.octets.received();
            sleep_until(start + LATE).await;
            while self.octets.received() == before {
                sleep(LOOK).await;
            }
        };
        let is_late = tokio::select! {
            reply = echo(self.requests.clone(), echo_request()) => {
                if let Err(Unheard::Drains) = &reply {
                    self.drains.store(true, Ordering::Relaxed);
                }
                reply.map(|()| false)?
            }
            () = living => true,
        };
        let mut heard = self.heard.lock();
        heard.answered = Instant::now();
        match is_late {
            true => heard.late = Some(heard.answered),
            false => heard.round_trip = start.elapsed(),
        }
        Ok(())
    }
}

/// One echo over a connection.
async fn echo(requests: SendRequest<Bytes>, request: Request<()>) -> Result<(), Unheard> {
    let asking = async {
        let (response, _) = requests.ready().await?.send_request(request, true)?;
        response.await
    };
    let response = asking.await?;
    if response.status() == http::StatusCode::OK {
        return Ok(());
    }
    let why = match verdict(&response) {
        Err(failure) if failure.kind == FailureKind::Session => {
            "it leads to a manager that does not know the session".to_owned()
        }
        Err(_) | Ok(()) => format!("status {}", response.status()),
    };
    Err(Unheard::Failed(Status::unavailable(why)))
}

impl From<h2::Error> for Unheard {
    fn from(error: h2::Error) -> Self {
        let is_end = error.is_go_away() && error.is_remote();
        if is_end && error.reason() == Some(Reason::NO_ERROR) {
            return Self::Drains;
        }
        Self::Failed(Status::unavailable(error.to_string()))
    }
}

impl From<Unheard> for Status {
    fn from(unheard: Unheard) -> Self {
        match unheard {
            Unheard::Drains => Self::unavailable("the manager ends"),
            Unheard::Failed(status) => status,
        }
    }
}
