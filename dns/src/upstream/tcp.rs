//! Plain TCP to a server (RFC 7766).
//!
//! Serves as the fallback of UDP, so an unused connection is soon closed.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;

use super::ExchangeError;
use super::channel::{Channel, Transport};
use super::framed::Framed;

/// How long an unused connection is kept, as servers do (RFC 7766 §6.2.3 asks for a few seconds).
const IDLE: Duration = Duration::from_secs(10);

/// The TCP side of one server.
pub(super) type TcpChannel = Channel<Tcp>;

/// Opens TCP connections.
#[derive(Debug)]
pub(super) struct Tcp {
    server: SocketAddr,
}

impl Tcp {
    pub(super) fn new(server: SocketAddr) -> Self {
        Self { server }
    }
}

impl Transport for Tcp {
    type Connection = Framed;

    async fn open(&self) -> Result<Framed, ExchangeError> {
        let server = self.server;
        let stream = dial(server).await;
        let stream = stream.map_err(|source| ExchangeError::io("connect to", source))?;
        let span = tracing::debug_span!("upstream_connection", %server);
        Ok(Framed::new(stream, IDLE, span))
    }

    fn generation(&self) -> u64 {
        0
    }
}

/// Opens a TCP connection that sends what it is given at once.
pub(super) async fn dial(address: SocketAddr) -> std::io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
