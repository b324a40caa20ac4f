//! A cluster without packets: what an [`Opener`] opens, and where names lead.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use kubebridge_proto::flow::{Ended, FailureKind, How, Local};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::within;
use crate::flows::{BoxTcpFlow, DatagramFlow, Failure, Opener, TcpFlow};
use crate::proxy::{Host, Place, Places};

/// The cluster: 10.96.0.1 is a program on loopback, anything else fails in its own way.
pub(crate) struct Cluster {
    pub(crate) program: SocketAddr,
}

struct Flow(TcpStream);

impl TcpFlow for Flow {
    fn carry(mut self: Box<Self>, mut local: Box<dyn Local>) -> BoxFuture<'static, Ended> {
        async move {
            let _ = copy_bidirectional(&mut self.0, &mut local).await;
            Ended {
                sent: 0,
                received: 0,
                reached: 0,
                how: How::Finished,
            }
        }
        .boxed()
    }
}

impl Opener for Cluster {
    fn open_tcp(&self, to: SocketAddr) -> BoxFuture<'_, Result<BoxTcpFlow, Failure>> {
        async move {
            let kind = match to.ip().to_string().as_str() {
                "10.96.0.1" => {
                    let stream = TcpStream::connect(self.program).await.unwrap();
                    return Ok(Box::new(Flow(stream)) as BoxTcpFlow);
                }
                "10.96.0.2" => FailureKind::Refused,
                "10.96.0.3" => FailureKind::Denied,
                "10.96.0.4" => FailureKind::Timeout,
                "10.96.0.5" => FailureKind::NetworkUnreachable,
                _ => FailureKind::HostUnreachable,
            };
            Err(kubebridge_proto::flow::Failure::from(kind).into())
        }
        .boxed()
    }

    fn open_udp(&self, to: SocketAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>> {
        let (flow, (mut out, into)) = DatagramFlow::pair();
        tokio::spawn(async move {
            while let Some(data) = out.recv().await {
                let answer = [&data[..], b" of ", to.to_string().as_bytes()].concat();
                if into.send(Bytes::from(answer)).is_err() {
                    return;
                }
            }
        });
        std::future::ready(Ok(flow)).boxed()
    }

    fn ping(&self, _: IpAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>> {
        std::future::ready(Err(Failure::Down)).boxed()
    }
}

/// Names that are in the cluster, outside, nowhere, or not known.
pub(crate) struct Names;

impl Places for Names {
    fn find<'a>(&'a self, host: &'a Host, port: u16) -> BoxFuture<'a, Place> {
        let at = |text: &str| SocketAddr::new(text.parse().unwrap(), port);
        let place = match host.to_string().as_str() {
            "authors.default" => Place::Cluster(vec![at("10.96.0.2"), at("10.96.0.1")]),
            "outside.example" => Place::Outside(vec![at("127.0.0.1")]),
            "nowhere.example" => Place::NoSuchName,
            "broken.example" => Place::Unknown,
            address => Place::Cluster(vec![at(address)]),
        };
        std::future::ready(place).boxed()
    }
}

/// A program that answers what it is sent with `echo: ` in front, until its end.
pub(crate) async fn program() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut all = b"echo: ".to_vec();
            stream.read_to_end(&mut all).await.unwrap();
            stream.write_all(&all).await.unwrap();
        }
    });
    address
}

/// Says something to its end, and returns what comes back until the end.
pub(crate) async fn converse(mut stream: TcpStream, say: &str) -> String {
    stream.write_all(say.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut said = String::new();
    within("the answer", stream.read_to_string(&mut said))
        .await
        .unwrap();
    said
}
