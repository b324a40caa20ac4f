//! One question over UDP from a port of its own, and what every UDP question has in common.
//!
//! A fresh random port adds to the random id what a blind attacker must guess (RFC 5452 §9.2).
//! What a reply means (truncation, EDNS) is `do53`'s to decide.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

use super::ExchangeError;
use super::ids::{Arrival, Ids, Outcome};
use super::wire::Wire;

/// The largest reply taken whole. We advertise 1232; servers that ignore it stop at 4096.
pub(super) const RECEIVE_BUFFER: usize = 4096;
/// How many packets that are not the reply are taken for bad luck rather than for guessing.
const MAX_MISMATCHES: u32 = 8;

/// What came of asking over UDP.
#[derive(Debug)]
pub(super) enum UdpOutcome {
    /// A reply to the question, this long after the sending it answers.
    Reply(Vec<u8>, Duration),
    /// Somebody may be guessing ids: the question must be asked over TCP.
    Guessed,
}

/// Asks from a fresh port until a reply comes, sending again with a new id after each wait.
///
/// The caller bounds the time; the permit bounds the sockets.
pub(super) async fn ask_from_fresh_port(
    server: SocketAddr,
    permits: &Semaphore,
    wire: &mut Wire,
    mut wait: Duration,
) -> Result<UdpOutcome, ExchangeError> {
    let permit = permits.acquire().await;
    let _permit = permit.map_err(|_| ExchangeError::Closed)?;
    let socket = connect(server)?;
    let ids = Ids::default();
    let mut ticket = ids.open(wire.question())?;
    let mut buffer = vec![0; RECEIVE_BUFFER];
    let mut mismatches = 0;
    loop {
        let id = ticket.draw(Instant::now())?;
        let sent = socket.send(wire.with_id(id)).await;
        sent.map_err(|source| ExchangeError::io("send to", source))?;
        let resend = sleep(wait);
        tokio::pin!(resend);
        loop {
            let length = tokio::select! {
                received = socket.recv(&mut buffer) => {
                    received.map_err(|source| ExchangeError::io("receive from", source))?
                }
                () = &mut resend => break,
            };
            match ids.arrived(&buffer[..length], Instant::now()) {
                Arrival::Delivered => {
                    return match ticket.outcome().await {
                        Outcome::Reply(reply, rtt) => Ok(UdpOutcome::Reply(reply, rtt)),
                        Outcome::Closed(reason) => Err(reason.into()),
                    };
                }
                Arrival::Ignored | Arrival::Stranger => mismatches += 1,
            }
            if mismatches >= MAX_MISMATCHES {
                return Ok(UdpOutcome::Guessed);
            }
        }
        wait *= 2;
    }
}

/// Opens a socket that sends to the server alone and hears nobody else. The port is the system's
/// choice, which is random on every system we run on.
pub(super) fn connect(server: SocketAddr) -> Result<UdpSocket, ExchangeError> {
    let any = match server {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let open = || {
        let socket = std::net::UdpSocket::bind(SocketAddr::new(any, 0))?;
        socket.set_nonblocking(true)?;
        socket.connect(server)?;
        UdpSocket::from_std(socket)
    };
    open().map_err(|source| ExchangeError::io("open a socket to", source))
}
