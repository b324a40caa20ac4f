//! Who gets through the handshake, and that certificates change under streams that go on.

use std::net::SocketAddr;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    date_time_ymd,
};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::version::TLS12;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use super::*;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> Authority {
    let mut params = CertificateParams::new([]).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A chain and its key.
type Identity = (
    Vec<CertificateDer<'static>>,
    PrivateKeyDer<'static>,
    String,
    String,
);

fn identity(of: &Authority, usage: ExtendedKeyUsagePurpose, expired: bool) -> Identity {
    let mut params = CertificateParams::new(["manager.test".to_owned()]).unwrap();
    params.extended_key_usages = vec![usage];
    if expired {
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
    }
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, of).unwrap();
    let der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    (
        vec![certificate.der().clone()],
        der,
        certificate.pem(),
        key.serialize_pem(),
    )
}

fn client(of: &Authority) -> Identity {
    identity(of, ExtendedKeyUsagePurpose::ClientAuth, false)
}

/// A listener that says `hello` to whoever gets through.
struct World {
    address: SocketAddr,
    files: TlsFiles,
    authority: Authority,
    current: Current,
    _folder: TempDir,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl World {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let files = TlsFiles {
            cert: at("server.crt"),
            key: at("server.key"),
            ca: at("ca.crt"),
        };
        let authority = authority("one");
        write(&files, &authority, &authority);
        let (current, following) = files.clone().follow(CancellationToken::new()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut secured = Box::pin(secure(Limited::new(listener, 64), current.clone()));
        let serving = async move {
            let mut open = Vec::new();
            while let Some(Ok(mut stream)) = secured.next().await {
                stream.write_all(b"hello").await.unwrap();
                open.push(tokio::spawn(async move {
                    // Says everything back.
                    let (mut read, mut write) = tokio::io::split(stream);
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                }));
            }
        };
        Self {
            address,
            files,
            authority,
            current,
            _folder: folder,
            _tasks: [
                AbortOnDropHandle::new(tokio::spawn(following)),
                AbortOnDropHandle::new(tokio::spawn(serving)),
            ],
        }
    }

    /// Connects as a client that trusts `server`, and waits for the greeting.
    async fn greeted(&self, server: &Authority, config: Offer) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(server.der().clone()).unwrap();
        let versions = match config.version {
            Version::New => &[&TLS13],
            Version::Old => &[&TLS12],
        };
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut tls = match config.identity {
            Some((chain, key, ..)) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        tls.alpn_protocols = config.alpn.iter().map(|name| name.to_vec()).collect();
        let tcp = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("manager.test").unwrap();
        let mut stream = TlsConnector::from(Arc::new(tls)).connect(name, tcp).await?;
        // With TLS 1.3 a refused certificate shows on the first read.
        let mut greeting = [0; 5];
        stream.read_exact(&mut greeting).await?;
        assert_eq!(&greeting, b"hello");
        Ok(stream)
    }
}

fn write(files: &TlsFiles, server: &Authority, clients: &Authority) {
    let (_, _, cert, key) = identity(server, ExtendedKeyUsagePurpose::ServerAuth, false);
    std::fs::write(&files.cert, cert).unwrap();
    std::fs::write(&files.key, key).unwrap();
    std::fs::write(&files.ca, clients.pem()).unwrap();
}

#[derive(Clone, Copy)]
enum Version {
    New,
    Old,
}

struct Offer {
    identity: Option<Identity>,
    version: Version,
    alpn: &'static [&'static [u8]],
}

fn with(identity: Identity) -> Offer {
    Offer {
        identity: Some(identity),
        version: Version::New,
        alpn: &[b"h2"],
    }
}

#[tokio::test]
async fn only_a_client_of_our_authority_gets_through() {
    let world = World::start().await;
    let ours = &world.authority;
    let right = world.greeted(ours, with(client(ours))).await;
    assert!(right.is_ok(), "{right:?}");
    let other = authority("two");
    let expired = identity(ours, ExtendedKeyUsagePurpose::ClientAuth, true);
    let server = identity(ours, ExtendedKeyUsagePurpose::ServerAuth, false);
    for (what, offer) in [
        (
            "without a certificate",
            Offer {
                identity: None,
                ..with(client(ours))
            },
        ),
        ("of another authority", with(client(&other))),
        ("that has expired", with(expired)),
        ("that is a server", with(server)),
        (
            "of TLS 1.2",
            Offer {
                version: Version::Old,
                ..with(client(ours))
            },
        ),
        (
            "of another protocol",
            Offer {
                alpn: &[b"http/1.1"],
                ..with(client(ours))
            },
        ),
        (
            "of no protocol",
            Offer {
                alpn: &[],
                ..with(client(ours))
            },
        ),
    ] {
        let outcome = world.greeted(ours, offer).await;
        assert!(outcome.is_err(), "a client {what} got through");
    }
    for protocol in [&b"h2"[..], b"kubebridge-data/1"] {
        let offer = Offer {
            alpn: match protocol {
                b"h2" => &[b"h2"],
                _ => &[b"kubebridge-data/1"],
            },
            ..with(client(ours))
        };
        let open = world.greeted(ours, offer).await.unwrap();
        assert_eq!(open.get_ref().1.alpn_protocol(), Some(protocol));
    }
    // The client is as careful: a server of another authority is none for it.
    assert!(world.greeted(&other, with(client(ours))).await.is_err());
    assert!(world.greeted(ours, with(client(ours))).await.is_ok());
}

#[tokio::test]
async fn one_that_never_finishes_its_handshake_keeps_nobody_out() {
    let world = World::start().await;
    let silent: Vec<_> =
        futures::future::join_all((0..HANDSHAKES / 2).map(|_| TcpStream::connect(world.address)))
            .await;
    assert!(silent.iter().all(Result::is_ok));
    let ours = &world.authority;
    assert!(world.greeted(ours, with(client(ours))).await.is_ok());
}

#[tokio::test]
async fn new_files_are_taken_while_streams_go_on() {
    let mut world = World::start().await;
    let ours = &world.authority;
    let mut open = world.greeted(ours, with(client(ours))).await.unwrap();
    let next = authority("next");
    write(&world.files, &next, &next);
    world.current.changed().await.unwrap();
    assert!(world.greeted(ours, with(client(ours))).await.is_err());
    assert!(world.greeted(&next, with(client(&next))).await.is_ok());
    open.write_all(b"still").await.unwrap();
    let mut said = [0; 5];
    open.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"still");
}

#[tokio::test]
async fn files_that_do_not_fit_together_are_told_at_start_and_passed_over_later() {
    let mut world = World::start().await;
    let files = world.files.clone();
    std::fs::write(&files.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let (text, code) = crate::failure::report(&files.load().unwrap_err());
    assert!(text.contains("server.key"), "{text}");
    assert_eq!(code, 78);
    for broken in [&files.cert, &files.ca] {
        let kept = std::fs::read(broken).unwrap();
        std::fs::write(broken, "no certificate").unwrap();
        let (text, _) = crate::failure::report(&files.load().unwrap_err());
        assert!(text.contains(&broken.display().to_string()), "{text}");
        std::fs::write(broken, kept).unwrap();
    }
    let ours = &world.authority;
    assert!(world.greeted(ours, with(client(ours))).await.is_ok());
    // Once they fit again they are used.
    write(&files, ours, ours);
    world.current.changed().await.unwrap();
}
