//! Sessions with a proxy, which change nothing on the machine.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::status::client::Session;
use crate::test_util::fake_cluster::{converse, program};
use crate::test_util::within;

async fn by_proxy() -> World {
    // What would need root or a helper fails here.
    World::new(|os, config| {
        config.mode = Mode::Proxy;
        os.failing = Some("take");
    })
    .await
}

async fn by_proxy_at(port: SocketAddr) -> World {
    World::new(|_, config| {
        config.mode = Mode::Proxy;
        config.proxy_listen = port;
    })
    .await
}

impl World {
    async fn session(&self) -> Session {
        let mut found = sessions(self.os.runtime.path()).await.unwrap();
        found.remove(0)
    }
}

/// Asks a proxy for a connection, and returns it with the first line of the answer.
async fn tunnel(proxy: &str, credentials: &str, to: &str) -> (TcpStream, String) {
    use base64::Engine as _;
    let basic = base64::engine::general_purpose::STANDARD.encode(credentials);
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let head = format!("CONNECT {to} HTTP/1.1\r\nProxy-Authorization: Basic {basic}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\n") {
        said.push(within("the head", stream.read_u8()).await.unwrap());
    }
    let said = String::from_utf8(said).unwrap();
    (stream, said.lines().next().unwrap().to_owned())
}

#[tokio::test]
async fn a_session_by_proxy_serves_programs_and_changes_nothing() {
    let mut world = by_proxy().await;
    let session = world.start().await;
    world.until_state("connected").await;

    let env = world.session().await.env().await.unwrap();
    let url = &env.variables["HTTPS_PROXY"];
    let (credentials, address) = url
        .strip_prefix("http://")
        .and_then(|url| url.split_once('@'))
        .unwrap();
    assert_eq!(address, env.address.to_string());
    let outside = program().await.to_string();
    let (stream, said) = tunnel(address, credentials, &outside).await;
    assert_eq!(said, "HTTP/1.1 200 Connection established");
    assert_eq!(converse(stream, "hello").await, "echo: hello");
    let (_, said) = tunnel(address, "kubebridge:wrong", &outside).await;
    assert!(said.starts_with("HTTP/1.1 407 "), "{said}");
    // A single label that is no Service is nobody's, whatever this machine says.
    let (_, said) = tunnel(address, credentials, "printer:80").await;
    assert!(said.starts_with("HTTP/1.1 502 "), "{said}");

    let target = "authors.default:80".parse().unwrap();
    let way = world.session().await.path(&target).await.unwrap();
    assert_eq!((way.steps[0].verdict.as_str(), way.steps.len()), ("ok", 3));
    assert!(way.steps[1].detail.contains("no routes are set"), "{way:?}");
    let status = world.status().await;
    let steps: Vec<_> = status.steps.iter().map(|one| one.step.as_str()).collect();
    let expected = [
        Step::Recover,
        Step::ReadDns,
        Step::Dial,
        Step::OpenSession,
        Step::Resolver,
        Step::Probe,
        Step::Proxy,
    ];
    assert_eq!(steps, expected.map(Step::label));
    assert_eq!(status.proxy.as_ref().unwrap().address, env.address);
    let text = crate::status::status_text(&status);
    let row = format!("proxy             {address}, SOCKS5 and HTTP CONNECT");
    assert!(text.lines().any(|line| line == row), "{text}");
    // The password is told to nobody who did not ask for it.
    let (_, password) = credentials.split_once(':').unwrap();
    assert!(!format!("{status:?}").contains(password));

    world.stop.send(Stop::Disconnect).await.unwrap();
    within("the end", session).await.unwrap().unwrap();
    assert_eq!(world.os.deeds(), []);
    assert!(TcpStream::connect(address).await.is_err());
    assert!(sessions(world.os.runtime.path()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_port_that_is_named_is_the_proxys_and_one_that_is_taken_says_who_has_it() {
    // A port that was free a moment ago; nobody else asks for that one.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap();
    let mut refused = by_proxy_at(port).await;
    let failure = refused.start().await.await.unwrap().unwrap_err();
    assert_eq!(failure.exit, Exit::Busy);
    let words = format!("{:#}", failure.error);
    assert!(
        words.contains(&format!("{port} is in use by another program")),
        "{words}"
    );
    assert!(failure.hint.unwrap().contains(&format!(":{}", port.port())));
    drop(free);

    let mut first = by_proxy_at(port).await;
    let running = first.start().await;
    first.until_state("connected").await;
    let status = first.status().await;
    assert_eq!(status.proxy.unwrap().address, port);

    // The other session of the same user is asked where its proxy is.
    let mut second = by_proxy_at(port).await;
    second.os = Arc::clone(&first.os);
    let failure = second.start().await.await.unwrap().unwrap_err();
    let words = format!("{:#}", failure.error);
    let holder = format!("session {} has its proxy there", status.session);
    assert!(
        failure.exit == Exit::Busy && words.contains(&holder),
        "{words}"
    );
    first.stop.send(Stop::Disconnect).await.unwrap();
    within("the end", running).await.unwrap().unwrap();
}

#[tokio::test]
async fn ports_are_forwarded_by_a_session_and_go_with_the_command() {
    let mut world = by_proxy().await;
    let session = world.start().await;
    world.until_state("connected").await;

    let none = ["printer:80=0".parse().unwrap()];
    let refused = world.session().await.forward(&none).await.unwrap_err();
    assert_eq!(
        refused.error.to_string(),
        "there is no printer in the cluster"
    );
    let ports = ["authors:80=0".parse().unwrap()];
    let forwarding = world.session().await.forward(&ports).await.unwrap();
    let port = forwarding.report.forwards[0].address;
    assert!(TcpStream::connect(port).await.is_ok());

    drop(forwarding);
    within("the end of the port", async {
        while TcpStream::connect(port).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let again = world.session().await.forward(&ports).await;
    let mut again = again.unwrap();
    world.stop.send(Stop::Disconnect).await.unwrap();
    within("the end", session).await.unwrap().unwrap();
    assert_eq!(again.next().await.unwrap(), None);
}

#[tokio::test]
async fn a_session_without_a_proxy_has_no_variables_for_one() {
    let mut world = World::new(|_, _| {}).await;
    let session = world.start().await;
    world.until_state("connected").await;

    let failure = world.session().await.env().await.unwrap_err();

    assert_eq!(failure.error.to_string(), "the session has no proxy");
    assert!(failure.hint.unwrap().contains("--mode proxy"));
    session.abort();
}
