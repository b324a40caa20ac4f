//! What a flow is carried between: the local end, and the HTTP/2 stream it has at the moment.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

/// The local end of a TCP flow: a socket, or a stream of the laptop's own stack.
pub trait Local: AsyncRead + AsyncWrite + Unpin + Send {
    /// Ends it with a reset (RST) instead of a FIN.
    fn abort(&mut self);

    /// Resolves when the other side has reset it, also while nothing is read or written because
    /// the flow is stalled. Those that cannot tell never resolve.
    fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let _ = context;
        Poll::Pending
    }
}

impl<L: Local + ?Sized> Local for &mut L {
    fn abort(&mut self) {
        (**self).abort();
    }

    fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<()> {
        (**self).poll_reset(context)
    }
}

impl<L: Local + ?Sized> Local for Box<L> {
    fn abort(&mut self) {
        (**self).abort();
    }

    fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<()> {
        (**self).poll_reset(context)
    }
}

/// Both directions of a flow's HTTP/2 stream, after the headers.
#[derive(Debug)]
pub struct Attached {
    /// Towards the peer.
    pub send: SendStream<Bytes>,
    /// From the peer.
    pub receive: RecvStream,
}

/// Which end of a flow this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The laptop's, that asked for the flow: its window goes with the first octets, because most
    /// far ends say nothing before they are asked.
    Asks,
    /// The manager's: its window goes with the answer.
    Answers,
}

/// How long a peer may take to end a stream that both are done with: what is queued for it may be
/// behind a few megabytes of others.
const PARTING: Duration = Duration::from_secs(10);

impl Attached {
    /// Ends the stream after all that is queued on it, which dropping it would drop too: waits for
    /// the peer to end it as well. Whether `interrupted` came first.
    pub(super) async fn part(
        &mut self,
        mut interrupted: impl FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> bool {
        if self.send.send_data(Bytes::new(), true).is_err() {
            return false;
        }
        let ending = poll_fn(|context| {
            if interrupted(context).is_ready() {
                return Poll::Ready(true);
            }
            while let Some(Ok(octets)) = ready!(self.receive.poll_data(context)) {
                let _ = self.receive.flow_control().release_capacity(octets.len());
            }
            Poll::Ready(false)
        });
        timeout(PARTING, ending).await.unwrap_or(false)
    }
}

/// How a flow that lost its stream gets another one.
pub trait Reattach: Send {
    /// Waits for another stream, on which the flow goes on where `received` was reached, and
    /// returns it with what the peer has received. `None` gives up: the flow is reset.
    fn reattach(&mut self, received: u64) -> impl Future<Output = Option<(Attached, u64)>> + Send;

    /// Resolves when another stream for this flow is waiting though this one seems well: the peer
    /// has noticed first that the connection is dead.
    fn poll_replaced(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let _ = context;
        Poll::Pending
    }
}

/// How a flow ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Both directions were carried to their ends.
    Finished,
    /// The local side reset it.
    LocalReset,
    /// The peer reset it.
    PeerReset,
    /// Its connection was lost and no other one came in time.
    Lost,
    /// The peer broke the protocol.
    Broken,
    /// Datagrams: nothing came for as long as may be.
    Idle,
    /// Datagrams: nobody listens there.
    Refused,
}

/// The end of a flow, and what it carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// Octets from the local side to the peer.
    pub sent: u64,
    /// Octets from the peer to the local side.
    pub received: u64,
    /// The number to answer a late resume with: all that was received, the end counted as one.
    pub reached: u64,
    /// How it ended.
    pub how: How,
}

/// Counts what flows carry, for who watches meanwhile.
#[derive(Debug, Default)]
pub struct Meter {
    sent: AtomicU64,
    received: AtomicU64,
    dropped: AtomicU64,
}

impl Meter {
    /// Returns the octets from the local side to the peer.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns the octets from the peer to the local side.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Returns the datagrams that were dropped because a queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn add_sent(&self, octets: usize) {
        self.sent.fetch_add(octets as u64, Ordering::Relaxed);
    }

    pub(super) fn add_received(&self, octets: usize) {
        self.received.fetch_add(octets as u64, Ordering::Relaxed);
    }

    pub(super) fn add_dropped(&self, datagrams: u64) {
        if datagrams > 0 {
            self.dropped.fetch_add(datagrams, Ordering::Relaxed);
        }
    }
}
