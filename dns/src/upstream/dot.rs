//! DNS over TLS (RFC 7858): the questions of TCP, inside TLS, on one long-lived connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::ServerName;

use super::ExchangeError;
use super::channel::Transport;
use super::framed::Framed;
use super::tcp::dial;
use super::tls::{Alpn, TrustStore};

/// How long an unused connection is kept. Public servers close theirs after 10 to 30 s; longer
/// than this, and address translators on the way begin to forget it.
const IDLE: Duration = Duration::from_secs(60);

/// Opens DoT connections to one server.
#[derive(Debug)]
pub(super) struct Dot {
    pub(super) address: SocketAddr,
    pub(super) name: ServerName<'static>,
    pub(super) trust: Arc<TrustStore>,
}

impl Transport for Dot {
    type Connection = Framed;

    async fn open(&self) -> Result<Framed, ExchangeError> {
        let server = self.address;
        let stream = dial(server).await;
        let stream = stream.map_err(|source| ExchangeError::io("connect to", source))?;
        let secured = self.trust.handshake(stream, &self.name, Alpn::Dot);
        let span = tracing::debug_span!("dot_connection", %server);
        Ok(Framed::new(secured.await?, IDLE, span))
    }

    fn generation(&self) -> u64 {
        self.trust.generation()
    }
}
