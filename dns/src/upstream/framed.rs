//! Questions on one stream, length before message, many at a time (RFC 7766 §6.2.1.1).
//!
//! The stream may be plain TCP or TLS; opening it is its transport's business.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::ExchangeError;
use super::channel::{Age, Connection, Failure, SILENCE};
use super::ids::{Ids, Outcome, Reason};
use super::wire::Wire;
use crate::framing::{FrameError, FrameReader, frame};

/// Queries waiting to be written: more means the server does not read.
const WRITE_QUEUE: usize = 64;

/// One stream, driven by a task of its own that ends with it.
#[derive(Debug)]
pub(super) struct Framed {
    ids: Ids,
    queries: mpsc::Sender<Outgoing>,
    _driver: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Outgoing {
    id: u16,
    framed: Vec<u8>,
}

impl Framed {
    /// Takes over an open stream, and closes it when nobody has asked for a while.
    pub(super) fn new<S>(stream: S, idle: Duration, span: tracing::Span) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + 'static,
    {
        let ids = Ids::on_connection();
        let (queries, waiting) = mpsc::channel(WRITE_QUEUE);
        let driver = drive(stream, idle, ids.clone(), waiting).instrument(span);
        Self {
            ids,
            queries,
            _driver: AbortOnDropHandle::new(tokio::spawn(driver)),
        }
    }
}

impl Connection for Framed {
    fn is_open(&self) -> bool {
        self.ids.is_open() && self.ids.silence(Instant::now()) < SILENCE
    }

    async fn ask(&self, wire: &mut Wire, age: Age) -> Result<Vec<u8>, Failure> {
        let sent = Instant::now();
        let ticket = self.ids.open(wire.question());
        let mut ticket = ticket.map_err(|reason| Failure::Stale(reason.into()))?;
        let id = ticket.draw(sent).map_err(Failure::Final)?;
        let framed = frame(wire.with_id(id));
        let framed = framed.ok_or(Failure::Final(ExchangeError::Malformed("query too long")))?;
        let queued = self.queries.send(Outgoing { id, framed }).await;
        queued.map_err(|_| Failure::Stale(ExchangeError::Closed))?;
        let outcome = match timeout(SILENCE, ticket.outcome()).await {
            Ok(outcome) => outcome,
            Err(_elapsed) if age == Age::Used && !self.ids.heard_since(sent) => {
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

/// Reads and writes until either ends, then tells those who wait.
async fn drive<S>(stream: S, idle: Duration, ids: Ids, queries: mpsc::Receiver<Outgoing>)
where
    S: AsyncRead + AsyncWrite,
{
    let (input, output) = split(stream);
    let reason = tokio::select! {
        reason = read(input, idle, &ids) => reason,
        reason = write(output, &ids, queries) => reason,
    };
    tracing::debug!(?reason, "upstream connection closed");
    ids.close(reason);
}

async fn read(input: impl AsyncRead + Unpin, idle: Duration, ids: &Ids) -> Reason {
    let mut frames = FrameReader::new(input);
    loop {
        match timeout(idle, frames.next()).await {
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

async fn write(
    mut output: impl AsyncWrite + Unpin,
    ids: &Ids,
    mut queries: mpsc::Receiver<Outgoing>,
) -> Reason {
    let mut batch = Vec::with_capacity(WRITE_QUEUE);
    let mut bytes = Vec::new();
    while queries.recv_many(&mut batch, WRITE_QUEUE).await > 0 {
        // What waits together goes out together: one segment, and within TLS one record.
        for query in batch.drain(..) {
            // Who asked may have gone while the query waited here.
            if ids.is_pending(query.id) {
                bytes.extend_from_slice(&query.framed);
            }
        }
        if bytes.is_empty() {
            continue;
        }
        ids.sent(Instant::now());
        let written = async {
            output.write_all(&bytes).await?;
            output.flush().await
        };
        if let Err(error) = written.await {
            return Reason::Io(error.kind());
        }
        bytes.clear();
    }
    Reason::Ended
}
