//! A socket of the kernel's TCP as the local end of a flow.
//!
//! Shared by reference so that a reset is noticed by its own wait, also while nothing is read or
//! written because the laptop is slow.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use super::Local;

/// A connection.
pub struct Socket {
    stream: Arc<TcpStream>,
    /// Waits for an error of the socket, which is how the kernel tells of a reset.
    reset: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Socket {
    /// Takes a connection.
    #[must_use]
    pub fn new(stream: TcpStream) -> Self {
        Self {
            stream: Arc::new(stream),
            reset: None,
        }
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Socket").field(&self.stream).finish()
    }
}

impl Local for Socket {
    fn abort(&mut self) {
        // Closing with this set sends RST. A socket that cannot do it is closed all the same.
        let _ = SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO));
    }

    fn poll_reset(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let reset = self.reset.get_or_insert_with(|| {
            let stream = Arc::clone(&self.stream);
            Box::pin(async move {
                // Fails when the runtime ends, and the flow with it.
                let _ = stream.ready(Interest::ERROR).await;
            })
        });
        ready!(reset.as_mut().poll(context));
        self.reset = None;
        Poll::Ready(())
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(context))?;
            match self.try_read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return Poll::Ready(read),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write(octets))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.write(context, |stream| stream.try_write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(&*self.stream).shutdown(Shutdown::Write))
    }
}

impl Socket {
    fn try_read(&self, buffer: &mut ReadBuf<'_>) -> io::Result<()> {
        let socket = SockRef::from(&*self.stream);
        let unfilled = buffer.initialize_unfilled();
        let mut part = None;
        let read = self.stream.try_io(Interest::READABLE, || {
            let read = (&*socket).read(unfilled)?;
            if (1..unfilled.len()).contains(&read) {
                // The kernel has no more: what comes wakes us, without asking once more in vain.
                part = Some(read);
                return Err(ErrorKind::WouldBlock.into());
            }
            Ok(read)
        });
        buffer.advance(part.map_or(read, Ok)?);
        Ok(())
    }

    fn write(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(context))?;
            match write(&self.stream) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}
