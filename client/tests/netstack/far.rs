//! The far ends of flows: servers on this namespace's loopback, dialled like the manager does.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use futures::FutureExt;
use futures::future::BoxFuture;
use kubebridge_client::netstack::opener::{
    BoxTcpFlow, DatagramFlow, Failure, Local, Opener, TcpFlow,
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Dials a port of loopback for any address of the cluster, but for those with a fate of their own.
#[derive(Debug, Default)]
pub(crate) struct Far {
    /// Whom TCP was dialled to.
    pub(crate) dialled: Mutex<Vec<SocketAddr>>,
}

/// What becomes of dialling these.
pub(crate) const FATES: [(Ipv4Addr, Failure); 5] = [
    (Ipv4Addr::new(10, 96, 1, 1), Failure::HostUnreachable),
    (Ipv4Addr::new(10, 96, 1, 2), Failure::NetworkUnreachable),
    (Ipv4Addr::new(10, 96, 1, 3), Failure::Denied),
    (Ipv4Addr::new(10, 96, 1, 4), Failure::Timeout),
    (Ipv4Addr::new(10, 96, 1, 5), Failure::Limit),
];

struct Dialled(TcpStream);

impl Opener for Far {
    fn open_tcp(&self, to: SocketAddr) -> BoxFuture<'_, Result<BoxTcpFlow, Failure>> {
        self.dialled.lock().push(to);
        async move {
            if let Some((_, failure)) = FATES.iter().find(|(address, _)| to.ip() == *address) {
                return Err(*failure);
            }
            match TcpStream::connect((Ipv4Addr::LOCALHOST, to.port())).await {
                Ok(stream) => Ok(Box::new(Dialled(stream)) as BoxTcpFlow),
                Err(_) => Err(Failure::Refused),
            }
        }
        .boxed()
    }

    fn open_udp(&self, _to: SocketAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>> {
        async { Err(Failure::Refused) }.boxed()
    }

    fn ping(&self, _to: IpAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>> {
        async { Err(Failure::Denied) }.boxed()
    }
}

impl TcpFlow for Dialled {
    fn carry(self: Box<Self>, local: Box<dyn Local>) -> BoxFuture<'static, ()> {
        carry(self.0, local).boxed()
    }
}

/// Copies both ways; ends are passed on as what they were.
async fn carry(mut far: TcpStream, mut local: Box<dyn Local>) {
    let mut up = vec![0; 32 * 1024];
    let mut down = vec![0; 32 * 1024];
    let (mut up_open, mut down_open) = (true, true);
    while up_open || down_open {
        let (mut read, mut write) = tokio::io::split(&mut local);
        let (mut far_read, mut far_write) = far.split();
        let outcome = tokio::select! {
            read = read.read(&mut up), if up_open => match read {
                Ok(0) => { up_open = false; far_write.shutdown().await.map_err(|_| true) }
                Ok(length) => far_write.write_all(&up[..length]).await.map_err(|_| true),
                Err(_) => Err(false),
            },
            read = far_read.read(&mut down), if down_open => match read {
                Ok(0) => { down_open = false; write.shutdown().await.map_err(|_| false) }
                Ok(length) => write.write_all(&down[..length]).await.map_err(|_| false),
                Err(_) => Err(true),
            },
        };
        match outcome {
            Ok(()) => {}
            Err(true) => return local.abort(),
            Err(false) => {
                far.set_zero_linger().unwrap();
                return;
            }
        }
    }
}
