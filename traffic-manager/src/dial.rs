//! Plain sockets towards the cluster: TCP connections, connected UDP sockets, ICMP ping sockets.
//!
//! Says why a dial failed in the words of the wire, so that the laptop can fail in the same way.
//! Whether one may dial is decided before, by [`egress`](crate::egress); how many sockets there
//! are at once, by [`data`](crate::data).

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use futures::future::BoxFuture;
use kubebridge_proto::flow::{self, Failure, FailureKind};
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::net::{TcpSocket, UdpSocket};
use tokio::time::timeout;

use self::packets::{Packets, Pings};

pub mod packets;

/// How long a TCP connection may take: as long as the laptop keeps a half-open one. Programs on the
/// laptop that wait longer see silence, by their own clock.
pub const CONNECT: Duration = Duration::from_secs(5);

/// When a quiet connection is tried: a pod that died with its node is noticed within two minutes.
const KEEPALIVE: Duration = Duration::from_secs(60);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);

/// How the cluster is dialled.
pub trait Dial: std::fmt::Debug + Send + Sync + 'static {
    /// Opens a TCP connection.
    fn tcp(&self, to: SocketAddr) -> BoxFuture<'_, Result<flow::Socket, Failure>>;

    /// Makes a UDP socket that speaks to one address alone.
    fn udp(&self, to: SocketAddr) -> BoxFuture<'_, Result<Packets, Failure>>;

    /// Makes a socket for ICMP echo with one address.
    fn ping(&self, to: IpAddr) -> BoxFuture<'_, Result<Pings, Failure>>;
}

/// Dials with sockets of the kernel.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sockets;

impl Dial for Sockets {
    fn tcp(&self, to: SocketAddr) -> BoxFuture<'_, Result<flow::Socket, Failure>> {
        Box::pin(async move {
            match timeout(CONNECT, connect(to)).await {
                Ok(Ok(stream)) => Ok(stream),
                Ok(Err(error)) => Err(failure(&error)),
                Err(_) => Err(FailureKind::Timeout.into()),
            }
        })
    }

    fn udp(&self, to: SocketAddr) -> BoxFuture<'_, Result<Packets, Failure>> {
        Box::pin(async move { speak(to).await.map_err(|error| failure(&error)) })
    }

    fn ping(&self, to: IpAddr) -> BoxFuture<'_, Result<Pings, Failure>> {
        Box::pin(async move {
            let socket = ping_socket(to).map_err(|error| match error.kind() {
                ErrorKind::PermissionDenied => Failure::with_detail(
                    FailureKind::Denied,
                    "the pod may not ping: net.ipv4.ping_group_range",
                ),
                _ => failure(&error),
            })?;
            Ok(Pings::new(socket, to))
        })
    }
}

async fn connect(to: SocketAddr) -> io::Result<flow::Socket> {
    let socket = match to {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_EVERY);
    SockRef::from(&socket).set_tcp_keepalive(&keepalive)?;
    Ok(flow::Socket::new(socket.connect(to).await?))
}

async fn speak(to: SocketAddr) -> io::Result<Packets> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).await?;
    socket.connect(to).await?;
    Ok(Packets::new(socket))
}

fn ping_socket(to: IpAddr) -> io::Result<UdpSocket> {
    let (domain, protocol) = match to {
        IpAddr::V4(_) => (Domain::IPV4, Protocol::ICMPV4),
        IpAddr::V6(_) => (Domain::IPV6, Protocol::ICMPV6),
    };
    let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(protocol))?;
    socket.connect(&SocketAddr::new(to, 0).into())?;
    UdpSocket::from_std(socket.into())
}

/// Says why a dial failed.
#[must_use]
pub fn failure(error: &io::Error) -> Failure {
    let kind = match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => FailureKind::Refused,
        ErrorKind::HostUnreachable => FailureKind::HostUnreachable,
        ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown => FailureKind::NetworkUnreachable,
        ErrorKind::TimedOut => FailureKind::Timeout,
        // A firewall in the pod's network says so.
        ErrorKind::PermissionDenied => FailureKind::Denied,
        // No port or memory left. Descriptors have no kind of their own.
        ErrorKind::AddrNotAvailable | ErrorKind::OutOfMemory => FailureKind::Limit,
        _ if matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOBUFS)) => FailureKind::Limit,
        // The family is switched off.
        _ if error.raw_os_error() == Some(EAFNOSUPPORT) => FailureKind::NetworkUnreachable,
        _ => FailureKind::Internal,
    };
    match kind {
        FailureKind::Internal => Failure::with_detail(kind, error.kind().to_string()),
        _ => kind.into(),
    }
}

/// Linux's numbers, which std has no kinds for.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const EAFNOSUPPORT: i32 = 97;
const ENOBUFS: i32 = 105;

#[cfg(test)]
mod tests;
