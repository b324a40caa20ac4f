//! The far ends of flows: servers on this namespace's loopback, dialled like the manager does.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use kubebridge_client::flows::{
    BoxTcpFlow, DatagramFlow, Ended, Failure, FailureKind, How, Local, Opener, TcpFlow,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;

/// Dials a port of loopback for any address of the cluster, but for those with a fate of their own.
#[derive(Debug, Default)]
pub(crate) struct Far {
    /// Whom was dialled to, in order.
    pub(crate) dialled: watch::Sender<Vec<SocketAddr>>,
}

/// What becomes of dialling an address that ends like this.
pub(crate) const FATES: [(u8, FailureKind); 5] = [
    (0xf1, FailureKind::HostUnreachable),
    (0xf2, FailureKind::NetworkUnreachable),
    (0xf3, FailureKind::Denied),
    (0xf4, FailureKind::Timeout),
    (0xf5, FailureKind::Limit),
];

/// The address whose far ends are in memory, without any kernel's TCP: [`OCTETS`] are sent while
/// all that comes is read.
pub(crate) const IN_MEMORY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 96, 0, 0x99));

/// What a far end in memory sends.
pub(crate) const OCTETS: usize = 16 << 20;

struct Dialled(TcpStream);

struct InMemory;

fn fate(to: IpAddr) -> Result<(), Failure> {
    let last = match to {
        IpAddr::V4(address) => address.octets()[3],
        IpAddr::V6(address) => address.octets()[15],
    };
    let found = FATES.iter().find(|(number, _)| *number == last);
    found.map_or(Ok(()), |(_, kind)| Err(Failure::Manager((*kind).into())))
}

impl Far {
    fn note(&self, to: SocketAddr) {
        self.dialled.send_modify(|dialled| dialled.push(to));
    }
}

impl Opener for Far {
    fn open_tcp(&self, to: SocketAddr) -> BoxFuture<'_, Result<BoxTcpFlow, Failure>> {
        self.note(to);
        async move {
            fate(to.ip())?;
            if to.ip() == IN_MEMORY {
                return Ok(Box::new(InMemory) as BoxTcpFlow);
            }
            match TcpStream::connect((Ipv4Addr::LOCALHOST, to.port())).await {
                Ok(stream) => Ok(Box::new(Dialled(stream)) as BoxTcpFlow),
                Err(_) => Err(Failure::Manager(FailureKind::Refused.into())),
            }
        }
        .boxed()
    }

    fn open_udp(&self, to: SocketAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>> {
        self.note(to);
        async move {
            fate(to.ip())?;
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            socket
                .connect((Ipv4Addr::LOCALHOST, to.port()))
                .await
                .unwrap();
            let (flow, (mut out, into)) = DatagramFlow::pair();
            tokio::spawn(async move {
                let mut buffer = vec![0; 65_535];
                loop {
                    tokio::select! {
                        datagram = out.recv() => match datagram {
                            Some(datagram) => { socket.send(&datagram).await.unwrap(); }
                            None => return,
                        },
                        length = socket.recv(&mut buffer) => match length {
                            Ok(length) => {
                                let datagram = Bytes::copy_from_slice(&buffer[..length]);
                                into.send(datagram).unwrap();
                            }
                            Err(_) => return,
                        },
                    }
                }
            });
            Ok(flow)
        }
        .boxed()
    }

    fn ping(&self, to: IpAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>> {
        self.note(SocketAddr::new(to, 0));
        async move {
            fate(to)?;
            let (flow, (mut out, into)) = DatagramFlow::pair();
            // What a ping socket gives back: another identifier, a checksum of its own.
            let kind = if to.is_ipv4() { 0 } else { 129 };
            tokio::spawn(async move {
                while let Some(message) = out.recv().await {
                    let mut reply = message.to_vec();
                    reply[0] = kind;
                    reply[2..6].fill(0xaa);
                    if into.send(reply.into()).is_err() {
                        return;
                    }
                }
            });
            Ok(flow)
        }
        .boxed()
    }
}

impl TcpFlow for Dialled {
    fn carry(self: Box<Self>, local: Box<dyn Local>) -> BoxFuture<'static, Ended> {
        carry(self.0, local).map(|()| ENDED).boxed()
    }
}

impl TcpFlow for InMemory {
    fn carry(self: Box<Self>, local: Box<dyn Local>) -> BoxFuture<'static, Ended> {
        async {
            let (mut read, mut write) = tokio::io::split(local);
            let sending = async {
                let mut pattern = tokio::io::repeat(7).take(OCTETS as u64);
                tokio::io::copy(&mut pattern, &mut write).await?;
                write.shutdown().await
            };
            let mut sink = tokio::io::sink();
            // The laptop may close whenever it likes.
            let _ = tokio::join!(tokio::io::copy(&mut read, &mut sink), sending);
            ENDED
        }
        .boxed()
    }
}

const ENDED: Ended = Ended {
    sent: 0,
    received: 0,
    reached: 0,
    how: How::Finished,
};

/// Copies both ways; ends are passed on as what they were.
async fn carry(far: TcpStream, local: Box<dyn Local>) {
    let (mut near_read, mut near_write) = tokio::io::split(local);
    let (mut far_read, mut far_write) = far.into_split();
    let up = async {
        let mut buffer = vec![0; 32 * 1024];
        loop {
            match near_read.read(&mut buffer).await {
                Ok(0) => break far_write.shutdown().await.map_err(|_| Side::Far),
                Ok(length) => {
                    let written = far_write.write_all(&buffer[..length]).await;
                    written.map_err(|_| Side::Far)?;
                }
                Err(_) => break Err(Side::Near),
            }
        }
    };
    let down = async {
        let mut buffer = vec![0; 32 * 1024];
        loop {
            match far_read.read(&mut buffer).await {
                Ok(0) => break near_write.shutdown().await.map_err(|_| Side::Near),
                Ok(length) => {
                    let written = near_write.write_all(&buffer[..length]).await;
                    written.map_err(|_| Side::Near)?;
                }
                Err(_) => break Err(Side::Far),
            }
        }
    };
    let outcome = futures::future::try_join(up, down).await;
    match outcome {
        Ok(_) => {}
        Err(Side::Far) => near_read.unsplit(near_write).abort(),
        Err(Side::Near) => {
            let far = far_read.reunite(far_write).unwrap();
            far.set_zero_linger().unwrap();
        }
    }
}

enum Side {
    Near,
    Far,
}
