use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::test_util::loopback;

/// An HTTP proxy that answers CONNECT as it is told and connects if that is success.
struct Proxy {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    async fn answering(answer: &'static str) -> Self {
        let listener = TcpListener::bind(loopback()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            let mut tasks = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tasks.spawn(tunnel(stream, answer, Arc::clone(&log)));
            }
        });
        Self {
            address,
            requests,
            _task: AbortOnDropHandle::new(task),
        }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    fn settings(&self, world: &World, no_proxy: Option<&str>) -> Settings {
        Settings {
            proxy: ProxySettings {
                https_proxy: Some(format!("http://user:secret@{}", self.address)),
                no_proxy: no_proxy.map(str::to_owned),
                ..ProxySettings::default()
            },
            ..world.settings.clone()
        }
    }
}

async fn tunnel(mut near: TcpStream, answer: &str, log: Arc<Mutex<Vec<String>>>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(near.read_u8().await.unwrap());
    }
    let request = String::from_utf8(request).unwrap();
    let target = request.split(' ').nth(1).unwrap().to_owned();
    log.lock().push(request);
    near.write_all(answer.as_bytes()).await.unwrap();
    if answer.contains(" 200 ") {
        let mut far = TcpStream::connect(target).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    }
}

const CONNECTED: &str = "HTTP/1.1 200 Connection established\r\nVia: proxy\r\n\r\n";

#[tokio::test]
async fn doh_goes_through_the_proxy_by_address_and_with_the_users_password() {
    let world = World::new();
    let server = world.server(Protocol::Doh, answer()).await;
    let proxy = Proxy::answering(CONNECTED).await;
    let settings = proxy.settings(&world, Some("other.test,10.0.0.0/8"));
    let upstream = connect(&spec(Protocol::Doh, server.address), &settings).unwrap();

    ask_ok(&upstream, "a.test").await;
    ask_ok(&upstream, "a.test").await;

    let target = server.address;
    assert_eq!(
        proxy.requests(),
        [format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\
             Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n\r\n"
        )]
    );
    assert_eq!(server.log().hellos[0].0.as_deref(), Some(NAME));
    assert!(!format!("{settings:?} {upstream:?}", upstream = settings.proxy).contains("secret"));
}

#[tokio::test]
async fn a_server_listed_by_name_or_address_and_dot_at_all_times_bypass_the_proxy() {
    let world = World::new();
    let proxy = Proxy::answering(CONNECTED).await;
    for (protocol, no_proxy) in [
        (Protocol::Doh, "dns.test"),
        (Protocol::Doh, ".test"),
        (Protocol::Doh, "127.0.0.1"),
        (Protocol::Doh, "10.0.0.0/8, 127.0.0.0/8"),
        (Protocol::Doh, "*"),
        (Protocol::Dot, ""),
    ] {
        let server = world.server(protocol, answer()).await;
        let settings = proxy.settings(&world, Some(no_proxy));
        let upstream = connect(&spec(protocol, server.address), &settings).unwrap();
        ask_ok(&upstream, "a.test").await;
    }
    assert!(proxy.requests().is_empty());
}

#[tokio::test]
async fn a_proxy_that_refuses_is_an_error_that_says_what_to_do_and_never_bypassed() {
    for (said, expected, hint) in [
        (
            "HTTP/1.1 403 Forbidden\r\n\r\n",
            ProxyRefusal::Status(403),
            "no_proxy",
        ),
        (
            "HTTP/1.1 407 Authenticate\r\nProxy-Authenticate: Basic\r\n\r\n",
            ProxyRefusal::Status(407),
            "another user and password",
        ),
        (
            "HTTP/1.0 502 Bad Gateway\r\n\r\nsorry",
            ProxyRefusal::Status(502),
            "502",
        ),
        (
            "SSH-2.0-OpenSSH_9.2\r\n\r\n",
            ProxyRefusal::NotHttp,
            "speaks no HTTP",
        ),
    ] {
        let world = World::new();
        let server = world.server(Protocol::Doh, answer()).await;
        let proxy = Proxy::answering(said).await;
        let settings = proxy.settings(&world, None);
        let upstream = connect(&spec(Protocol::Doh, server.address), &settings).unwrap();

        let error = ask(&upstream, "a.test").await.unwrap_err();

        assert!(error.to_string().contains(hint), "{error}");
        match error {
            ExchangeError::Proxy { refusal, .. } => assert_eq!(refusal, expected),
            other => panic!("{other}"),
        }
        assert_eq!(server.log().connections, 0);
    }
}

#[tokio::test]
async fn a_proxy_that_is_not_there_is_told_from_the_upstream() {
    let world = World::new();
    let server = world.server(Protocol::Doh, answer()).await;
    let proxy = Proxy::answering(CONNECTED).await;
    let settings = proxy.settings(&world, None);
    drop(proxy);
    tokio::task::yield_now().await;
    let upstream = connect(&spec(Protocol::Doh, server.address), &settings).unwrap();
    let error = ask(&upstream, "a.test").await.unwrap_err();
    let refused = std::io::ErrorKind::ConnectionRefused;
    match error {
        ExchangeError::Proxy { refusal, .. } => {
            assert_eq!(refusal, ProxyRefusal::Unreachable(refused));
        }
        other => panic!("{other}"),
    }
}
