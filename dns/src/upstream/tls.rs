//! TLS towards upstreams: version 1.3 only, strict about names and validity, one set of settings
//! per trust store, read again when its files change.
//!
//! There is no way around a check: a server that fails one is not spoken to.

use std::sync::Arc;

use parking_lot::Mutex;
use rustls_pki_types::{ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::ServerCertVerifier;
use tokio_rustls::rustls::client::{ClientConnection, Resumption, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, Error, HandshakeKind, RootCertStore};

use super::error::{ExchangeError, TlsRefusal};
use super::trust::{Stamp, Trust, TrustError};

/// Server names whose sessions are remembered for resumption: more upstreams than anybody has.
const SESSIONS: usize = 64;

/// The protocol agreed on within TLS (RFC 7301).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alpn {
    /// DNS over TLS; servers that know no ALPN are taken for it.
    Dot,
    /// HTTP/2, which the server must confirm (RFC 9113 §3.2).
    Http2,
}

/// The settings for everybody who trusts the same authorities.
#[derive(Debug)]
pub(super) struct TrustStore {
    trust: Trust,
    provider: Arc<CryptoProvider>,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    stamps: Vec<Option<Stamp>>,
    roots: Arc<RootCertStore>,
    generation: u64,
    clients: Clients,
}

#[derive(Debug, Clone)]
struct Clients {
    verifier: Arc<WebPkiServerVerifier>,
    dot: Arc<ClientConfig>,
    http2: Arc<ClientConfig>,
}

impl TrustStore {
    /// Reads the authorities.
    pub(super) fn new(trust: Trust) -> Result<Self, TrustError> {
        let provider = Arc::new(ring::default_provider());
        let stamps = trust.stamps();
        let roots = Arc::new(trust.read()?);
        let loaded = Loaded {
            stamps,
            generation: 0,
            clients: Clients::new(&provider, &roots),
            roots,
        };
        Ok(Self {
            trust,
            provider,
            loaded: Mutex::new(loaded),
        })
    }

    /// Returns a number that changes with the authorities.
    ///
    /// Looks at the files' metadata each time: a microsecond each, beside a question that costs
    /// twenty and more.
    pub(super) fn generation(&self) -> u64 {
        let mut loaded = self.loaded.lock();
        self.refresh(&mut loaded);
        loaded.generation
    }

    /// Proves that the other end of the stream is the named server.
    pub(super) async fn handshake<S>(
        &self,
        stream: S,
        name: &ServerName<'static>,
        alpn: Alpn,
    ) -> Result<TlsStream<S>, ExchangeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let clients = self.clients();
        let client = match alpn {
            Alpn::Dot => &clients.dot,
            Alpn::Http2 => &clients.http2,
        };
        let refused = |refusal| ExchangeError::Tls {
            server_name: name.to_str().into_owned(),
            refusal,
        };
        let secured = TlsConnector::from(Arc::clone(client)).connect(name.clone(), stream);
        let secured = secured
            .await
            .map_err(|error| match TlsRefusal::of_handshake(&error) {
                Some(refusal) => refused(refusal),
                None => ExchangeError::io("agree on encryption with", error),
            })?;
        let connection = secured.get_ref().1;
        if let Err(error) = check_resumed(connection, name, &clients.verifier) {
            self.forget_sessions();
            return Err(refused(TlsRefusal::of_tls(&error)));
        }
        let agreed = connection.alpn_protocol();
        if alpn == Alpn::Http2 && agreed != Some(alpn.id()) {
            return Err(refused(TlsRefusal::WrongProtocol));
        }
        Ok(secured)
    }

    fn clients(&self) -> Clients {
        let mut loaded = self.loaded.lock();
        self.refresh(&mut loaded);
        loaded.clients.clone()
    }

    /// Lets the next handshake be a full one, with the certificate that the server has now.
    fn forget_sessions(&self) {
        let mut loaded = self.loaded.lock();
        loaded.clients = Clients::new(&self.provider, &loaded.roots);
    }

    /// Reads the authorities again if a file has changed. Those that cannot be read leave the
    /// trust as it was, for a file may be seen half written; the next change is another chance.
    fn refresh(&self, loaded: &mut Loaded) {
        let stamps = self.trust.stamps();
        if stamps == loaded.stamps {
            return;
        }
        loaded.stamps = stamps;
        let roots = match self.trust.read() {
            Ok(roots) => Arc::new(roots),
            Err(error) => {
                let reason = std::error::Error::source(&error);
                tracing::warn!(%error, reason, "changed trust store not usable, keeping the old");
                return;
            }
        };
        if roots.roots == loaded.roots.roots {
            return;
        }
        tracing::info!(authorities = roots.len(), "trust store changed");
        loaded.clients = Clients::new(&self.provider, &roots);
        loaded.roots = roots;
        loaded.generation += 1;
    }
}

impl Alpn {
    fn id(self) -> &'static [u8] {
        match self {
            Self::Dot => b"dot",
            Self::Http2 => b"h2",
        }
    }
}

impl Clients {
    /// Makes settings with sessions of their own, so that none outlives the trust it was made
    /// under.
    fn new(provider: &Arc<CryptoProvider>, roots: &Arc<RootCertStore>) -> Self {
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
        let verifier = verifier.build().expect("a trust store is never empty");
        let client = |alpn: Alpn| {
            let builder = ClientConfig::builder_with_provider(Arc::clone(provider));
            let builder = builder
                .with_protocol_versions(&[&TLS13])
                .expect("ring has the cipher suites of TLS 1.3");
            let mut client = builder
                .with_webpki_verifier(Arc::clone(&verifier))
                .with_no_client_auth();
            client.alpn_protocols = vec![alpn.id().to_vec()];
            client.resumption = Resumption::in_memory_sessions(SESSIONS);
            Arc::new(client)
        };
        Self {
            dot: client(Alpn::Dot),
            http2: client(Alpn::Http2),
            verifier,
        }
    }
}

/// Checks the certificate of a resumed session, which the library takes as checked before: it may
/// have expired since.
fn check_resumed(
    connection: &ClientConnection,
    name: &ServerName<'static>,
    verifier: &WebPkiServerVerifier,
) -> Result<(), Error> {
    if connection.handshake_kind() != Some(HandshakeKind::Resumed) {
        return Ok(());
    }
    let certificates = connection.peer_certificates().unwrap_or_default();
    let Some((server, issuers)) = certificates.split_first() else {
        return Err(Error::NoCertificatesPresented);
    };
    let checked = verifier.verify_server_cert(server, issuers, name, &[], UnixTime::now());
    checked.map(drop)
}
