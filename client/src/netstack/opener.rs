//! What the terminator asks of the tunnel: the other ends of flows.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// Why a flow cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nobody listens there.
    Refused,
    /// There is no such host.
    HostUnreachable,
    /// There is no way to that network.
    NetworkUnreachable,
    /// Nothing was heard.
    Timeout,
    /// The session may not.
    Denied,
    /// There are too many already.
    Limit,
    /// Something else.
    Internal,
}

/// The local end of a TCP flow.
pub trait Local: AsyncRead + AsyncWrite + Unpin + Send {
    /// Ends it with a reset instead of a FIN.
    fn abort(&mut self);
}

/// The far end of a TCP flow.
pub trait TcpFlow: Send {
    /// Carries until both directions are finished.
    fn carry(self: Box<Self>, local: Box<dyn Local>) -> BoxFuture<'static, ()>;
}

/// A TCP flow of any kind.
pub type BoxTcpFlow = Box<dyn TcpFlow>;

/// The far end of a datagram flow.
#[derive(Debug)]
pub struct DatagramFlow {
    /// To the far end.
    pub to: mpsc::Sender<Bytes>,
    /// From the far end.
    pub from: mpsc::Receiver<Result<Bytes, Failure>>,
}

/// Opens the other ends of flows.
pub trait Opener: Send + Sync + 'static {
    /// Opens a TCP connection.
    fn open_tcp(&self, to: SocketAddr) -> BoxFuture<'_, Result<BoxTcpFlow, Failure>>;
    /// Opens a UDP flow.
    fn open_udp(&self, to: SocketAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>>;
    /// Opens a flow of ICMP echoes.
    fn ping(&self, to: IpAddr) -> BoxFuture<'_, Result<DatagramFlow, Failure>>;
}
