//! UDP and ping sockets as the local ends of flows.

use std::cell::RefCell;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::future::BoxFuture;
use kubebridge_proto::flow::Datagrams;
use tokio::io::{Interest, ReadBuf};
use tokio::net::UdpSocket;

/// The longest datagram there is, and a little.
const LONGEST: usize = 64 * 1024;

thread_local! {
    /// Where datagrams are read to before they are copied to their size: one for each thread, as
    /// one for each of 20,000 flows would be a gigabyte.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; LONGEST]);
}

/// A connected UDP socket.
#[derive(Debug)]
pub struct Packets {
    socket: Watched,
}

impl Packets {
    /// Takes a socket that is connected.
    #[must_use]
    pub fn new(socket: UdpSocket) -> Self {
        Self {
            socket: Watched::new(socket),
        }
    }
}

impl Datagrams for Packets {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        self.socket.poll_receive(context).map_ok(Some)
    }

    fn poll_send(&mut self, context: &mut Context<'_>, datagram: &[u8]) -> Poll<io::Result<()>> {
        self.socket.socket.poll_send(context, datagram).map_ok(drop)
    }
}

/// A ping socket: what passes are ICMP messages from their type octet on. The kernel writes the
/// identifier and the checksum, and hands out replies to this socket's own requests alone.
#[derive(Debug)]
pub struct Pings {
    socket: Watched,
    /// The type of a request.
    request: u8,
}

/// The octets of an ICMP echo message before its payload (RFC 792, RFC 4443 §4.1).
const HEADER: usize = 8;

impl Pings {
    /// Takes a socket that is connected to an address.
    #[must_use]
    pub fn new(socket: UdpSocket, to: IpAddr) -> Self {
        let request = match to {
            IpAddr::V4(_) => 8,
            IpAddr::V6(_) => 128,
        };
        Self {
            socket: Watched::new(socket),
            request,
        }
    }
}

impl Datagrams for Pings {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        self.socket.poll_receive(context).map_ok(Some)
    }

    fn poll_send(&mut self, context: &mut Context<'_>, datagram: &[u8]) -> Poll<io::Result<()>> {
        // Nothing but requests: no redirects, no unreachables.
        if datagram.len() < HEADER || datagram[..2] != [self.request, 0] {
            return Poll::Ready(Err(ErrorKind::InvalidInput.into()));
        }
        self.socket.socket.poll_send(context, datagram).map_ok(drop)
    }
}

/// A socket whose errors are waited for beside its datagrams: that a port is closed comes without
/// one, and makes no socket readable.
struct Watched {
    socket: Arc<UdpSocket>,
    error: Option<BoxFuture<'static, io::Result<io::Error>>>,
}

impl Watched {
    fn new(socket: UdpSocket) -> Self {
        Self {
            socket: Arc::new(socket),
            error: None,
        }
    }

    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        if let Poll::Ready(received) = receive(&self.socket, context) {
            return Poll::Ready(received);
        }
        let error = self.error.get_or_insert_with(|| {
            let socket = Arc::clone(&self.socket);
            Box::pin(async move {
                let take = || {
                    socket
                        .take_error()?
                        .ok_or_else(|| ErrorKind::WouldBlock.into())
                };
                socket.async_io(Interest::ERROR, take).await
            })
        });
        let error = ready!(error.as_mut().poll(context));
        self.error = None;
        Poll::Ready(Err(error.unwrap_or_else(|error| error)))
    }
}

impl fmt::Debug for Watched {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("Watched")
            .field(&self.socket)
            .finish()
    }
}

fn receive(socket: &UdpSocket, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut buffer = ReadBuf::new(scratch);
        ready!(socket.poll_recv(context, &mut buffer))?;
        Poll::Ready(Ok(Bytes::copy_from_slice(buffer.filled())))
    })
}
