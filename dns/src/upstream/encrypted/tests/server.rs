//! DoT and DoH servers that do what a closure says, and remember what they have seen.

use std::sync::Arc;

use bytes::Bytes;
use h2::server::SendResponse;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{HandshakeKind, ServerConfig, SupportedProtocolVersion};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::framing::frame;
use crate::test_util::loopback;

pub(super) type Certificate = (CertificateDer<'static>, PrivateKeyDer<'static>);

pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Validity {
    Now,
    Past,
    Future,
    /// Valid until this long after the epoch.
    Until(Duration),
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "test CA");
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    pub(super) fn certify(&self, name: &str, validity: Validity) -> Certificate {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        match validity {
            Validity::Now => {}
            Validity::Past => params.not_after = date_time_ymd(2020, 1, 1),
            Validity::Future => params.not_before = date_time_ymd(3000, 1, 1),
            Validity::Until(end) => params.not_after = date_time_ymd(1970, 1, 1) + end,
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        (certificate.der().clone(), key)
    }
}

/// A question as it came.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// Which connection it came on, counted from 0.
    pub(super) connection: usize,
    /// How many came before it on the server.
    pub(super) number: usize,
    pub(super) message: Vec<u8>,
    /// The request of DoH.
    pub(super) request: Option<String>,
}

/// What the server does with a question.
#[derive(Debug, Clone)]
pub(super) enum Reaction {
    Answer(Answer),
    After(Duration, Answer),
    Bytes(Vec<u8>),
    Silence,
    /// Closes the connection.
    Close,
    /// Sends half of the answer and closes the connection.
    Cut,
    /// Answers with an HTTP status, type and body.
    Http(u16, &'static str, Vec<u8>),
    /// Refuses the HTTP request unseen.
    Refuse,
    /// Answers, and lets the connection take no more requests.
    LastAnswer(Answer),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    pub(super) connections: usize,
    pub(super) handshakes: usize,
    pub(super) resumed: usize,
    pub(super) asked: Vec<Asked>,
    /// The server names and protocols asked for.
    pub(super) hellos: Vec<(Option<String>, Option<Vec<u8>>)>,
    /// The reasons for which requests were taken back.
    pub(super) resets: Vec<h2::Reason>,
    pub(super) closed: usize,
}

type Script = dyn Fn(&Asked) -> Reaction + Send + Sync;

/// A running server; dropping it closes its sockets.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    log: watch::Sender<Log>,
    _task: AbortOnDropHandle<()>,
}

/// How a server differs from a right one.
pub(super) struct Setup {
    pub(super) protocol: Protocol,
    pub(super) versions: &'static [&'static SupportedProtocolVersion],
    pub(super) alpn: &'static [&'static [u8]],
    /// Connections that end with GOAWAY before any request is processed.
    pub(super) going_away: usize,
}

impl Setup {
    pub(super) fn right(protocol: Protocol) -> Self {
        let alpn: &[&[u8]] = match protocol {
            Protocol::Dot => &[b"dot"],
            Protocol::Doh => &[b"h2"],
            Protocol::Do53 => panic!("plain DNS has no TLS"),
        };
        Self {
            protocol,
            versions: rustls::ALL_VERSIONS,
            alpn,
            going_away: 0,
        }
    }
}

impl Server {
    pub(super) async fn start<F>(protocol: Protocol, certificate: Certificate, script: F) -> Self
    where
        F: Fn(&Asked) -> Reaction + Send + Sync + 'static,
    {
        Self::with(Setup::right(protocol), certificate, script).await
    }

    pub(super) async fn with<F>(setup: Setup, certificate: Certificate, script: F) -> Self
    where
        F: Fn(&Asked) -> Reaction + Send + Sync + 'static,
    {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider);
        let mut config = builder
            .with_protocol_versions(setup.versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.0], certificate.1)
            .unwrap();
        config.alpn_protocols = setup.alpn.iter().map(|id| id.to_vec()).collect();
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let log = watch::Sender::new(Log::default());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let script: Arc<Script> = Arc::new(script);
        let task = run(listener, acceptor, setup, script, log.clone());
        Self {
            address,
            log,
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        }
    }

    pub(super) fn log(&self) -> Log {
        self.log.borrow().clone()
    }

    /// Waits until the server has seen this.
    pub(super) async fn sees(&self, what: impl FnMut(&Log) -> bool) {
        self.log.subscribe().wait_for(what).await.map(drop).unwrap();
    }
}

async fn run(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    setup: Setup,
    script: Arc<Script>,
    log: watch::Sender<Log>,
) {
    let mut tasks = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let mut number = 0;
        log.send_modify(|log| {
            number = log.connections;
            log.connections += 1;
        });
        let (acceptor, log) = (acceptor.clone(), log.clone());
        let script = Arc::clone(&script);
        let (protocol, is_going) = (setup.protocol, number < setup.going_away);
        tasks.spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            log.send_modify(|log| {
                let tls = stream.get_ref().1;
                log.handshakes += 1;
                log.resumed += usize::from(tls.handshake_kind() == Some(HandshakeKind::Resumed));
                let alpn = tls.alpn_protocol().map(<[u8]>::to_vec);
                log.hellos
                    .push((tls.server_name().map(str::to_owned), alpn));
            });
            let connection = Session {
                number,
                script,
                log: log.clone(),
            };
            match protocol {
                Protocol::Doh if is_going => go_away(stream).await,
                Protocol::Doh => connection.doh(stream).await,
                Protocol::Dot | Protocol::Do53 => connection.dot(stream).await,
            }
            log.send_modify(|log| log.closed += 1);
        });
    }
}

#[derive(Clone)]
struct Session {
    number: usize,
    script: Arc<Script>,
    log: watch::Sender<Log>,
}

impl Session {
    fn react(&self, message: Vec<u8>, request: Option<String>) -> Reaction {
        let mut asked = Asked {
            connection: self.number,
            number: 0,
            message,
            request,
        };
        self.log.send_modify(|log| {
            asked.number = log.asked.len();
            log.asked.push(asked.clone());
        });
        (self.script)(&asked)
    }

    async fn dot(self, stream: TlsStream<TcpStream>) {
        let (mut input, output) = tokio::io::split(stream);
        let output = Arc::new(Mutex::new(output));
        let mut tasks = JoinSet::new();
        while let Ok(length) = input.read_u16().await {
            let mut message = vec![0; usize::from(length)];
            if input.read_exact(&mut message).await.is_err() {
                return;
            }
            let reply = |answer: &Answer| frame(&answer.reply_to(&message)).unwrap();
            if asks_for_the_root(&message) {
                // A probe, as a slow machine brings about: no question of the test's.
                let _ = output.lock().await.write_all(&reply(&address())).await;
                continue;
            }
            match self.react(message.clone(), None) {
                Reaction::Answer(answer) => {
                    let _ = output.lock().await.write_all(&reply(&answer)).await;
                }
                Reaction::After(delay, answer) => {
                    let (output, reply) = (Arc::clone(&output), reply(&answer));
                    tasks.spawn(async move {
                        sleep(delay).await;
                        let _ = output.lock().await.write_all(&reply).await;
                    });
                }
                Reaction::Bytes(bytes) => {
                    let _ = output.lock().await.write_all(&bytes).await;
                }
                Reaction::Cut => {
                    let reply = reply(&address());
                    let half = &reply[..reply.len() / 2];
                    let _ = output.lock().await.write_all(half).await;
                    return;
                }
                Reaction::Silence => {}
                Reaction::Close => return,
                Reaction::Http(..) | Reaction::Refuse | Reaction::LastAnswer(_) => {
                    panic!("not HTTP")
                }
            }
        }
    }

    async fn doh(self, stream: TlsStream<TcpStream>) {
        let Ok(mut connection) = h2::server::handshake(stream).await else {
            return;
        };
        let mut tasks = JoinSet::new();
        let (ended, mut end) = watch::channel(0);
        loop {
            let (request, respond) = tokio::select! {
                accepted = connection.accept() => match accepted {
                    Some(Ok(accepted)) => accepted,
                    Some(Err(_)) | None => return,
                },
                _ = end.changed() => {
                    if *end.borrow() == 1 {
                        return;
                    }
                    connection.graceful_shutdown();
                    continue;
                }
            };
            let (session, ended) = (self.clone(), ended.clone());
            tasks.spawn(async move {
                let asked = format!("{} {}", request.method(), request.uri());
                let kind = request.headers().get("content-type").cloned();
                let (kind, mut body) = (kind.unwrap(), request.into_body());
                let mut message = Vec::new();
                while let Some(Ok(part)) = body.data().await {
                    message.extend_from_slice(&part);
                }
                let asked = format!("{asked} {}", kind.to_str().unwrap());
                let reaction = session.react(message.clone(), Some(asked));
                session.respond(reaction, &message, respond, &ended).await;
            });
        }
    }

    async fn respond(
        &self,
        reaction: Reaction,
        message: &[u8],
        mut respond: SendResponse<Bytes>,
        ended: &watch::Sender<usize>,
    ) {
        const TYPE: &str = "application/dns-message";
        match reaction {
            Reaction::Answer(answer) => send(respond, 200, TYPE, answer.reply_to(message)),
            Reaction::After(delay, answer) => {
                sleep(delay).await;
                send(respond, 200, TYPE, answer.reply_to(message));
            }
            Reaction::Bytes(bytes) => send(respond, 200, TYPE, bytes),
            Reaction::Http(status, kind, body) => send(respond, status, kind, body),
            Reaction::Silence => {
                let reset = std::future::poll_fn(|context| respond.poll_reset(context)).await;
                if let Ok(reason) = reset {
                    self.log.send_modify(|log| log.resets.push(reason));
                }
            }
            Reaction::Refuse => respond.send_reset(h2::Reason::REFUSED_STREAM),
            Reaction::Close => {
                let _ = ended.send(1);
                // The stream ends with its connection, not before.
                std::future::pending::<()>().await;
            }
            Reaction::LastAnswer(answer) => {
                let _ = ended.send(2);
                send(respond, 200, TYPE, answer.reply_to(message));
            }
            Reaction::Cut => {
                let response = http::Response::builder().header("content-type", TYPE);
                let mut body = respond
                    .send_response(response.body(()).unwrap(), false)
                    .unwrap();
                let half = Bytes::copy_from_slice(&message[..12]);
                body.send_data(half, false).unwrap();
                // Long enough for the half to arrive first.
                sleep(Duration::from_millis(50)).await;
                let _ = ended.send(1);
                std::future::pending::<()>().await;
            }
        }
    }
}

fn asks_for_the_root(message: &[u8]) -> bool {
    message.get(12) == Some(&0)
}

/// Takes a request and says that no request was processed, as a server does that shuts down.
pub(super) async fn go_away(mut stream: TlsStream<TcpStream>) {
    const PREFACE: usize = 24;
    const HEADERS: u8 = 1;
    stream.write_all(b"\0\0\0\x04\0\0\0\0\0").await.unwrap();
    stream.read_exact(&mut [0; PREFACE]).await.unwrap();
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).await.unwrap();
        let length = usize::from(header[1]) << 8 | usize::from(header[2]);
        stream.read_exact(&mut vec![0; length]).await.unwrap();
        if header[3] == HEADERS {
            break;
        }
    }
    let frame = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
    stream.write_all(frame).await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

fn send(mut respond: SendResponse<Bytes>, status: u16, kind: &str, body: Vec<u8>) {
    let response = http::Response::builder();
    let response = response.status(status).header("content-type", kind);
    // A client that is gone is no concern of the server's.
    if let Ok(mut stream) = respond.send_response(response.body(()).unwrap(), false) {
        let _ = stream.send_data(body.into(), true);
    }
}
