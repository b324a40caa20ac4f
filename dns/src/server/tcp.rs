//! TCP connections: pipelined queries answered as they become ready (RFC 7766 §6.2.1.1).
//!
//! Bounds connections in all and per address, and queries in flight per connection. A client that
//! does not read its replies stops being read from, then loses its connection.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{Handler, Limits, Transport, drain, reap, reap_ended};
use crate::framing::{FrameError, FrameReader, frame};

/// A pause after a failed accept, which is mostly a lack of descriptors and passes.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// Counts the connections of all listeners.
#[derive(Debug)]
pub(super) struct Clients {
    counts: Mutex<HashMap<IpAddr, usize>>,
    total: usize,
    per_address: usize,
}

/// One connection's place among all.
pub(super) struct Place {
    clients: Arc<Clients>,
    address: IpAddr,
}

/// One listening socket and what it needs to answer.
pub(super) struct Listener<H> {
    socket: TcpListener,
    handler: Arc<H>,
    limits: Arc<Limits>,
    clients: Arc<Clients>,
}

/// One connection, whatever carries it.
pub(super) struct Connection<H, R, W> {
    frames: FrameReader<R>,
    output: W,
    peer: SocketAddr,
    handler: Arc<H>,
    limits: Arc<Limits>,
    in_flight: JoinSet<Option<Vec<u8>>>,
    reading: bool,
    used: Instant,
    partial_since: Option<Instant>,
}

impl Clients {
    /// Counts up to the limits.
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            counts: Mutex::default(),
            total: limits.tcp_connections,
            per_address: limits.tcp_connections_per_address,
        }
    }

    /// Gives a connection its place, if there is one.
    pub(super) fn admit(self: Arc<Self>, peer: SocketAddr) -> Option<Place> {
        let address = peer.ip().to_canonical();
        let mut counts = self.counts.lock();
        let open: usize = counts.values().sum();
        let own = counts.get(&address).copied().unwrap_or(0);
        if open >= self.total || own >= self.per_address {
            return None;
        }
        counts.insert(address, own + 1);
        drop(counts);
        let clients = self;
        Some(Place { clients, address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.clients.counts.lock();
        let left = counts.get(&self.address).map_or(0, |own| own - 1);
        if left == 0 {
            counts.remove(&self.address);
        } else {
            counts.insert(self.address, left);
        }
    }
}

impl<H: Handler> Listener<H> {
    /// Answers on connections to the socket.
    pub(super) fn new(
        socket: TcpListener,
        handler: Arc<H>,
        limits: Arc<Limits>,
        clients: Arc<Clients>,
    ) -> Self {
        Self {
            socket,
            handler,
            limits,
            clients,
        }
    }

    /// Runs until shutdown, then lets the connections finish what is in flight.
    pub(super) async fn run(self, shutdown: CancellationToken) {
        let mut connections = JoinSet::new();
        loop {
            reap_ended(&mut connections);
            tokio::select! {
                accepted = self.socket.accept() => match accepted {
                    Ok((stream, peer)) => self.admit(stream, peer, &mut connections, &shutdown),
                    Err(error) => {
                        tracing::debug!(%error, "accepting failed");
                        sleep(ERROR_PAUSE).await;
                    }
                },
                Some(ended) = connections.join_next(), if !connections.is_empty() => reap(ended),
                () = shutdown.cancelled() => break,
            }
        }
        drop(self.socket);
        drain(connections, self.limits.drain).await;
    }

    fn admit(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        connections: &mut JoinSet<()>,
        shutdown: &CancellationToken,
    ) {
        let Some(place) = Arc::clone(&self.clients).admit(peer) else {
            tracing::debug!("too many connections");
            return;
        };
        // Replies are written whole, so there is nothing for Nagle's algorithm to gather.
        let _ = stream.set_nodelay(true);
        let (handler, limits) = (Arc::clone(&self.handler), Arc::clone(&self.limits));
        let connection = Connection::new(stream.into_split(), peer, handler, limits);
        let shutdown = shutdown.clone();
        connections.spawn(async move {
            let _place = place;
            connection.run(shutdown).await;
        });
    }
}

impl<H: Handler, R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Connection<H, R, W> {
    /// Answers on a stream.
    pub(super) fn new(
        (input, output): (R, W),
        peer: SocketAddr,
        handler: Arc<H>,
        limits: Arc<Limits>,
    ) -> Self {
        Self {
            frames: FrameReader::new(input),
            output,
            peer,
            handler,
            limits,
            in_flight: JoinSet::new(),
            reading: true,
            used: Instant::now(),
            partial_since: None,
        }
    }

    /// Runs until the client is gone, idle, or misbehaves; at shutdown, until all is answered.
    pub(super) async fn run(mut self, shutdown: CancellationToken) {
        loop {
            if let Err(error) = self.take_messages() {
                tracing::debug!(%error, "connection closed");
                return;
            }
            if !self.reading && self.in_flight.is_empty() {
                break;
            }
            let give_up = self.give_up_at();
            tokio::select! {
                Some(reply) = self.in_flight.join_next(), if !self.in_flight.is_empty() => {
                    if !self.write(reply).await {
                        return;
                    }
                }
                read = self.frames.fill(), if self.accepts() => match read {
                    Ok(0) => self.reading = false,
                    Ok(_) => {}
                    Err(error) => {
                        tracing::debug!(%error, "connection lost");
                        return;
                    }
                },
                () = sleep_until(give_up.unwrap_or(self.used)), if give_up.is_some() => return,
                () = shutdown.cancelled(), if self.reading => self.reading = false,
            }
        }
        // The client may be gone already, which is as good.
        let _ = self.output.shutdown().await;
    }

    fn accepts(&self) -> bool {
        self.reading && self.in_flight.len() < self.limits.tcp_in_flight
    }

    /// Starts answering the messages that have been read, as far as there is room.
    fn take_messages(&mut self) -> Result<(), FrameError> {
        while self.accepts() {
            let Some(message) = self.frames.take()? else {
                break;
            };
            self.used = Instant::now();
            self.partial_since = None;
            let handler = Arc::clone(&self.handler);
            let peer = self.peer;
            self.in_flight
                .spawn(async move { handler.handle(message, peer, Transport::Tcp).await });
        }
        Ok(())
    }

    /// Returns when the client will have been silent for too long, if it is its turn to speak.
    fn give_up_at(&mut self) -> Option<Instant> {
        if !self.accepts() || !self.frames.is_partial() {
            self.partial_since = None;
        }
        if !self.accepts() {
            return None;
        }
        if self.frames.is_partial() {
            let since = *self.partial_since.get_or_insert_with(Instant::now);
            return Some(since + self.limits.tcp_stall);
        }
        let idle = self.in_flight.is_empty();
        idle.then(|| self.used + self.limits.tcp_idle)
    }

    /// Writes one reply; tells whether the client took it.
    async fn write(&mut self, reply: Result<Option<Vec<u8>>, JoinError>) -> bool {
        let reply = reply.unwrap_or_else(|error| {
            reap(Err(error));
            None
        });
        let Some(framed) = reply.as_deref().and_then(frame) else {
            return true;
        };
        let written = timeout(self.limits.tcp_stall, self.output.write_all(&framed)).await;
        self.used = Instant::now();
        matches!(written, Ok(Ok(())))
    }
}
