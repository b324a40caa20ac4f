//! Questions over TCP: one connection to the server, shared and kept while it is used (RFC 7766).
//!
//! Serves as the fallback of UDP, so it opens a connection only when asked and closes it when idle.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::ExchangeError;
use super::ids::{Ids, Outcome, Reason};
use super::udp::{Wire, io_error};
use crate::framing::{FrameError, FrameReader, frame};

/// How long an unused connection is kept, as servers do (RFC 7766 §6.2.3 asks for a few seconds).
const IDLE: Duration = Duration::from_secs(10);
/// How long a connection that served before may stay silent before a new one is tried: the path
/// may have gone without a word.
const SILENCE: Duration = Duration::from_secs(1);
/// Connections to one server, counting abandoned ones on which somebody still waits.
const MAX_CONNECTIONS: usize = 8;
/// Queries waiting to be written: more means the server does not read.
const WRITE_QUEUE: usize = 64;

/// The TCP side of one server.
#[derive(Debug)]
pub(super) struct TcpChannel {
    server: SocketAddr,
    permits: Arc<Semaphore>,
    current: Mutex<Option<Arc<Connection>>>,
}

/// One connection, driven by a task of its own that ends with it.
#[derive(Debug)]
struct Connection {
    ids: Ids,
    queries: mpsc::Sender<Vec<u8>>,
    _driver: AbortOnDropHandle<()>,
    _permit: OwnedSemaphorePermit,
}

/// Why an attempt on a connection gave nothing.
enum Failure {
    /// Another connection may do better.
    Stale(ExchangeError),
    /// The failure is the server's answer.
    Final(ExchangeError),
}

impl TcpChannel {
    /// Connects to nothing yet.
    pub(super) fn new(server: SocketAddr) -> Self {
        Self {
            server,
            permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            current: Mutex::new(None),
        }
    }

    /// Asks on the open connection, and once more on a new one when the old one proved dead. The
    /// caller bounds the time.
    pub(super) async fn ask(&self, wire: &mut Wire) -> Result<Vec<u8>, ExchangeError> {
        let (connection, reused) = self.connection(None).await?;
        match connection.ask(wire, reused).await {
            Err(Failure::Stale(_)) if reused => {}
            other => return other.map_err(Failure::into_error),
        }
        let (connection, reused) = self.connection(Some(&connection)).await?;
        let answer = connection.ask(wire, reused).await;
        answer.map_err(Failure::into_error)
    }

    /// Returns an open connection other than the given one, and whether it has served before.
    async fn connection(
        &self,
        except: Option<&Arc<Connection>>,
    ) -> Result<(Arc<Connection>, bool), ExchangeError> {
        let mut current = self.current.lock().await;
        if let Some(connection) = &*current {
            let rejected = except.is_some_and(|dead| Arc::ptr_eq(dead, connection));
            if connection.ids.is_open() && !rejected {
                return Ok((Arc::clone(connection), true));
            }
        }
        *current = None;
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| ExchangeError::Overloaded)?;
        let stream = TcpStream::connect(self.server).await;
        let stream = stream.map_err(|source| io_error("connect to", source))?;
        stream
            .set_nodelay(true)
            .map_err(|source| io_error("connect to", source))?;
        let connection = Arc::new(Connection::new(stream, permit, self.server));
        *current = Some(Arc::clone(&connection));
        Ok((connection, false))
    }
}

impl Connection {
    fn new(stream: TcpStream, permit: OwnedSemaphorePermit, server: SocketAddr) -> Self {
        let ids = Ids::default();
        let (queries, waiting) = mpsc::channel(WRITE_QUEUE);
        let span = tracing::debug_span!("upstream_connection", %server);
        let driver = drive(stream, ids.clone(), waiting).instrument(span);
        Self {
            ids,
            queries,
            _driver: AbortOnDropHandle::new(tokio::spawn(driver)),
            _permit: permit,
        }
    }

    async fn ask(&self, wire: &mut Wire, reused: bool) -> Result<Vec<u8>, Failure> {
        let sent = Instant::now();
        let ticket = self.ids.open(wire.question());
        let mut ticket = ticket.map_err(|reason| Failure::Stale(reason.into()))?;
        let id = ticket.draw(sent).map_err(Failure::Final)?;
        let framed = frame(wire.with_id(id));
        let framed = framed.ok_or(Failure::Final(ExchangeError::Malformed("query too long")))?;
        let queued = self.queries.send(framed).await;
        queued.map_err(|_| Failure::Stale(ExchangeError::Closed))?;
        let outcome = match timeout(SILENCE, ticket.outcome()).await {
            Ok(outcome) => outcome,
            Err(_elapsed) if reused && !self.ids.heard_since(sent) => {
                return Err(Failure::Stale(ExchangeError::Timeout));
            }
            Err(_elapsed) => ticket.outcome().await,
        };
        match outcome {
            Outcome::Reply(reply, _) => Ok(reply),
            Outcome::Closed(reason @ (Reason::Ended | Reason::Io(_))) => {
                Err(Failure::Stale(reason.into()))
            }
            Outcome::Closed(reason @ (Reason::Guessed | Reason::Malformed)) => {
                Err(Failure::Final(reason.into()))
            }
        }
    }
}

impl Failure {
    fn into_error(self) -> ExchangeError {
        match self {
            Self::Stale(error) | Self::Final(error) => error,
        }
    }
}

/// Reads and writes until either ends, then tells those who wait.
async fn drive(stream: TcpStream, ids: Ids, queries: mpsc::Receiver<Vec<u8>>) {
    let (input, output) = stream.into_split();
    let reason = tokio::select! {
        reason = read(input, &ids) => reason,
        reason = write(output, queries) => reason,
    };
    tracing::debug!(?reason, "upstream connection closed");
    ids.close(reason);
}

async fn read(input: OwnedReadHalf, ids: &Ids) -> Reason {
    let mut frames = FrameReader::new(input);
    loop {
        match timeout(IDLE, frames.next()).await {
            // An id that nobody waits for is a late reply: the server is on the other end of it.
            Ok(Ok(Some(reply))) => _ = ids.arrived(&reply, Instant::now()),
            Ok(Ok(None)) => return Reason::Ended,
            Ok(Err(FrameError::Read(error))) => return Reason::Io(error.kind()),
            Ok(Err(FrameError::Short(_))) => return Reason::Malformed,
            Err(_elapsed) if ids.close_if_idle() => return Reason::Ended,
            Err(_elapsed) => {}
        }
    }
}

async fn write(mut output: OwnedWriteHalf, mut queries: mpsc::Receiver<Vec<u8>>) -> Reason {
    while let Some(query) = queries.recv().await {
        if let Err(error) = output.write_all(&query).await {
            return Reason::Io(error.kind());
        }
    }
    Reason::Ended
}
