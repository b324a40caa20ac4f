//! The API server on a port of its own, in the clear or with TLS, that can go away and come back.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;
use traffic_manager::test_util::ApiServer;

/// A server and the kubeconfig that leads to it.
pub(super) struct World {
    pub(super) api: ApiServer,
    pub(super) address: SocketAddr,
    directory: TempDir,
    serving: Option<JoinHandle<()>>,
}

impl World {
    /// Makes a world whose server is not there yet.
    pub(super) fn away(scheme: &str) -> Self {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let folder = directory.path().display();
        let authority = match scheme {
            "https" => format!(", certificate-authority: {folder}/ca.crt"),
            _ => String::new(),
        };
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: '{scheme}://{address}'{authority}}}}}]\n\
             users: [{{name: u, user: {{tokenFile: {folder}/token}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u, namespace: default}}}}]\n"
        );
        std::fs::write(directory.path().join("kubeconfig"), text).unwrap();
        std::fs::write(directory.path().join("token"), "first").unwrap();
        Self {
            api: ApiServer::default(),
            address,
            directory,
            serving: None,
        }
    }

    pub(super) fn start() -> Self {
        let mut world = Self::away("http");
        world.come();
        world
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.path("kubeconfig")
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Begins to serve in the clear.
    pub(super) fn come(&mut self) {
        let (api, listener) = (self.api.clone(), listen(self.address));
        self.serving = Some(tokio::spawn(
            async move { api.serve(listener).await.unwrap() },
        ));
    }

    /// Begins to serve with a certificate of a new authority, which is written beside the kubeconfig.
    pub(super) fn come_with_new_authority(&mut self) {
        let config = certificate(&self.path("ca.crt"));
        let listener = Tls {
            listener: listen(self.address),
            acceptor: TlsAcceptor::from(Arc::new(config)),
        };
        let api = self.api.clone();
        self.serving = Some(tokio::spawn(
            async move { api.serve(listener).await.unwrap() },
        ));
    }

    /// Ends the server and all its connections.
    pub(super) async fn go(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
        self.api.break_connections();
    }
}

/// Takes the port again although connections of before linger.
fn listen(address: SocketAddr) -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(address).unwrap();
    socket.listen(64).unwrap()
}

fn certificate(authority: &Path) -> ServerConfig {
    let mut params = CertificateParams::new([]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(authority, issuer.pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap()
}

/// Connections that got through the handshake.
struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, peer) = self.listener.accept().await.unwrap();
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}
