//! Serves DNS over UDP and TCP: sockets in, packets to a [`Handler`], replies out.
//!
//! Bounds what is in flight, keeps slow clients from slowing others, and drains at shutdown. What a
//! packet means is the handler's business; the server only sheds what it has no room for and makes
//! replies fit a datagram.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

mod answering;
mod tcp;
mod udp;

pub use answering::Answering;

/// Answers packets.
pub trait Handler: Send + Sync + 'static {
    /// Returns the whole reply to one packet, however long, or `None` to say nothing.
    fn handle(
        &self,
        packet: Vec<u8>,
        peer: SocketAddr,
        transport: Transport,
    ) -> impl Future<Output = Option<Vec<u8>>> + Send;

    /// Writes the reply to a datagram in the place of what the buffer holds, if it is at hand and
    /// fits what the asker takes; tells whether it did.
    ///
    /// Called where packets are received, so it neither waits nor works long.
    fn at_hand(&self, _packet: &[u8], _peer: SocketAddr, _reply: &mut Vec<u8>) -> bool {
        false
    }
}

/// What the kernel holds for us while we are busy: the queries of several hundred milliseconds at
/// 5,000 a second. Where the system allows less, it gives less.
const SOCKET_BUFFER: usize = 4 << 20;

/// Tells how a packet came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Transport {
    /// In a datagram.
    Udp,
    /// On a stream.
    Tcp,
}

/// Bounds what clients can use of us.
#[derive(Debug, Clone)]
pub struct Limits {
    /// UDP queries being answered at once, over all sockets; more are shed.
    pub udp_in_flight: usize,
    /// TCP connections at once; more are closed as they come.
    pub tcp_connections: usize,
    /// TCP connections from one address at once.
    pub tcp_connections_per_address: usize,
    /// Queries of one TCP connection being answered at once; more wait unread.
    pub tcp_in_flight: usize,
    /// How long a TCP connection may be unused.
    pub tcp_idle: Duration,
    /// How long the rest of a message may take to arrive, and a reply to be taken.
    pub tcp_stall: Duration,
    /// How long queries in flight may take to finish after shutdown began.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // Each costs a few KiB, so the worst case stays below 20 MB.
            udp_in_flight: 4096,
            // Leaves half of the usual 1,024 descriptors to upstreams and gRPC.
            tcp_connections: 512,
            // Many clients may share an address behind NAT; one must not take all.
            tcp_connections_per_address: 128,
            // RFC 7766 §6.2.1.1 wants pipelining; stub resolvers send two queries at a time.
            tcp_in_flight: 100,
            // "A few seconds" in RFC 7766 §6.2.3.
            tcp_idle: Duration::from_secs(10),
            // A message fits a packet or two, so its rest is never far behind.
            tcp_stall: Duration::from_secs(3),
            // The longest total deadline of a query is 4.5 s.
            drain: Duration::from_secs(5),
        }
    }
}

/// Serves on all sockets until shutdown, then finishes what is in flight and returns.
///
/// # Errors
///
/// Fails when a socket's task ended before its time, which is a bug in it or in the handler.
pub async fn serve<H: Handler>(
    udp: Vec<UdpSocket>,
    tcp: Vec<TcpListener>,
    handler: Arc<H>,
    limits: Limits,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let limits = Arc::new(limits);
    let mut tasks = JoinSet::new();
    let room = Arc::new(Semaphore::new(limits.udp_in_flight));
    for socket in udp {
        let span = tracing::debug_span!("dns_udp", address = ?socket.local_addr().ok());
        if let Err(error) = SockRef::from(&socket).set_recv_buffer_size(SOCKET_BUFFER) {
            tracing::debug!(%error, "receive buffer left as it is");
        }
        let listener = udp::Listener::new(socket, Arc::clone(&handler), Arc::clone(&room));
        let running = listener.run(limits.drain, shutdown.clone());
        tasks.spawn(running.instrument(span));
    }
    let clients = Arc::new(tcp::Clients::new(&limits));
    for listener in tcp {
        let span = tracing::debug_span!("dns_tcp", address = ?listener.local_addr().ok());
        let listener = tcp::Listener::new(
            listener,
            Arc::clone(&handler),
            Arc::clone(&limits),
            Arc::clone(&clients),
        );
        tasks.spawn(listener.run(shutdown.clone()).instrument(span));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(io::Error::other)?;
        if !shutdown.is_cancelled() {
            return Err(io::Error::other("a DNS listener ended before shutdown"));
        }
    }
    Ok(())
}

/// Waits for the tasks until the time is up, then ends the rest.
async fn drain(mut tasks: JoinSet<()>, time: Duration) {
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(time, all).await.is_err() {
        tracing::debug!(left = tasks.len(), "queries given up at shutdown");
        tasks.shutdown().await;
    }
}

/// Takes out the tasks that have ended, so that they do not pile up while packets keep coming.
fn reap_ended(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.try_join_next() {
        reap(ended);
    }
}

/// Reports a task that did not end as it should.
fn reap(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "answering a query panicked");
    }
}

#[cfg(test)]
mod tests;
