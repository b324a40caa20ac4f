//! Ports on loopback that lead into a cluster without packets.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

use super::*;
use crate::test_util::fake_cluster::{Cluster, Names, converse, program};
use crate::test_util::within;

struct World {
    ports: Vec<SocketAddr>,
    troubles: mpsc::Receiver<String>,
    over: CancellationToken,
    serving: JoinHandle<()>,
}

impl World {
    async fn new(wanted: &[&str]) -> Self {
        let wanted: Vec<_> = wanted.iter().map(|text| text.parse().unwrap()).collect();
        let forwards = Forwards::listen(&wanted, &Names).await.unwrap();
        let report = forwards.report("0a1b2c3d");
        let (tell, troubles) = mpsc::channel(16);
        let over = CancellationToken::new();
        let opener = Arc::new(Cluster {
            program: program().await,
        });
        let serving = forwards.serve(opener, Arc::new(Names), tell, over.clone());
        Self {
            ports: report.forwards.iter().map(|one| one.address).collect(),
            troubles,
            over,
            serving: tokio::spawn(serving),
        }
    }
}

/// Reads to the end, and says how that was.
async fn end(stream: &mut TcpStream) -> io::Result<usize> {
    within("the end", stream.read_to_end(&mut Vec::new())).await
}

#[test]
fn a_forward_is_a_service_a_port_and_maybe_another_port_here() {
    for (text, read) in [
        ("authors:9080", Some("authors:9080=9080")),
        ("authors.shop:9080=80", Some("authors.shop:9080=80")),
        ("authors:9080=0", Some("authors:9080=0")),
        ("[fd00::1]:443=8443", Some("[fd00::1]:443=8443")),
        ("10.96.0.1:443", Some("10.96.0.1:443=443")),
        ("authors", None),
        ("authors:0", None),
        ("authors:80=", None),
        ("authors:80=65536", None),
        ("authors:80=1=2", None),
    ] {
        let wanted = text.parse::<Wanted>().ok();
        let words = wanted.as_ref().map(ToString::to_string);
        assert_eq!(words.as_deref(), read, "{text}");
        if let Some(wanted) = wanted {
            assert_eq!(wanted.to_string().parse(), Ok(wanted), "{text}");
        }
    }
}

#[tokio::test]
async fn ports_lead_to_the_first_address_that_answers() {
    let world = World::new(&["authors.default:80=0", "10.96.0.1:80=0"]).await;

    for port in &world.ports {
        let stream = TcpStream::connect(port).await.unwrap();
        assert_eq!(converse(stream, "hello").await, "echo: hello");
    }
}

#[tokio::test]
async fn a_connection_that_leads_nowhere_is_reset_and_told() {
    let mut world = World::new(&["10.96.0.2:80=0", "10.96.0.3:80=0", "broken.example:80=0"]).await;

    for (port, words) in world.ports.clone().into_iter().zip([
        "10.96.0.2:80: 10.96.0.2:80: ",
        "10.96.0.3:80: 10.96.0.3:80: ",
        "broken.example:80: the name could not be resolved",
    ]) {
        let mut stream = TcpStream::connect(port).await.unwrap();
        let error = end(&mut stream).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let told = within("the trouble", world.troubles.recv()).await.unwrap();
        assert!(told.starts_with(words), "{told}");
    }
}

#[tokio::test]
async fn what_is_open_at_the_end_is_reset_and_the_ports_are_free() {
    let world = World::new(&["authors.default:80=0"]).await;
    let mut stream = TcpStream::connect(world.ports[0]).await.unwrap();
    stream.write_all(b"begun").await.unwrap();

    world.over.cancel();

    within("the end", world.serving).await.unwrap();
    let error = end(&mut stream).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let refused = TcpStream::connect(world.ports[0]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_busy_port_is_exit_73_and_none_listens() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port();
    let wanted = [
        "authors.default:80=0".to_owned(),
        format!("authors.default:80={port}"),
    ];
    let wanted = wanted.map(|text| text.parse().unwrap());

    let failure = Forwards::listen(&wanted, &Names).await.unwrap_err();

    assert_eq!(failure.exit, Exit::Busy);
    let said = failure.to_string();
    let begin = format!("listening on 127.0.0.1:{port}: ");
    assert!(said.starts_with(&begin), "{said}");
    assert!(
        said.contains("authors.default:80=0 takes any free port"),
        "{said}"
    );
}

#[tokio::test]
async fn names_that_are_not_of_the_cluster_are_refused_at_once() {
    for (text, exit, words) in [
        (
            "nowhere.example:80=0",
            Exit::Other,
            "there is no nowhere.example in the cluster",
        ),
        (
            "outside.example:80=0",
            Exit::Usage,
            "outside.example is not a name of the cluster",
        ),
    ] {
        let failure = Forwards::listen(&[text.parse().unwrap()], &Names)
            .await
            .unwrap_err();
        assert_eq!(
            (failure.exit, failure.error.to_string().as_str()),
            (exit, words)
        );
    }
    let many = vec!["authors.default:80=0".parse().unwrap(); MOST + 1];
    let failure = Forwards::listen(&many, &Names).await.unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
}
