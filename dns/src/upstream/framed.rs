//! Questions on one stream, length before message, many at a time (RFC 7766 §6.2.1.1).
//!
//! A server that has said nothing for a while is asked something it can answer at once: one that
//! thinks long is told from a path that is dead. The stream may be plain TCP or TLS; opening it is
//! its transport's business.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::channel::{Age, Connection, Failure, SILENCE};
use super::ids::{Ids, Outcome, Reason};
use super::wire::{Form, Wire};
use super::{ExchangeError, OutgoingQuery};
use crate::framing::{FrameError, FrameReader, frame};
use crate::name::{Name, RecordType};

/// Queries waiting to be written: more means the server does not read.
const WRITE_QUEUE: usize = 64;
/// How long a server may say nothing to questions before it is asked for a sign of life: half the
/// time after which it is given up, so that a sign has as long to arrive.
const PROBE_AFTER: Duration = Duration::from_millis(500);

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

/// Writes what is asked, and asks for a sign of life when nothing comes of it.
async fn write(
    mut output: impl AsyncWrite + Unpin,
    ids: &Ids,
    mut queries: mpsc::Receiver<Outgoing>,
) -> Reason {
    let mut batch = Vec::with_capacity(WRITE_QUEUE);
    let mut bytes = Vec::new();
    let mut look = None;
    loop {
        tokio::select! {
            received = queries.recv_many(&mut batch, WRITE_QUEUE) => if received == 0 {
                return Reason::Ended;
            },
            () = at(look) => {
                let silence = ids.silence(Instant::now());
                look = match silence {
                    Duration::ZERO => None,
                    silence if silence < PROBE_AFTER => Some(Instant::now() + PROBE_AFTER - silence),
                    _ => {
                        bytes.extend(probe(ids).unwrap_or_default());
                        None
                    }
                };
            }
        }
        // What waits together goes out together: one segment, and within TLS one record.
        for query in batch.drain(..) {
            // Who asked may have gone while the query waited here.
            if ids.is_pending(query.id) {
                bytes.extend_from_slice(&query.framed);
                look.get_or_insert_with(|| Instant::now() + PROBE_AFTER);
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
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Returns a question that every resolver answers at once, whatever the answer. Nobody waits for
/// it: its arrival is the sign.
fn probe(ids: &Ids) -> Option<Vec<u8>> {
    let question = OutgoingQuery::new(Name::root(), RecordType::NS);
    let mut wire = Wire::new(&question, Form::PLAIN).ok()?;
    let ticket = ids.open(wire.question()).ok()?;
    let id = ticket.draw(Instant::now()).ok()?;
    frame(wire.with_id(id))
}

#[cfg(test)]
mod tests;
