//! The way to a manager over a network: mutual TLS, version 1.3 alone, to a host and port.
//!
//! The server has to show a certificate of the given authority for the very host (a name or an
//! address) that was given; the system's authorities do not count. Files are read at each
//! connection, so that new ones need no restart.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use kubebridge_proto::flow::{self, ReadAhead};
use parking_lot::Mutex;
use rustls::client::Resumption;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::way::{BoxIo, Place, Way};
use crate::cli::ManagerAddress;

/// What both sides speak over TLS for gRPC.
const GRPC: &[u8] = b"h2";

/// How long the host's addresses may take; then those of the time before serve.
const LOOKUP: Duration = Duration::from_secs(1);

/// The files of a client's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, our own first (PEM).
    pub cert: PathBuf,
    /// The key of our certificate (PEM).
    pub key: PathBuf,
    /// The authorities of the server's certificate (PEM).
    pub ca: PathBuf,
}

/// A connection over mutual TLS.
#[derive(Debug)]
pub struct Secure {
    address: ManagerAddress,
    files: TlsFiles,
    /// Where the host was found last: its name must not be needed for what resolves names.
    known: Mutex<Vec<SocketAddr>>,
}

impl Secure {
    /// Names a way; nothing is opened.
    #[must_use]
    pub fn new(address: ManagerAddress, files: TlsFiles) -> Self {
        Self {
            address,
            files,
            known: Mutex::default(),
        }
    }

    async fn connect(&self) -> anyhow::Result<Channel> {
        let stream = self.handshake(GRPC).await?;
        // A channel that loses its connection is replaced by whoever keeps it, files read anew.
        let mut stream = Some(TokioIo::new(stream));
        let once = tower::service_fn(move |_: Uri| {
            let stream = stream.take();
            std::future::ready(stream.ok_or_else(|| std::io::Error::other("connection lost")))
        });
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))?;
        Ok(endpoint.connect_with_connector(once).await?)
    }

    async fn handshake(&self, alpn: &[u8]) -> anyhow::Result<TlsStream<ReadAhead<TcpStream>>> {
        let mut config = self.files.config()?;
        config.alpn_protocols = vec![alpn.to_vec()];
        let name = ServerName::try_from(self.address.host.clone())?;
        let tcp = self.dial().await?;
        tcp.set_nodelay(true)?;
        let stream = TlsConnector::from(Arc::new(config))
            .connect(name, ReadAhead::new(tcp))
            .await
            .context("TLS handshake failed")?;
        ensure!(
            stream.get_ref().1.alpn_protocol() == Some(alpn),
            "the server does not speak {} over TLS: is it a traffic-manager, and new enough?",
            String::from_utf8_lossy(alpn)
        );
        Ok(stream)
    }

    async fn dial(&self) -> anyhow::Result<TcpStream> {
        let mut last = None;
        for address in self.addresses().await? {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(anyhow::Error::new(error).context(address)),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("{} has no address", self.address.host)))
    }

    async fn addresses(&self) -> anyhow::Result<Vec<SocketAddr>> {
        let host = (self.address.host.as_str(), self.address.port);
        let found = match timeout(LOOKUP, lookup_host(host)).await {
            Ok(Ok(found)) => Ok(found.collect::<Vec<_>>()),
            Ok(Err(error)) => Err(anyhow::Error::new(error)),
            Err(_) => Err(anyhow::anyhow!("no answer within {LOOKUP:?}")),
        };
        match found {
            Ok(found) if !found.is_empty() => {
                self.known.lock().clone_from(&found);
                Ok(found)
            }
            other => {
                let known = self.known.lock().clone();
                if known.is_empty() {
                    return other.with_context(|| format!("cannot resolve {}", self.address.host));
                }
                Ok(known)
            }
        }
    }
}

impl fmt::Display for Secure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (TLS)", self.address)
    }
}

impl Way for Secure {
    fn endpoints(&self) -> BoxFuture<'_, Vec<IpAddr>> {
        async {
            // Its addresses were found when it was dialled; who cannot find them has none to guard.
            let found = self.addresses().await.unwrap_or_default();
            found.iter().map(SocketAddr::ip).collect()
        }
        .boxed()
    }

    fn dial(&self) -> BoxFuture<'_, anyhow::Result<Channel>> {
        self.connect().boxed()
    }

    fn raw<'a>(&'a self, _: &'a Place) -> BoxFuture<'a, anyhow::Result<BoxIo>> {
        async move {
            let stream = self.handshake(flow::ALPN).await?;
            Ok(Box::new(stream) as BoxIo)
        }
        .boxed()
    }
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    ///
    /// One cannot be read or used.
    pub fn config(&self) -> anyhow::Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots
                .add(certificate)
                .with_context(|| self.ca.display().to_string())?;
        }
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .with_context(|| self.key.display().to_string())?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_client_auth_cert(certificates(&self.cert)?, key)
            .with_context(|| format!("{} and {}", self.cert.display(), self.key.display()))?;
        config.alpn_protocols = vec![GRPC.to_vec()];
        // The server keeps no sessions: each connection shows its certificate.
        config.resumption = Resumption::disabled();
        Ok(config)
    }
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let about = || path.display().to_string();
    let read = CertificateDer::pem_file_iter(path).with_context(about)?;
    let found: Vec<_> = read.collect::<Result<_, _>>().with_context(about)?;
    if found.is_empty() {
        bail!("{} has no certificate", path.display());
    }
    Ok(found)
}
