use tokio::io::AsyncReadExt;
use tokio::net::UdpSocket;

use super::*;
use crate::connect::ANY_PORT;
use crate::test_util::fake_cluster::{Cluster, Names, converse, program};
use crate::test_util::within;

async fn proxy() -> (Proxy, SocketAddr) {
    let program = program().await;
    let password = Password::known("secret".to_owned());
    let opener = Arc::new(Cluster { program });
    let proxy = Proxy::start(ANY_PORT, password, opener, Arc::new(Names))
        .await
        .unwrap();
    (proxy, program)
}

/// Says hello with a password and asks; gives what came back of both.
async fn socks(proxy: &Proxy, password: &str, request: &[u8]) -> (TcpStream, Vec<u8>) {
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    let mut hello = vec![5, 2, 0, 2, 1, 10];
    hello.extend(b"kubebridge");
    hello.push(u8::try_from(password.len()).unwrap());
    hello.extend(password.as_bytes());
    hello.extend(request);
    stream.write_all(&hello).await.unwrap();
    let mut said = vec![0; 4];
    within("the verdict", stream.read_exact(&mut said))
        .await
        .unwrap();
    if said[3] == 0 {
        let mut reply = vec![0; 10];
        within("the reply", stream.read_exact(&mut reply))
            .await
            .unwrap();
        said.extend(reply);
    }
    (stream, said)
}

fn to_name(command: u8, name: &str, port: u16) -> Vec<u8> {
    let mut request = vec![5, command, 0, 3, u8::try_from(name.len()).unwrap()];
    request.extend(name.as_bytes());
    request.extend(port.to_be_bytes());
    request
}

/// Sends, half-closes, and reads to the end.
#[tokio::test]
async fn socks_connects_by_name_and_goes_on_to_the_next_address() {
    let (proxy, _) = proxy().await;

    let (stream, said) = socks(&proxy, "secret", &to_name(1, "authors.default", 80)).await;

    assert_eq!(said, [5, 2, 1, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(converse(stream, "hello").await, "echo: hello");
    within("the end", proxy.stop()).await;
}

#[tokio::test]
async fn names_that_are_not_the_clusters_are_dialled_from_here() {
    let (proxy, program) = proxy().await;

    let request = to_name(1, "outside.example", program.port());
    let (stream, said) = socks(&proxy, "secret", &request).await;

    assert_eq!(said[5], 0, "{said:?}");
    assert_eq!(converse(stream, "hello").await, "echo: hello");
}

#[tokio::test]
async fn every_way_of_not_being_connected_has_its_code() {
    let (proxy, _) = proxy().await;
    for (command, name, code) in [
        (1, "10.96.0.2", 5),
        (1, "10.96.0.3", 2),
        (1, "10.96.0.4", 6),
        (1, "10.96.0.5", 3),
        (1, "10.96.0.6", 4),
        (1, "nowhere.example", 4),
        (1, "broken.example", 4),
        (1, "a..b", 8),
        (2, "authors.default", 7),
    ] {
        let (_, said) = socks(&proxy, "secret", &to_name(command, name, 80)).await;
        assert_eq!(said[5], code, "{command} {name}");
    }
}

#[tokio::test]
async fn nobody_is_served_without_the_password() {
    let (proxy, _) = proxy().await;
    let request = to_name(1, "authors.default", 80);
    for password in ["", "Secret", "secret1"] {
        let (_, said) = socks(&proxy, password, &request).await;
        assert_eq!(said, [5, 2, 1, 1], "{password}");
    }
    // A client that offers no password is told that nothing else will do.
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(&[5, 1, 0]).await.unwrap();
    let mut said = Vec::new();
    within("the verdict", stream.read_to_end(&mut said))
        .await
        .unwrap();
    assert_eq!(said, [5, 0xff]);
}

async fn http(proxy: &Proxy, head: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    while !said.ends_with(b"\r\n\r\n") {
        said.push(within("the head", stream.read_u8()).await.unwrap());
    }
    (stream, String::from_utf8(said).unwrap())
}

/// `kubebridge:secret`
const CREDENTIALS: &str = "Proxy-Authorization: Basic a3ViZWJyaWRnZTpzZWNyZXQ=";

#[tokio::test]
async fn http_connects_and_says_why_it_does_not() {
    let (proxy, _) = proxy().await;
    let head = |target: &str, field: &str| format!("CONNECT {target} HTTP/1.1\r\n{field}\r\n\r\n");

    let (stream, said) = http(&proxy, &head("authors.default:80", CREDENTIALS)).await;
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    assert_eq!(converse(stream, "hello").await, "echo: hello");

    for (target, field, line, words) in [
        (
            "10.96.0.2:80",
            CREDENTIALS,
            "502 Bad",
            "10.96.0.2:80: connection refused\n",
        ),
        (
            "10.96.0.3:80",
            CREDENTIALS,
            "403 For",
            "10.96.0.3:80: the traffic-manager does not allow it\n",
        ),
        (
            "10.96.0.4:80",
            CREDENTIALS,
            "504 Gat",
            "10.96.0.4:80: nothing answers\n",
        ),
        (
            "authors.default:80",
            "Host: x",
            "407 Pro",
            "the password is in the output of `kubebridge env`\n",
        ),
    ] {
        let (mut stream, said) = http(&proxy, &head(target, field)).await;
        assert!(
            said.starts_with(&format!("HTTP/1.1 {line}")),
            "{target}: {said}"
        );
        let mut body = String::new();
        within("the body", stream.read_to_string(&mut body))
            .await
            .unwrap();
        assert_eq!(body, words);
    }
}

#[tokio::test]
async fn datagrams_go_to_each_destination_for_the_first_sender_alone() {
    let (proxy, _) = proxy().await;
    let (control, said) = socks(&proxy, "secret", &[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    assert_eq!(said[5], 0, "{said:?}");
    let port = u16::from_be_bytes([said[12], said[13]]);
    let [client, other] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0"));
    let (client, other) = (client.await.unwrap(), other.await.unwrap());
    client.connect(("127.0.0.1", port)).await.unwrap();
    let question = |name: &str, data: &str| {
        let mut packet = vec![0, 0, 0, 3, u8::try_from(name.len()).unwrap()];
        packet.extend(name.as_bytes());
        packet.extend([0, 53]);
        packet.extend(data.as_bytes());
        packet
    };
    let mut packet = [0; 1500];

    for (name, address) in [("10.96.0.1", "10.96.0.1:53"), ("10.96.0.9", "10.96.0.9:53")] {
        client.send(&question(name, "what")).await.unwrap();
        let count = within("the answer", client.recv(&mut packet))
            .await
            .unwrap();
        let (from, at) = socks::read_datagram(&packet[..count]).unwrap();
        assert_eq!(from.to_string(), address);
        assert_eq!(&packet[at..count], format!("what of {address}").as_bytes());
    }
    // Another sender is not heard: the next answer is to the next question of the first.
    other
        .send_to(&question("10.96.0.1", "mine"), ("127.0.0.1", port))
        .await
        .unwrap();
    client.send(&question("10.96.0.1", "again")).await.unwrap();
    let count = within("the answer", client.recv(&mut packet))
        .await
        .unwrap();
    assert!(packet[..count].ends_with(b"again of 10.96.0.1:53"));

    drop(control);
    // Its port is free once the association has ended with the connection.
    within("the end of the association", async {
        while UdpSocket::bind(("127.0.0.1", port)).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
