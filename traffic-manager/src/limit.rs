//! A TCP listener with a bound on its open connections, for the gRPC and the admin server.
//!
//! At the bound nothing more is accepted: new connections wait in the kernel's queue until one
//! closes, so that a flood costs the flooder and neither memory nor descriptors of ours.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::{Stream, stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tonic::transport::server::Connected;
use tracing::debug;

/// The wait after a failed accept, which mostly means that the process has no descriptor left.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// A listener that holds at most so many connections.
#[derive(Debug)]
pub struct Limited {
    listener: TcpListener,
    room: Arc<Semaphore>,
    lifetime: Option<Duration>,
}

/// A connection that makes room when it is dropped.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    end: Option<Pin<Box<Sleep>>>,
    _room: OwnedSemaphorePermit,
}

impl Limited {
    /// Limits a listener.
    #[must_use]
    pub fn new(listener: TcpListener, connections: usize) -> Self {
        Self {
            listener,
            room: Arc::new(Semaphore::new(connections)),
            lifetime: None,
        }
    }

    /// Ends every connection after a while, so that silent ones do not take all the room.
    #[must_use]
    pub fn lifetime(self, lifetime: Duration) -> Self {
        Self {
            lifetime: Some(lifetime),
            ..self
        }
    }

    /// Returns the connections as they come; failures to accept are waited out.
    pub fn connections(self) -> impl Stream<Item = io::Result<Connection>> {
        stream::unfold(self, |mut listener| async move {
            let (connection, _) = axum::serve::Listener::accept(&mut listener).await;
            Some((Ok(connection), listener))
        })
    }

    async fn try_accept(&self) -> io::Result<(Connection, SocketAddr)> {
        let room = Arc::clone(&self.room)
            .acquire_owned()
            .await
            .map_err(io::Error::other)?;
        let (stream, peer) = self.listener.accept().await?;
        // Small frames are answered at once; without it they wait for the peer's ACK.
        stream.set_nodelay(true)?;
        let end = self
            .lifetime
            .map(|lifetime| Box::pin(tokio::time::sleep(lifetime)));
        Ok((
            Connection {
                stream,
                end,
                _room: room,
            },
            peer,
        ))
    }
}

impl axum::serve::Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        loop {
            match self.try_accept().await {
                Ok(accepted) => return accepted,
                Err(error) => debug!(%error, "accept failed"),
            }
            tokio::time::sleep(AFTER_FAILURE).await;
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(end) = &mut self.end
            && end.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, octets)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use axum::serve::Listener;
    use futures::poll;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn at_the_bound_a_connection_waits_until_another_closes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut limited = Limited::new(listener, 1);
        let _first = TcpStream::connect(address).await.unwrap();
        let _second = TcpStream::connect(address).await.unwrap();
        let (held, _) = limited.accept().await;
        let mut waiting = pin!(limited.accept());
        assert!(poll!(&mut waiting).is_pending());
        drop(held);
        waiting.await;
    }

    #[tokio::test]
    async fn a_silent_connection_ends_with_its_lifetime() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut limited = Limited::new(listener, 1).lifetime(Duration::from_millis(20));
        let _silent = TcpStream::connect(address).await.unwrap();
        let (mut connection, _) = limited.accept().await;
        let error = connection.read_u8().await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
