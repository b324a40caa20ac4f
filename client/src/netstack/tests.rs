//! The driver on paused time, with packets made by hand and far ends that do as they are told.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use kubebridge_dns::server::Transport;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::oneshot;
use tokio_util::sync::PollSender;

use super::packet::Packet;
use super::test_util::{datagram, read_datagram};
use super::*;
use crate::flows::{
    BoxTcpFlow, DatagramEnds, DatagramFlow, Ended, Failure, FailureKind, How, Local, TcpFlow,
};
use crate::reachable::Holds;

mod datagrams;
mod laptop;
mod streams;
mod tcp;

const LAPTOP: &str = "198.19.248.1:40000";
const SERVICE: &str = "10.96.0.1:443";
const MTU: usize = 1500;
const FLOWS: usize = 600;

/// A device whose other end is the test.
struct Memory {
    incoming: mpsc::Receiver<Vec<u8>>,
    outgoing: PollSender<Vec<u8>>,
}

impl PacketIo for Memory {
    fn poll_recv(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.incoming.poll_recv(cx).map(|packet| match packet {
            Some(packet) => {
                buffer[..packet.len()].copy_from_slice(&packet);
                Ok(packet.len())
            }
            None => Err(io::ErrorKind::NotConnected.into()),
        })
    }

    fn poll_send(&mut self, cx: &mut Context<'_>, packet: &[u8]) -> Poll<io::Result<()>> {
        let gone = |_| io::Error::from(io::ErrorKind::NotConnected);
        match self.outgoing.poll_reserve(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(gone(error))),
            Poll::Ready(Ok(())) => {
                Poll::Ready(self.outgoing.send_item(packet.to_vec()).map_err(gone))
            }
        }
    }
}

/// The laptop's end of a device.
struct Device {
    send: mpsc::Sender<Vec<u8>>,
    receive: mpsc::Receiver<Vec<u8>>,
}

/// Makes a device; the laptop takes so many packets before it has to be asked to.
fn device(room: usize) -> (Memory, Device) {
    let (send, incoming) = mpsc::channel(1024);
    let (outgoing, receive) = mpsc::channel(room);
    let outgoing = PollSender::new(outgoing);
    (Memory { incoming, outgoing }, Device { send, receive })
}

impl Device {
    async fn send(&self, packet: Vec<u8>) {
        self.send.send(packet).await.unwrap();
    }

    async fn receive(&mut self) -> Vec<u8> {
        self.receive.recv().await.unwrap()
    }

    /// Sees that nothing comes for a time.
    async fn silence(&mut self, time: Duration) {
        let heard = tokio::time::timeout(time, self.receive.recv()).await;
        assert!(heard.is_err(), "{heard:?}");
    }
}

/// What becomes of dialling.
enum Fate {
    Fails(FailureKind),
    /// It is never said.
    Hangs,
    When(oneshot::Receiver<()>),
    Opens,
}

/// Far ends that do as they are told.
#[derive(Default)]
struct Far {
    fates: Mutex<VecDeque<Fate>>,
    dialled: watch::Sender<Vec<SocketAddr>>,
    far_ends: Mutex<VecDeque<DuplexStream>>,
    datagrams: Mutex<VecDeque<DatagramEnds>>,
}

struct Piped(DuplexStream);

impl TcpFlow for Piped {
    fn carry(mut self: Box<Self>, mut local: Box<dyn Local>) -> BoxFuture<'static, Ended> {
        async move {
            let copied = tokio::io::copy_bidirectional(&mut self.0, &mut local).await;
            let how = copied.map_or(How::LocalReset, |_| How::Finished);
            Ended {
                sent: 0,
                received: 0,
                reached: 0,
                how,
            }
        }
        .boxed()
    }
}

impl Far {
    fn will(&self, fate: Fate) {
        self.fates.lock().push_back(fate);
    }

    async fn fate(&self, to: SocketAddr) -> Result<(), Failure> {
        self.dialled.send_modify(|dialled| dialled.push(to));
        let fate = self.fates.lock().pop_front().unwrap_or(Fate::Opens);
        match fate {
            Fate::Opens => Ok(()),
            Fate::Fails(kind) => Err(Failure::Manager(kind.into())),
            Fate::Hangs => std::future::pending().await,
            Fate::When(reached) => {
                reached.await.unwrap();
                Ok(())
            }
        }
    }

    fn datagram_flow(&self) -> DatagramFlow {
        let (flow, ends) = DatagramFlow::pair();
        self.datagrams.lock().push_back(ends);
        flow
    }

    async fn dialled(&self, times: usize) {
        let mut dialled = self.dialled.subscribe();
        dialled
            .wait_for(|dialled| dialled.len() >= times)
            .await
            .unwrap();
    }
}

impl Opener for Far {
    fn open_tcp(&self, to: SocketAddr) -> BoxFuture<'_, Result<BoxTcpFlow, Failure>> {
        async move {
            self.fate(to).await?;
            let (near, far) = tokio::io::duplex(1 << 20);
            self.far_ends.lock().push_back(far);
            Ok(Box::new(Piped(near)) as BoxTcpFlow)
        }
        .boxed()
    }

    fn open_udp(&self, to: SocketAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>> {
        async move { self.fate(to).await.map(|()| self.datagram_flow()) }.boxed()
    }

    fn ping(&self, to: IpAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>> {
        let to = SocketAddr::new(to, 0);
        async move { self.fate(to).await.map(|()| self.datagram_flow()) }.boxed()
    }
}

/// A resolver that says what it heard.
struct Mirror;

impl Handler for Mirror {
    async fn handle(&self, packet: Vec<u8>, _: SocketAddr, _: Transport) -> Option<Vec<u8>> {
        Some(packet)
    }
}

/// A terminator, its device and its far ends.
struct World {
    netstack: Netstack<Memory>,
    device: Device,
    far: Arc<Far>,
    _reachable: watch::Sender<Arc<Reachable>>,
}

impl World {
    fn new() -> Self {
        Self::with_room(1024)
    }

    fn with_room(room: usize) -> Self {
        let (memory, device) = device(room);
        let far = Arc::new(Far::default());
        let nets = ["10.96.0.0/16", "fd00:96::/108"];
        let nets = nets.map(|net| net.parse().unwrap()).to_vec();
        let (reachable, receiver) = watch::channel(Arc::new(Reachable::new(
            nets,
            BTreeMap::new(),
            Holds::default(),
        )));
        let settings = Settings {
            mtu: MTU,
            resolver: [198, 19, 248, 2].into(),
            flows: FLOWS,
        };
        let opener = Arc::clone(&far);
        Self {
            netstack: Netstack::start(memory, settings, opener, receiver, Arc::new(Mirror)),
            device,
            far,
            _reachable: reachable,
        }
    }

    fn dropped(&self, word: &str) -> u64 {
        let status = self.netstack.counts().status();
        status.dropped[word]
    }
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}
