//! A few long-lived sockets for UDP questions to one server inside the cluster.
//!
//! A new port per query would cost one conntrack entry each towards a Service address, and the
//! races that come with them (kubernetes/kubernetes#56903). The price is a port an attacker has
//! time to find; so each socket lives shortly, and the first reply with an id that is neither
//! pending nor spent closes it and sends its questions to TCP.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use super::ExchangeError;
use super::ids::{Arrival, Ids, Outcome, Reason, Ticket};
use super::reply::Question;
use super::udp::{RECEIVE_BUFFER, UdpOutcome, connect};
use super::wire::Wire;

/// Sockets in use at a time: four ports to find, and no more flows than that in conntrack.
const SOCKETS: usize = 4;
/// Queries after which a socket is replaced, so that a found port is soon worth nothing.
const MAX_QUERIES: u64 = 1000;
/// Ids in use on a socket, spent ones too, after which it is replaced: a server that is silent has
/// each query sent several times, and a new query must never lack an id because of that.
const CROWDED: usize = 1000;
/// Age after which a socket is replaced, for the same reason; also what CoreDNS keeps sockets for.
const MAX_AGE: Duration = Duration::from_secs(10);
/// How long a replaced socket stays open for late replies, which would else meet a closed port.
const LINGER: Duration = Duration::from_secs(5);
/// Replaced sockets kept for late replies alone: under load they go sooner.
const MAX_LINGERING: usize = 8;

/// The sockets towards one server.
#[derive(Debug)]
pub(super) struct Pool {
    server: SocketAddr,
    permits: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    slots: [Option<Arc<PooledSocket>>; SOCKETS],
    turn: usize,
    lingering: VecDeque<(Instant, Arc<PooledSocket>)>,
}

/// One connected socket, read by a task of its own that ends with it.
#[derive(Debug)]
struct PooledSocket {
    socket: Arc<UdpSocket>,
    ids: Ids,
    opened: Instant,
    _reader: AbortOnDropHandle<()>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    /// Opens no socket yet. The permits bound the sockets open at once.
    pub(super) fn new(server: SocketAddr, permits: Arc<Semaphore>) -> Self {
        Self {
            server,
            permits,
            state: Mutex::default(),
        }
    }

    /// Asks until a reply comes, sending again with a new id after each wait. The caller bounds
    /// the time.
    pub(super) async fn ask(
        &self,
        wire: &mut Wire,
        mut wait: Duration,
    ) -> Result<UdpOutcome, ExchangeError> {
        let (socket, ticket) = self.open(wire.question())?;
        let mut ticket = match ticket {
            Ok(ticket) => ticket,
            Err(Reason::Guessed) => return Ok(UdpOutcome::Guessed),
            Err(reason) => return Err(reason.into()),
        };
        let mut first = true;
        loop {
            match ticket.draw(Instant::now()) {
                Ok(id) => socket.send(wire.with_id(id)).await?,
                Err(error) if first => return Err(error),
                // No id is free for a resend: what was sent already may still be answered.
                Err(_) => {}
            }
            first = false;
            match timeout(wait, ticket.outcome()).await {
                Ok(Outcome::Reply(reply, rtt)) => return Ok(UdpOutcome::Reply(reply, rtt)),
                Ok(Outcome::Closed(Reason::Guessed)) => {
                    self.discard(&socket);
                    return Ok(UdpOutcome::Guessed);
                }
                Ok(Outcome::Closed(reason)) => return Err(reason.into()),
                Err(_elapsed) => wait *= 2,
            }
        }
    }

    /// Takes the next socket in turn, replacing it when it has served its time.
    fn open(&self, question: Question) -> Result<OpenQuery, ExchangeError> {
        let now = Instant::now();
        let mut state = self.state.lock();
        let turn = state.turn;
        state.turn = (turn + 1) % SOCKETS;
        let expired = |(until, _): &(Instant, _)| *until <= now;
        while state.lingering.front().is_some_and(expired) {
            state.lingering.pop_front();
        }
        let socket = match &state.slots[turn] {
            Some(socket) if socket.is_fresh(now) => Arc::clone(socket),
            Some(_) | None => {
                let fresh = Arc::new(self.socket(now)?);
                let old = state.slots[turn].replace(Arc::clone(&fresh));
                // A closed socket has nobody to read late replies.
                if let Some(old) = old.filter(|old| old.ids.is_open()) {
                    state.lingering.push_back((now + LINGER, old));
                }
                if state.lingering.len() > MAX_LINGERING {
                    state.lingering.pop_front();
                }
                fresh
            }
        };
        let ticket = socket.ids.open(question);
        Ok((socket, ticket))
    }

    /// Lets go of a closed socket, so that its port is free as soon as nobody waits on it.
    fn discard(&self, closed: &Arc<PooledSocket>) {
        for slot in &mut self.state.lock().slots {
            slot.take_if(|socket| Arc::ptr_eq(socket, closed));
        }
    }

    #[cfg(test)]
    pub(super) fn open_sockets(&self) -> usize {
        super::do53::MAX_SOCKETS - self.permits.available_permits()
    }

    fn socket(&self, now: Instant) -> Result<PooledSocket, ExchangeError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|_| ExchangeError::Overloaded)?;
        let socket = Arc::new(connect(self.server)?);
        let ids = Ids::default();
        let span = tracing::debug_span!("upstream_socket", server = %self.server);
        let reader = read(Arc::clone(&socket), ids.clone()).instrument(span);
        Ok(PooledSocket {
            socket,
            ids,
            opened: now,
            _reader: AbortOnDropHandle::new(tokio::spawn(reader)),
            _permit: permit,
        })
    }
}

type OpenQuery = (Arc<PooledSocket>, Result<Ticket, Reason>);

impl PooledSocket {
    fn is_fresh(&self, now: Instant) -> bool {
        now < self.opened + MAX_AGE
            && self.ids.opened() < MAX_QUERIES
            && self.ids.in_use(now) < CROWDED
            && self.ids.is_open()
    }

    async fn send(&self, query: &[u8]) -> Result<(), ExchangeError> {
        match self.socket.send(query).await {
            Ok(_) => Ok(()),
            Err(source) => {
                // The error may be an ICMP message about an earlier query; it is the same server.
                self.ids.close(Reason::Io(source.kind()));
                Err(ExchangeError::io("send to", source))
            }
        }
    }
}

/// Gives replies to those who wait until the socket fails or somebody guesses.
async fn read(socket: Arc<UdpSocket>, ids: Ids) {
    let mut buffer = vec![0; RECEIVE_BUFFER];
    loop {
        let reason = match socket.recv(&mut buffer).await {
            Ok(length) => match ids.arrived(&buffer[..length], Instant::now()) {
                Arrival::Delivered | Arrival::Ignored => continue,
                Arrival::Stranger => Reason::Guessed,
            },
            Err(error) => Reason::Io(error.kind()),
        };
        tracing::debug!(?reason, "upstream socket closed");
        return ids.close(reason);
    }
}
