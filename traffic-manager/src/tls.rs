//! Mutual TLS for the gRPC listener: TLS 1.3 alone, a client certificate of our authority required.
//!
//! Keys and authorities are read again when their files change; connections that are open go on.
//! There is no resumption, so that every connection shows its certificate. Who the client is
//! decides nothing: a session proves what it may see by its tokens, here as on loopback.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::select_all;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt, stream};
use kubebridge_proto::flow::ReadAhead;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{RootCertStore, ServerConfig};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use crate::failure::{Exit, Failure};
use crate::file_watch::FileWatch;
use crate::limit::{Connection, Limited};

mod secured;

pub use self::secured::{Peer, Secured, Speaks};

/// What both sides speak over TLS: gRPC, which is HTTP/2, or the data plane.
const ALPN: &[u8] = b"h2";
const ALPN_DATA: &[u8] = kubebridge_proto::flow::ALPN;

/// How long a handshake may take: two round trips over a bad line.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The most handshakes at once. A handshake costs a signature and some 20 KB; what comes on top
/// waits in the kernel's queue.
const HANDSHAKES: usize = 64;

/// How long files have to be quiet before they are read: a rotation writes several.
const QUIET: Duration = Duration::from_millis(500);

/// The files of a listener's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, our own first (PEM).
    pub cert: PathBuf,
    /// The key of our certificate (PEM).
    pub key: PathBuf,
    /// The authorities of the clients' certificates (PEM).
    pub ca: PathBuf,
}

/// What a listener presents and accepts now.
pub type Current = watch::Receiver<Arc<ServerConfig>>;

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// With exit code 78 when one cannot be read, or they do not fit together.
    pub fn load(&self) -> Result<Arc<ServerConfig>> {
        self.read().context(
            Failure::new(Exit::File, "cannot use the files for TLS").hint(
                "`kubebridge certs` makes an authority, a server's and a client's certificate",
            ),
        )
    }

    fn read(&self) -> Result<Arc<ServerConfig>> {
        let mut authorities = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            authorities
                .add(certificate)
                .with_context(|| format!("{}", self.ca.display()))?;
        }
        let provider = Arc::new(default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(
            Arc::new(authorities),
            Arc::clone(&provider),
        )
        .build()
        .with_context(|| format!("{}", self.ca.display()))?;
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .with_context(|| format!("{}", self.key.display()))?;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(clients)
            .with_single_cert(certificates(&self.cert)?, key)
            .with_context(|| format!("{} and {}", self.cert.display(), self.key.display()))?;
        config.alpn_protocols = vec![ALPN.to_vec(), ALPN_DATA.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Arc::new(config))
    }

    /// Reads the files now, and again whenever they change, until shutdown.
    ///
    /// # Errors
    /// When they cannot be used now; later the last that could stays.
    pub fn follow(
        self,
        shutdown: CancellationToken,
    ) -> Result<(Current, impl Future<Output = ()> + Send)> {
        let watches = [&self.cert, &self.key, &self.ca].map(|path| FileWatch::new(path));
        let (sender, current) = watch::channel(self.load()?);
        Ok((current, keep(self, watches, sender, shutdown)))
    }
}

async fn keep(
    files: TlsFiles,
    mut watches: [FileWatch; 3],
    current: watch::Sender<Arc<ServerConfig>>,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = any_changed(&mut watches) => {}
        }
        while timeout(QUIET, any_changed(&mut watches)).await.is_ok() {}
        match files.read() {
            Ok(config) => {
                info!("certificates read again");
                current.send_replace(config);
            }
            Err(error) => {
                let error = format!("{error:#}");
                warn!(error, "certificates cannot be used, the last stay");
            }
        }
    }
}

async fn any_changed(watches: &mut [FileWatch; 3]) {
    select_all(watches.iter_mut().map(|watch| watch.changed().boxed())).await;
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let about = || format!("{}", path.display());
    let certificates: Vec<_> = CertificateDer::pem_file_iter(path)
        .with_context(about)?
        .collect::<Result<_, _>>()
        .with_context(about)?;
    ensure!(!certificates.is_empty(), "{} has no certificate", about());
    Ok(certificates)
}

/// Returns the connections of a listener whose handshake went well, as they come.
pub fn secure(
    listener: Limited,
    current: Current,
) -> impl Stream<Item = io::Result<Secured>> + Send {
    let waiting = Waiting {
        connections: Box::pin(listener.connections()),
        handshakes: FuturesUnordered::new(),
        current,
    };
    stream::unfold(waiting, |mut waiting| async move {
        let secured = waiting.next().await?;
        Some((Ok(secured), waiting))
    })
}

type Handshake = futures::future::BoxFuture<'static, Option<Secured>>;

struct Waiting<S> {
    connections: std::pin::Pin<Box<S>>,
    handshakes: FuturesUnordered<Handshake>,
    current: Current,
}

impl<S: Stream<Item = io::Result<Connection>>> Waiting<S> {
    async fn next(&mut self) -> Option<Secured> {
        loop {
            tokio::select! {
                Some(done) = self.handshakes.next() => if let Some(secured) = done {
                    return Some(secured);
                },
                connection = self.connections.next(), if self.handshakes.len() < HANDSHAKES => {
                    // Failures to accept are waited out by the listener.
                    if let Ok(connection) = connection? {
                        let config = Arc::clone(&self.current.borrow());
                        self.handshakes.push(handshake(connection, config).boxed());
                    }
                }
            }
        }
    }
}

/// Shakes hands; one that fails is the client's to notice, and costs nobody else anything.
async fn handshake(connection: Connection, config: Arc<ServerConfig>) -> Option<Secured> {
    let accepting = TlsAcceptor::from(config).accept(ReadAhead::new(connection));
    let stream = match timeout(HANDSHAKE, accepting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            debug!(%error, "handshake failed");
            return None;
        }
        Err(_) => {
            debug!("handshake timed out");
            return None;
        }
    };
    let speaks = match stream.get_ref().1.alpn_protocol() {
        Some(ALPN) => Speaks::Grpc,
        Some(ALPN_DATA) => Speaks::Data,
        Some(_) | None => {
            debug!("client speaks no HTTP/2");
            return None;
        }
    };
    Some(Secured::new(stream, speaks))
}

#[cfg(test)]
mod tests;
