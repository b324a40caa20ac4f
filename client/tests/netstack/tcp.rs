//! Connections.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::laptop::{on_a_laptop, soon};

/// Listens on the far side and says where the laptop finds it.
async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, ([10, 96, 0, 1], port).into())
}

#[test]
fn a_connection_carries_octets_both_ways_and_ends_in_order() {
    let test = "tcp::a_connection_carries_octets_both_ways_and_ends_in_order";
    on_a_laptop(test, async |laptop| {
        let (listener, address) = listen().await;

        let mut near = soon("the connection", TcpStream::connect(address))
            .await
            .unwrap();
        let (mut far, _) = soon("the dial", listener.accept()).await.unwrap();
        near.write_all(b"to the cluster").await.unwrap();
        let mut heard = [0; 14];
        soon("octets up", far.read_exact(&mut heard)).await.unwrap();
        far.write_all(b"to the laptop").await.unwrap();
        far.shutdown().await.unwrap();
        let mut all = Vec::new();
        soon("octets down", near.read_to_end(&mut all))
            .await
            .unwrap();
        drop(near);
        let end = soon("the end", far.read(&mut heard)).await.unwrap();

        assert_eq!(&heard, b"to the cluster");
        assert_eq!(all, b"to the laptop");
        assert_eq!(end, 0);
        assert_eq!(*laptop.far.dialled.lock(), [address]);
        laptop.netstack.stop().await;
    });
}

#[test]
fn f1_a_refused_port_is_refused_at_the_laptop() {
    on_a_laptop(
        "tcp::f1_a_refused_port_is_refused_at_the_laptop",
        async |_laptop| {
            let (listener, address) = listen().await;
            drop(listener);

            let error = soon("the refusal", TcpStream::connect(address))
                .await
                .unwrap_err();

            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        },
    );
}
