//! DNS queries over one gRPC stream: many at once, told apart by tags.
//!
//! [`Exchange`] is the asking side, cheap to clone. It never waits for a tunnel that is down, and
//! never longer than [`REPLY_TIME`] for one that is up.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kubebridge_proto::v1::dns_failure::Reason;
use kubebridge_proto::v1::exchange_dns_response::Outcome;
use kubebridge_proto::v1::{ExchangeDnsRequest, ExchangeDnsResponse};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use super::{Client, Tunnel};
use crate::session::Health;

/// How long a query may take: programs ask again after 5 s, and a dead tunnel shall cost them no
/// more than this.
pub const REPLY_TIME: Duration = Duration::from_secs(2);
/// After this long without a reply the tunnel is doubted, and an echo asked for.
const DOUBT_TIME: Duration = Duration::from_secs(1);
/// Queries waiting for the stream: enough for a burst, refused beyond it.
const QUEUE: usize = 256;
/// Queries on the stream: a browser opening a hundred tabs needs about this many.
const IN_FLIGHT: usize = 1024;
/// Requests handed to the transport ahead of the network.
const AHEAD: usize = 64;
/// The tag of the first message, which names the session and asks nothing.
const GREETING: u64 = 0;

/// Why a query got no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The manager is out of reach.
    #[error("the manager is out of reach")]
    TunnelDown,
    /// It did not answer in time.
    #[error("no reply within {REPLY_TIME:?}")]
    Timeout,
    /// Too many queries are waiting.
    #[error("too many queries are waiting")]
    Overloaded,
    /// The message is none a DNS server would answer.
    #[error("the manager does not take this for a query")]
    NotAQuery,
    /// The manager cannot answer now.
    #[error("the manager cannot answer: {0}")]
    Unavailable(String),
}

/// One query on its way.
#[derive(Debug)]
pub(super) struct Ask {
    query: Vec<u8>,
    reply: oneshot::Sender<Result<Vec<u8>, AskError>>,
}

/// Resolves DNS messages in the cluster.
#[derive(Clone, Debug)]
pub struct Exchange {
    asks: mpsc::Sender<Ask>,
    tunnel: watch::Receiver<Tunnel>,
    suspicion: Arc<Notify>,
}

/// Makes the two ends of the queue.
pub(super) fn channel(
    tunnel: watch::Receiver<Tunnel>,
    suspicion: Arc<Notify>,
) -> (Exchange, mpsc::Receiver<Ask>) {
    let (asks, queue) = mpsc::channel(QUEUE);
    let exchange = Exchange {
        asks,
        tunnel,
        suspicion,
    };
    (exchange, queue)
}

impl Exchange {
    /// Whether the manager is known to be out of reach.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.tunnel.borrow().health() == Health::Degraded
    }

    /// Resolves one DNS message.
    ///
    /// # Errors
    ///
    /// There is no reply; the error says why.
    pub async fn ask(&self, query: Vec<u8>) -> Result<Vec<u8>, AskError> {
        if self.is_down() {
            return Err(AskError::TunnelDown);
        }
        let (reply, answer) = oneshot::channel();
        self.asks
            .try_send(Ask { query, reply })
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => AskError::Overloaded,
                mpsc::error::TrySendError::Closed(_) => AskError::TunnelDown,
            })?;
        tokio::pin!(answer);
        let outcome = match timeout(DOUBT_TIME, &mut answer).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.suspicion.notify_one();
                match timeout(REPLY_TIME - DOUBT_TIME, answer).await {
                    Ok(outcome) => outcome,
                    Err(_) => return Err(AskError::Timeout),
                }
            }
        };
        outcome.unwrap_or(Err(AskError::TunnelDown))
    }
}

/// Carries queries over one stream until it breaks, and returns why it did.
///
/// Queries in flight then fail at once: their senders are dropped with the map.
pub(super) async fn carry(
    mut client: Client,
    session: String,
    asks: &mut mpsc::Receiver<Ask>,
) -> anyhow::Error {
    let (requests, outgoing) = mpsc::channel(AHEAD);
    let greeting = ExchangeDnsRequest {
        session_id: session,
        tag: GREETING,
        query: Vec::new(),
    };
    if requests.try_send(greeting).is_err() {
        return anyhow::anyhow!("the queue of a new stream is closed");
    }
    let mut replies = match client.exchange_dns(ReceiverStream::new(outgoing)).await {
        Ok(response) => response.into_inner(),
        Err(status) => return status.into(),
    };
    let mut flights = Flights::default();
    loop {
        tokio::select! {
            ask = next_ask(&requests, asks), if flights.has_room() => match ask {
                Some((permit, ask)) => permit.send(flights.depart(ask)),
                None => return anyhow::anyhow!("the query stream is closed"),
            },
            reply = replies.message() => match reply {
                Ok(Some(reply)) => flights.land(reply),
                Ok(None) => return anyhow::anyhow!("the manager ended the query stream"),
                Err(status) => return status.into(),
            },
        }
    }
}

/// Fails what waits for a stream that is gone.
pub(super) fn refuse_waiting(asks: &mut mpsc::Receiver<Ask>) {
    while let Ok(ask) = asks.try_recv() {
        // The asker may have given up.
        let _ = ask.reply.send(Err(AskError::TunnelDown));
    }
}

/// Waits for room towards the network first, so that no query is taken and then lost.
async fn next_ask<'a>(
    requests: &'a mpsc::Sender<ExchangeDnsRequest>,
    asks: &mut mpsc::Receiver<Ask>,
) -> Option<(mpsc::Permit<'a, ExchangeDnsRequest>, Ask)> {
    let permit = requests.reserve().await.ok()?;
    Some((permit, asks.recv().await?))
}

/// The queries on the stream.
#[derive(Debug, Default)]
struct Flights {
    by_tag: HashMap<u64, oneshot::Sender<Result<Vec<u8>, AskError>>>,
    last_tag: u64,
}

impl Flights {
    /// Whether another query fits. Queries nobody waits for any longer make room.
    fn has_room(&mut self) -> bool {
        if self.by_tag.len() >= IN_FLIGHT {
            self.by_tag.retain(|_, reply| !reply.is_closed());
        }
        self.by_tag.len() < IN_FLIGHT
    }

    fn depart(&mut self, ask: Ask) -> ExchangeDnsRequest {
        self.last_tag += 1;
        self.by_tag.insert(self.last_tag, ask.reply);
        ExchangeDnsRequest {
            session_id: String::new(),
            tag: self.last_tag,
            query: ask.query,
        }
    }

    fn land(&mut self, response: ExchangeDnsResponse) {
        let Some(reply) = self.by_tag.remove(&response.tag) else {
            return;
        };
        let outcome = match response.outcome {
            Some(Outcome::Reply(message)) => Ok(message),
            Some(Outcome::Failure(failure)) => Err(match failure.reason() {
                Reason::NotAQuery => AskError::NotAQuery,
                Reason::Unavailable | Reason::Unspecified => AskError::Unavailable(failure.detail),
            }),
            None => Err(AskError::Unavailable(
                "an outcome this version does not know".to_owned(),
            )),
        };
        // The asker may have given up.
        let _ = reply.send(outcome);
    }
}

#[cfg(test)]
mod tests;
