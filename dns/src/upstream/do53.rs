//! Plain DNS to one server: over UDP, and over TCP where UDP does not do (RFC 7766 §5).
//!
//! Decides when to fall back to TCP. Whom to ask next when this server fails is the caller's
//! business.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::pool::Pool;
use super::reply::{Verdict, judge_udp};
use super::rtt::Rtt;
use super::tcp::{Tcp, TcpChannel};
use super::udp::{RECEIVE_BUFFER, UdpOutcome, ask_from_fresh_port};
use super::wire::{AskOnce, ServerMemory, Wire};
use super::{ExchangeError, OutgoingQuery, Upstream, UpstreamSpec};

/// UDP sockets open to one server: enough for every query of a busy laptop at a fresh port each,
/// and few enough that several servers stay below the usual limit of 1,024 descriptors.
pub(super) const MAX_SOCKETS: usize = 128;

/// Chooses the source ports of UDP queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PortPolicy {
    /// Four sockets, each used for a while: for servers inside the cluster.
    Pooled,
    /// A fresh random port for every query: for servers anywhere else.
    FreshPort,
}

/// Speaks plain DNS to one server.
pub struct Do53 {
    spec: UpstreamSpec,
    udp: Udp,
    tcp: TcpChannel,
    rtt: Mutex<Rtt>,
    memory: ServerMemory,
}

enum Udp {
    Pooled(Pool),
    FreshPort(Semaphore),
}

impl Do53 {
    /// Opens nothing yet; sockets come with the first query.
    pub fn new(server: SocketAddr, policy: PortPolicy) -> Self {
        let udp = match policy {
            PortPolicy::Pooled => {
                Udp::Pooled(Pool::new(server, Arc::new(Semaphore::new(MAX_SOCKETS))))
            }
            PortPolicy::FreshPort => Udp::FreshPort(Semaphore::new(MAX_SOCKETS)),
        };
        Self {
            spec: UpstreamSpec::do53(server),
            udp,
            tcp: TcpChannel::new(Tcp::new(server)),
            rtt: Mutex::default(),
            memory: ServerMemory::default(),
        }
    }

    async fn ask_udp(&self, wire: &mut Wire) -> Result<UdpOutcome, ExchangeError> {
        let wait = self.rtt.lock().resend_after();
        match &self.udp {
            Udp::Pooled(pool) => pool.ask(wire, wait).await,
            Udp::FreshPort(permits) => {
                ask_from_fresh_port(self.spec.address, permits, wire, wait).await
            }
        }
    }
}

impl AskOnce for Do53 {
    async fn ask_once(&self, mut wire: Wire) -> Result<(Vec<u8>, Verdict), ExchangeError> {
        let mut respelled = None;
        if let UdpOutcome::Reply(reply, rtt) = self.ask_udp(&mut wire).await? {
            self.rtt.lock().sample(rtt);
            match judge_udp(&reply, wire.has_edns(), RECEIVE_BUFFER) {
                Verdict::Truncated => {}
                // Whoever guesses ids does not know the spelling; over TCP it is the server.
                _ if wire.is_respelled_in(&reply) => respelled = Some(reply),
                verdict => return Ok((reply, verdict)),
            }
        }
        match (self.tcp.ask(&mut wire).await, respelled) {
            (Ok(reply), _) => wire.judge_whole(reply),
            // A server without TCP that loses the spelling is of use in lower case.
            (Err(_), Some(reply)) => Ok((reply, Verdict::Folded)),
            (Err(error), None) => Err(error),
        }
    }
}

impl Upstream for Do53 {
    fn spec(&self) -> &UpstreamSpec {
        &self.spec
    }

    fn keeps_case(&self) -> bool {
        self.memory.keeps_case(Instant::now())
    }

    fn exchange<'a>(
        &'a self,
        query: &'a OutgoingQuery,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<u8>, ExchangeError>> {
        self.memory.ask(self, query, deadline).boxed()
    }
}

impl fmt::Debug for Do53 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Do53({})", self.spec)
    }
}

#[cfg(test)]
mod tests;
