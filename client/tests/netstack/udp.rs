//! Datagrams, echoes and the resolver, asked by the kernel's own sockets and programs.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::laptop::{Laptop, RESOLVER, on_a_laptop, on_a_laptop_with_mtu, run, soon};

/// A server on the far side that says everything back, and where the laptop finds it.
async fn mirror() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut buffer = vec![0; 65_535];
        loop {
            let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
            socket.send_to(&buffer[..length], peer).await.unwrap();
        }
    });
    port
}

/// Opens a socket of the laptop.
async fn connect(to: SocketAddr) -> UdpSocket {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).await.unwrap();
    socket.connect(to).await.unwrap();
    socket
}

async fn exchange(socket: &UdpSocket, datagram: &[u8]) -> Vec<u8> {
    socket.send(datagram).await.unwrap();
    let mut buffer = vec![0; 65_535];
    let length = soon("an answer", socket.recv(&mut buffer)).await.unwrap();
    buffer.truncate(length);
    buffer
}

async fn all_sizes(_laptop: Laptop) {
    let port = mirror().await;
    for to in ["10.96.0.1", "fd00:96::1"] {
        let socket = connect((to.parse::<std::net::IpAddr>().unwrap(), port).into()).await;
        for length in [0, 1, 1472, 1473, 15_972, 15_973, 40_000, 65_507] {
            let datagram: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();

            let answer = exchange(&socket, &datagram).await;

            assert!(
                answer == datagram,
                "{to}: {length} octets changed on the way"
            );
        }
    }
}

#[test]
fn f6_datagrams_of_all_sizes_go_both_ways_in_either_family() {
    let test = "udp::f6_datagrams_of_all_sizes_go_both_ways_in_either_family";
    on_a_laptop(test, all_sizes);
}

#[test]
fn f6_datagrams_of_all_sizes_go_both_ways_at_the_smallest_mtu() {
    let test = "udp::f6_datagrams_of_all_sizes_go_both_ways_at_the_smallest_mtu";
    on_a_laptop_with_mtu(test, 1500, all_sizes);
}

#[test]
fn f6_a_socket_whose_datagrams_are_refused_is_told() {
    let test = "udp::f6_a_socket_whose_datagrams_are_refused_is_told";
    on_a_laptop(test, async |_laptop| {
        for (to, expected) in [
            ("10.96.0.245:9", ErrorKind::ConnectionRefused),
            ("[fd00:96::f5]:9", ErrorKind::ConnectionRefused),
            ("10.96.0.243:9", ErrorKind::HostUnreachable),
            ("10.97.0.1:9", ErrorKind::HostUnreachable),
            ("198.19.248.2:54", ErrorKind::ConnectionRefused),
        ] {
            let socket = connect(to.parse().unwrap()).await;
            socket.send(b"hello").await.unwrap();
            // Only a hard error is told to a socket that did not ask for more.
            if expected == ErrorKind::HostUnreachable && to.starts_with("10.97") {
                continue;
            }
            let error = soon("the refusal", socket.recv(&mut [0]))
                .await
                .unwrap_err();

            assert_eq!(error.kind(), expected, "{to}");
        }
    });
}

#[test]
fn f6_the_resolver_answers_by_udp_and_tcp_and_nothing_is_bound() {
    let test = "udp::f6_the_resolver_answers_by_udp_and_tcp_and_nothing_is_bound";
    on_a_laptop(test, async |_laptop| {
        let question = [b"question with a header", &[7; 200][..]].concat();
        let socket = connect(RESOLVER).await;
        assert_eq!(exchange(&socket, &question).await, question);

        let mut stream = soon("the resolver", TcpStream::connect(RESOLVER))
            .await
            .unwrap();
        for _ in 0..3 {
            stream.write_u16(question.len() as u16).await.unwrap();
            stream.write_all(&question).await.unwrap();
            let mut answer = vec![0; 2 + question.len()];
            soon("an answer", stream.read_exact(&mut answer))
                .await
                .unwrap();
            assert_eq!(answer[2..], question);
        }
        stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        soon("the end", stream.read_to_end(&mut rest))
            .await
            .unwrap();
        assert_eq!(rest, b"");

        let bound = run("ss -Hlnut 'sport = :53'");
        assert_eq!(bound, "");
    });
}

#[test]
fn f7_echoes_are_real_or_prohibited() {
    on_a_laptop("udp::f7_echoes_are_real_or_prohibited", async |_laptop| {
        for to in ["10.96.0.1", "fd00:96::1", "198.19.248.2"] {
            let said = run(&format!("ping -n -c 3 -i 0.2 -W 20 {to}"));
            assert!(said.contains("3 received"), "{said}");
        }
        for to in ["10.96.0.243", "fd00:96::f3"] {
            let said = run(&format!("ping -n -c 1 -W 20 {to} || true"));
            assert!(said.contains("0 received"), "{said}");
            let words = ["Packet filtered", "Administratively prohibited"];
            assert!(words.iter().any(|word| said.contains(word)), "{said}");
        }
        let said = run("ping -n -c 1 -s 40000 -W 20 10.96.0.1");
        assert!(said.contains("1 received"), "{said}");
    });
}
