//! Reads more than was asked for, and holds nothing while there is nothing.
//!
//! Underneath TLS: it asks for 4 KiB at a time, which is four or five calls of the kernel for each
//! of its records. Most reads find little or nothing: they go through a buffer that all connections
//! of a thread share. Writes go through unchanged.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::poll_read_buf;

use super::shared::{MOST, poll_read_shared};

/// What one read may bring: four records of TLS.
const AHEAD: usize = MOST;

/// A read that brought this much is followed by one into a buffer of its own.
const BULK: usize = AHEAD / 4;

/// A byte stream that is read ahead.
#[derive(Debug)]
pub struct ReadAhead<S> {
    stream: S,
    ahead: BytesMut,
    /// Whether the last read brought much.
    is_bulk: bool,
}

impl<S> ReadAhead<S> {
    /// Reads a stream ahead.
    #[must_use]
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            ahead: BytesMut::new(),
            is_bulk: false,
        }
    }
}

impl<S: AsyncRead + Unpin> ReadAhead<S> {
    /// Reads into a buffer of its own; nothing there is the end.
    fn poll_bulk(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ahead.reserve(AHEAD);
        let reading = poll_read_buf(Pin::new(&mut self.stream), context, &mut self.ahead);
        if self.ahead.is_empty() {
            // Idle connections keep nothing.
            self.ahead = BytesMut::new();
        }
        self.is_bulk = ready!(reading)? >= BULK;
        Poll::Ready(Ok(()))
    }

    /// Reads through the shared buffer, and keeps what was not asked for.
    fn poll_little(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self {
            stream,
            ahead,
            is_bulk,
        } = self;
        poll_read_shared(stream, context, AHEAD, |read| {
            let (now, later) = read.split_at(read.len().min(buffer.remaining()));
            buffer.put_slice(now);
            *ahead = BytesMut::from(later);
            *is_bulk = read.len() >= BULK;
        })
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAhead<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.ahead.is_empty() {
            if buffer.remaining() >= AHEAD {
                return Pin::new(&mut this.stream).poll_read(context, buffer);
            }
            if !this.is_bulk {
                return this.poll_little(context, buffer);
            }
            ready!(this.poll_bulk(context))?;
        }
        let count = this.ahead.len().min(buffer.remaining());
        buffer.put_slice(&this.ahead[..count]);
        this.ahead.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAhead<S> {
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
        slices: &[IoSlice<'_>],
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn all_octets_come_in_order_however_little_is_asked_for_and_nothing_is_kept() {
        let (mut near, far) = duplex(16 * 1024);
        let sent: Vec<u8> = (0..300_000_u32).map(|number| (number / 7) as u8).collect();
        let sending = tokio::spawn({
            let sent = sent.clone();
            async move { near.write_all(&sent).await }
        });
        let mut reading = ReadAhead::new(far);
        let mut got = Vec::new();
        for size in (1..).step_by(977) {
            let mut piece = vec![0; size];
            match reading.read(&mut piece).await.unwrap() {
                0 => break,
                count => got.extend_from_slice(&piece[..count]),
            }
        }
        sending.await.unwrap().unwrap();
        assert!(got == sent);
        assert_eq!(reading.ahead.capacity(), 0);
    }
}
