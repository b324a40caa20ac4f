//! Plain DNS to one server: over UDP, and over TCP where UDP does not do (RFC 7766 §5).
//!
//! Decides when to fall back to TCP and when to leave EDNS out. Whom to ask next when this server
//! fails is the caller's business.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::pool::Pool;
use super::reply::{HEADER, Verdict, judge_stream, judge_udp, rejects};
use super::rtt::Rtt;
use super::tcp::TcpChannel;
use super::udp::{RECEIVE_BUFFER, UdpOutcome, Wire, ask_from_fresh_port};
use super::{ExchangeError, OutgoingQuery, Upstream, UpstreamSpec};
use crate::message::{QueryOptions, encode_query};

/// UDP sockets open to one server: enough for every query of a busy laptop at a fresh port each,
/// and few enough that several servers stay below the usual limit of 1,024 descriptors.
const MAX_SOCKETS: usize = 128;
/// How long a server that rejected EDNS is asked without it.
const EDNS_REJECTED_FOR: Duration = Duration::from_secs(300);

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
    plain_until: Mutex<Option<Instant>>,
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
            tcp: TcpChannel::new(server),
            rtt: Mutex::default(),
            plain_until: Mutex::default(),
        }
    }

    async fn ask(&self, query: &OutgoingQuery) -> Result<Vec<u8>, ExchangeError> {
        let plain_until = *self.plain_until.lock();
        if plain_until.is_some_and(|until| Instant::now() < until) {
            return self.ask_plain(query).await;
        }
        let (reply, verdict) = self.ask_server(query, true).await?;
        if verdict != Verdict::NoEdns {
            return Ok(reply);
        }
        let reply = self.ask_plain(query).await?;
        // A server that rejects the question either way has said nothing about EDNS.
        if !rejects(&reply) {
            *self.plain_until.lock() = Some(Instant::now() + EDNS_REJECTED_FOR);
        }
        Ok(reply)
    }

    async fn ask_plain(&self, query: &OutgoingQuery) -> Result<Vec<u8>, ExchangeError> {
        let (reply, _) = self.ask_server(query, false).await?;
        if reply.len() == HEADER {
            return Err(ExchangeError::Malformed("a rejection without its question"));
        }
        Ok(reply)
    }

    async fn ask_server(
        &self,
        query: &OutgoingQuery,
        edns: bool,
    ) -> Result<(Vec<u8>, Verdict), ExchangeError> {
        let mut wire = Wire::new(encode(query, edns))?;
        if let UdpOutcome::Reply(reply, rtt) = self.ask_udp(&mut wire).await? {
            self.rtt.lock().sample(rtt);
            match judge_udp(&reply, edns, RECEIVE_BUFFER) {
                Verdict::Truncated => {}
                verdict @ (Verdict::Final | Verdict::NoEdns) => return Ok((reply, verdict)),
            }
        }
        let reply = self.tcp.ask(&mut wire).await?;
        match judge_stream(&reply, edns) {
            Verdict::Truncated => Err(ExchangeError::Malformed("truncated over TCP")),
            verdict @ (Verdict::Final | Verdict::NoEdns) => Ok((reply, verdict)),
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

impl Upstream for Do53 {
    fn spec(&self) -> &UpstreamSpec {
        &self.spec
    }

    fn exchange<'a>(
        &'a self,
        query: &'a OutgoingQuery,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<u8>, ExchangeError>> {
        let answer = timeout_at(deadline, self.ask(query));
        answer
            .map(|answer| answer.unwrap_or(Err(ExchangeError::Timeout)))
            .boxed()
    }
}

/// Encodes the query under id 0, for the ids are drawn when it is sent.
fn encode(query: &OutgoingQuery, edns: bool) -> Vec<u8> {
    let options = QueryOptions {
        class: query.class,
        dnssec_ok: query.dnssec_ok,
        checking_disabled: query.checking_disabled,
        edns,
    };
    encode_query(0, &query.name, query.rtype, options)
}

impl fmt::Debug for Do53 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Do53({})", self.spec)
    }
}

#[cfg(test)]
mod tests;
