//! The receive loop of one UDP socket: the only place that reads it, and so the seam for batching.
//!
//! What is at hand is answered on the spot. Any other query gets a task of its own, so that nobody
//! waits behind an answer that has to be fetched; when all tasks are taken, SERVFAIL.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Handler, Transport, drain, reap, reap_ended};
use crate::message::{self, Checked};
use crate::name::ResponseCode;

/// The largest query taken: far above any real one, which has a name of at most 255 octets.
const RECEIVE_BUFFER: usize = 4096;
/// A pause after a receive error, so that one that stays does not keep a core busy.
const ERROR_PAUSE: Duration = Duration::from_millis(10);
/// The reply size that is right for every asker (RFC 1035 §4.2.1), so nothing need be looked up.
const ALWAYS_FITS: usize = 512;

/// One socket and what it needs to answer.
pub(super) struct Listener<H> {
    socket: Arc<UdpSocket>,
    handler: Arc<H>,
    room: Arc<Semaphore>,
}

impl<H: Handler> Listener<H> {
    /// Answers what comes to the socket. The semaphore is shared by all sockets.
    pub(super) fn new(socket: UdpSocket, handler: Arc<H>, room: Arc<Semaphore>) -> Self {
        Self {
            socket: Arc::new(socket),
            handler,
            room,
        }
    }

    /// Runs until shutdown, then finishes what is in flight.
    pub(super) async fn run(self, drain_time: Duration, shutdown: CancellationToken) {
        let mut buffer = vec![0; RECEIVE_BUFFER];
        let mut reply = Vec::with_capacity(usize::from(message::UDP_PAYLOAD));
        let mut tasks = JoinSet::new();
        loop {
            reap_ended(&mut tasks);
            tokio::select! {
                received = self.socket.recv_from(&mut buffer) => match received {
                    // Nobody can be answered at port 0; it is a forged source.
                    Ok((_, peer)) if peer.port() == 0 => {}
                    Ok((length, peer)) => {
                        let packet = &buffer[..length];
                        if self.handler.at_hand(packet, peer, &mut reply) {
                            send_to(&self.socket, &reply, peer).await;
                        } else {
                            self.answer(packet, peer, &mut tasks).await;
                        }
                    }
                    Err(error) => {
                        tracing::debug!(%error, "receiving failed");
                        tokio::time::sleep(ERROR_PAUSE).await;
                    }
                },
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => reap(ended),
                () = shutdown.cancelled() => break,
            }
        }
        drain(tasks, drain_time).await;
    }

    async fn answer(&self, packet: &[u8], peer: SocketAddr, tasks: &mut JoinSet<()>) {
        if let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() {
            let socket = Arc::clone(&self.socket);
            let handler = Arc::clone(&self.handler);
            let packet = packet.to_vec();
            tasks.spawn(async move {
                let _permit = permit;
                let reply = handler.handle(packet.clone(), peer, Transport::Udp).await;
                send(&socket, reply, &packet, peer).await;
            });
            return;
        }
        let handled = self.handler.handle(packet.to_vec(), peer, Transport::Udp);
        let reply = handled.now_or_never().unwrap_or_else(|| shed(packet));
        send(&self.socket, reply, packet, peer).await;
    }
}

/// Builds the answer to a query there is no room for.
pub(super) fn shed(packet: &[u8]) -> Option<Vec<u8>> {
    match message::check(packet) {
        Checked::Query(query) => Some(message::error_reply(&query, ResponseCode::SERVFAIL)),
        Checked::Reply(reply) => Some(reply),
        Checked::Drop => None,
    }
}

/// Sends the reply from the socket the query came to, cut to what the asker can take.
async fn send(socket: &UdpSocket, reply: Option<Vec<u8>>, query: &[u8], peer: SocketAddr) {
    if let Some(reply) = reply {
        send_to(socket, &fit(reply, query), peer).await;
    }
}

/// Cuts a reply to what the asker can take.
pub(super) fn fit(reply: Vec<u8>, query: &[u8]) -> Vec<u8> {
    if reply.len() > ALWAYS_FITS {
        message::fit_udp(reply, query)
    } else {
        reply
    }
}

async fn send_to(socket: &UdpSocket, reply: &[u8], peer: SocketAddr) {
    if let Err(error) = socket.send_to(reply, peer).await {
        tracing::debug!(%error, "sending a reply failed");
    }
}
