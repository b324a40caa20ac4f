//! The server without sockets: for whoever has its clients' datagrams and streams by other means.

use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::{Handler, Limits, Transport, tcp, udp};

/// Answers one datagram or stream at a time, within the limits of a server.
#[derive(Debug)]
pub struct Answering<H> {
    handler: Arc<H>,
    limits: Arc<Limits>,
    room: Semaphore,
    clients: Arc<tcp::Clients>,
}

impl<H: Handler> Answering<H> {
    /// Answers by `handler`.
    #[must_use]
    pub fn new(handler: Arc<H>, limits: Limits) -> Self {
        Self {
            handler,
            room: Semaphore::new(limits.udp_in_flight),
            clients: Arc::new(tcp::Clients::new(&limits)),
            limits: Arc::new(limits),
        }
    }

    /// Returns the reply to a datagram, cut to what the asker takes; `None` says nothing.
    pub async fn datagram(&self, packet: Vec<u8>, peer: SocketAddr) -> Option<Vec<u8>> {
        let answer = |packet| self.handler.handle(packet, peer, Transport::Udp);
        let reply = match self.room.try_acquire() {
            Ok(_permit) => answer(packet.clone()).await,
            Err(_) => {
                let at_once = answer(packet.clone()).now_or_never();
                at_once.unwrap_or_else(|| udp::shed(&packet))
            }
        };
        reply.map(|reply| udp::fit(reply, &packet))
    }

    /// Answers the messages of a stream until its client is gone or idle; at shutdown, until all
    /// is answered. The stream is not read to its end.
    pub async fn stream<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        peer: SocketAddr,
        shutdown: CancellationToken,
    ) {
        let Some(_place) = Arc::clone(&self.clients).admit(peer) else {
            tracing::debug!("too many connections");
            return;
        };
        let (handler, limits) = (Arc::clone(&self.handler), Arc::clone(&self.limits));
        let halves = tokio::io::split(stream);
        let connection = tcp::Connection::new(halves, peer, handler, limits);
        connection.run(shutdown).await;
    }
}
