use std::future::poll_fn;
use std::task::Poll;

use kubebridge_proto::flow::{Datagrams as _, Local as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// How long anything may take that a test waits for.
const PATIENCE: Duration = Duration::from_secs(120);

async fn within<T>(what: &str, coming: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, coming).await {
        Ok(came) => came,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

async fn pair(address: &str) -> (flow::Socket, tokio::net::TcpStream) {
    let listener = TcpListener::bind((address, 0)).await.unwrap();
    let to = listener.local_addr().unwrap();
    let (near, far) = tokio::join!(Sockets.tcp(to), listener.accept());
    (near.unwrap(), far.unwrap().0)
}

fn kind<T: std::fmt::Debug>(result: Result<T, Failure>) -> FailureKind {
    result.unwrap_err().kind
}

#[tokio::test]
async fn f1_a_port_nobody_listens_on_is_refused() {
    for address in ["127.0.0.1", "::1"] {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let closed = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(kind(Sockets.tcp(closed).await), FailureKind::Refused);
    }
}

#[test]
fn f1_each_failure_of_the_kernel_has_its_word() {
    for (number, expected) in [
        (111, FailureKind::Refused),
        (113, FailureKind::HostUnreachable),
        (101, FailureKind::NetworkUnreachable),
        (110, FailureKind::Timeout),
        (1, FailureKind::Denied),
        (13, FailureKind::Denied),
        (24, FailureKind::Limit),
        (23, FailureKind::Limit),
        (99, FailureKind::Limit),
        (105, FailureKind::Limit),
        (97, FailureKind::NetworkUnreachable),
        (22, FailureKind::Internal),
    ] {
        let error = io::Error::from_raw_os_error(number);
        assert_eq!(failure(&error).kind, expected, "{error}");
    }
}

#[tokio::test]
async fn f2_octets_and_both_ends_pass_in_both_families() {
    for address in ["127.0.0.1", "::1"] {
        let (mut near, mut far) = pair(address).await;
        near.write_all(b"question").await.unwrap();
        near.shutdown().await.unwrap();
        let mut text = String::new();
        within("the question", far.read_to_string(&mut text))
            .await
            .unwrap();
        assert_eq!(text, "question");
        // The other direction is still open.
        far.write_all(b"answer").await.unwrap();
        drop(far);
        let mut text = String::new();
        within("the answer", near.read_to_string(&mut text))
            .await
            .unwrap();
        assert_eq!(text, "answer");
    }
}

#[tokio::test]
async fn f2_an_aborted_stream_resets_its_peer() {
    let (mut near, mut far) = pair("127.0.0.1").await;
    near.abort();
    drop(near);
    let read = within("the reset", far.read(&mut [0; 8])).await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn f2_a_reset_is_noticed_while_nothing_is_read() {
    let (mut near, mut far) = pair("127.0.0.1").await;
    // What is never read, so that reading would not tell.
    far.write_all(b"unread").await.unwrap();
    let waiting = poll_fn(|context| Poll::Ready(near.poll_reset(context).is_ready())).await;
    assert!(!waiting);
    SockRef::from(&far)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(far);
    within("the reset", poll_fn(|context| near.poll_reset(context))).await;
}

#[tokio::test]
async fn an_orderly_end_is_no_reset() {
    let (mut near, far) = pair("127.0.0.1").await;
    drop(far);
    assert_eq!(within("the end", near.read(&mut [0; 8])).await.unwrap(), 0);
    let reset = poll_fn(|context| Poll::Ready(near.poll_reset(context).is_ready())).await;
    assert!(!reset);
}

#[tokio::test]
async fn f6_datagrams_pass_whole_and_from_the_peer_alone() {
    for address in ["127.0.0.1", "::1"] {
        let server = UdpSocket::bind((address, 0)).await.unwrap();
        let mut near = Sockets.udp(server.local_addr().unwrap()).await.unwrap();
        let longest = vec![7; 60_000];
        poll_fn(|context| near.poll_send(context, &longest))
            .await
            .unwrap();
        let mut buffer = vec![0; LONGEST];
        let (length, from) = within("the datagram", server.recv_from(&mut buffer))
            .await
            .unwrap();
        assert_eq!(buffer[..length], longest);
        let stranger = UdpSocket::bind((address, 0)).await.unwrap();
        stranger.send_to(b"forged", from).await.unwrap();
        server.send_to(b"", from).await.unwrap();
        server.send_to(b"reply", from).await.unwrap();
        for expected in [&b""[..], b"reply"] {
            let received = poll_fn(|context| near.poll_receive(context));
            let received = within("a reply", received).await.unwrap();
            assert_eq!(received.as_deref(), Some(expected));
        }
    }
}

const LONGEST: usize = 64 * 1024;

#[tokio::test]
async fn a_closed_udp_port_is_told_by_the_next_read() {
    let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = server.local_addr().unwrap();
    drop(server);
    let mut near = Sockets.udp(to).await.unwrap();
    poll_fn(|context| near.poll_send(context, b"anybody"))
        .await
        .unwrap();
    let error = within("the refusal", poll_fn(|context| near.poll_receive(context))).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn f7_a_ping_is_answered_by_the_kernel_or_denied_as_its_setting_says() {
    for (address, request, reply) in [("127.0.0.1", 8, 0), ("::1", 128, 129)] {
        let to: IpAddr = address.parse().unwrap();
        let mut socket = match Sockets.ping(to).await {
            Ok(socket) => socket,
            Err(failure) => {
                assert_eq!(failure.kind, FailureKind::Denied);
                continue;
            }
        };
        let message = [&[request, 0, 0, 0, 0, 0, 0, 9][..], b"payload"].concat();
        poll_fn(|context| socket.poll_send(context, &message))
            .await
            .unwrap();
        let received = poll_fn(|context| socket.poll_receive(context));
        let received = within("the reply", received).await.unwrap().unwrap();
        assert_eq!(received[..2], [reply, 0]);
        // Sequence number and payload.
        assert_eq!(received[6..], message[6..]);
        for other in [
            &[5, 1, 0, 0, 0, 0, 0, 0][..],
            &[request, 1, 0, 0, 0, 0, 0, 0],
            &[request, 0],
        ] {
            let sent = poll_fn(|context| socket.poll_send(context, other)).await;
            assert_eq!(sent.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }
}
