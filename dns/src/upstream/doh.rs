//! DNS over HTTPS (RFC 8484): opens the HTTP/2 connection, through a proxy where one is set.

use std::net::SocketAddr;
use std::sync::Arc;

use http::Uri;
use rustls_pki_types::ServerName;

use super::ExchangeError;
use super::channel::Transport;
use super::http2::Http2;
use super::proxy::Proxy;
use super::tcp::dial;
use super::tls::{Alpn, TrustStore};

/// Opens DoH connections to one server.
#[derive(Debug)]
pub(super) struct Doh {
    pub(super) address: SocketAddr,
    pub(super) name: ServerName<'static>,
    pub(super) uri: Uri,
    pub(super) trust: Arc<TrustStore>,
    pub(super) proxy: Option<Proxy>,
}

impl Transport for Doh {
    type Connection = Http2;

    async fn open(&self) -> Result<Http2, ExchangeError> {
        let server = self.address;
        let stream = match &self.proxy {
            Some(proxy) => proxy.connect(server).await?,
            None => {
                let stream = dial(server).await;
                stream.map_err(|source| ExchangeError::io("connect to", source))?
            }
        };
        let secured = self.trust.handshake(stream, &self.name, Alpn::Http2);
        let span = tracing::debug_span!("doh_connection", %server);
        Http2::new(secured.await?, self.uri.clone(), span).await
    }

    fn generation(&self) -> u64 {
        self.trust.generation()
    }
}
