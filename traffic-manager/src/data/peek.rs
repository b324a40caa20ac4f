//! What a plain connection speaks, by its first octets: gRPC or the data plane.
//!
//! A data connection begins with a line of its own, which is taken off; everything else is handed
//! on as it came. Who says nothing is not waited for.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt, stream};
use kubebridge_proto::flow::PREAMBLE;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tonic::transport::server::Connected;
use tracing::debug;

use super::Data;

/// How long a connection may take to say what it speaks: two round trips over a bad line.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The most connections that have not said yet what they speak: those of all laptops after an
/// outage. What comes on top waits in the kernel's queue.
const UNDECIDED: usize = 1024;

/// What a connection speaks.
#[derive(Debug)]
pub enum Speaks<C> {
    /// HTTP/2, or nonsense, which gRPC refuses.
    Grpc(Replayed<C>),
    /// The data plane; its line is taken off.
    Data(C),
}

/// Finds out what a connection speaks.
///
/// # Errors
/// When it ends, or says too little in time.
pub async fn peek<C: AsyncRead + Unpin>(mut connection: C) -> io::Result<Speaks<C>> {
    let mut head = [0; PREAMBLE.len()];
    let mut length = 0;
    let reading = async {
        while PREAMBLE.starts_with(&head[..length]) && length < PREAMBLE.len() {
            match connection.read(&mut head[length..]).await? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
                read => length += read,
            }
        }
        Ok(())
    };
    timeout(PATIENCE, reading).await??;
    match head[..length] == *PREAMBLE {
        true => Ok(Speaks::Data(connection)),
        false => Ok(Speaks::Grpc(Replayed {
            head,
            at: 0,
            length,
            connection,
        })),
    }
}

/// Returns the gRPC connections of a listener, and has the others served as data.
pub fn grpc<C>(
    connections: impl Stream<Item = io::Result<C>>,
    data: Data,
) -> impl Stream<Item = io::Result<Replayed<C>>>
where
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let undecided = Undecided {
        connections: Box::pin(connections),
        peeking: FuturesUnordered::new(),
        data,
    };
    stream::unfold(undecided, |mut undecided| async move {
        let connection = undecided.next().await?;
        Some((Ok(connection), undecided))
    })
}

type Peeking<C> = futures::future::BoxFuture<'static, io::Result<Speaks<C>>>;

struct Undecided<S, C> {
    connections: Pin<Box<S>>,
    peeking: FuturesUnordered<Peeking<C>>,
    data: Data,
}

impl<S, C> Undecided<S, C>
where
    S: Stream<Item = io::Result<C>>,
    C: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    async fn next(&mut self) -> Option<Replayed<C>> {
        loop {
            tokio::select! {
                Some(spoken) = self.peeking.next() => match spoken {
                    Ok(Speaks::Grpc(connection)) => return Some(connection),
                    Ok(Speaks::Data(connection)) => self.data.serve(connection),
                    Err(error) => debug!(%error, "connection said nothing"),
                },
                connection = self.connections.next(), if self.peeking.len() < UNDECIDED => {
                    // Failures to accept are waited out by the listener.
                    if let Ok(connection) = connection? {
                        self.peeking.push(peek(connection).boxed());
                    }
                }
            }
        }
    }
}

/// A connection whose first octets are given back.
#[derive(Debug)]
pub struct Replayed<C> {
    head: [u8; PREAMBLE.len()],
    at: usize,
    length: usize,
    connection: C,
}

impl<C: Connected> Connected for Replayed<C> {
    type ConnectInfo = C::ConnectInfo;

    fn connect_info(&self) -> C::ConnectInfo {
        self.connection.connect_info()
    }
}

impl<C: AsyncRead + Unpin> AsyncRead for Replayed<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.at < self.length {
            let head = &self.head[self.at..self.length];
            let taken = head.len().min(buffer.remaining());
            buffer.put_slice(&head[..taken]);
            self.at += taken;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.connection).poll_read(context, buffer)
    }
}

impl<C: AsyncWrite + Unpin> AsyncWrite for Replayed<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        octets: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write(context, octets)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.connection).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.connection.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};

    use super::*;

    /// Sends pieces one after the other, and returns what the other end made of them.
    async fn spoken(pieces: &[&[u8]], end: bool) -> io::Result<(bool, Vec<u8>)> {
        let (mut near, far) = duplex(1024);
        let sending = async move {
            for piece in pieces {
                near.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            if end {
                near.shutdown().await.unwrap();
            }
            near
        };
        let (near, spoken) = tokio::join!(sending, peek(far));
        let rest = |mut connection: Box<dyn AsyncRead + Unpin>| async move {
            let mut text = Vec::new();
            connection.read_to_end(&mut text).await.map(|_| text)
        };
        let speaks = spoken?;
        drop(near);
        match speaks {
            Speaks::Data(connection) => Ok((true, rest(Box::new(connection)).await?)),
            Speaks::Grpc(connection) => Ok((false, rest(Box::new(connection)).await?)),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_line_of_the_data_plane_is_taken_off_wherever_it_is_cut() {
        let whole = b"kubebridge-data/1\nPRI * HTTP/2.0";
        for cut in 1..whole.len() {
            let pieces = [&whole[..cut], &whole[cut..]];
            let found = spoken(&pieces, false).await.unwrap();
            assert_eq!(found, (true, b"PRI * HTTP/2.0".to_vec()), "{cut}");
        }
        let single: Vec<&[u8]> = whole.chunks(1).collect();
        assert!(spoken(&single, false).await.unwrap().0);
    }

    #[tokio::test(start_paused = true)]
    async fn everything_else_is_handed_on_as_it_came() {
        for text in [
            &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..],
            b"kubebridge-data/2\nPRI",
            b"kubebridge-data/1\r\n",
            b"k\n",
            b"\0",
            b"GET / HTTP/1.1\r\n",
        ] {
            for cut in 1..=text.len() {
                let pieces = [&text[..cut], &text[cut..]];
                let found = spoken(&pieces, false).await.unwrap();
                assert_eq!(found, (false, text.to_vec()));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_says_too_little_is_not_waited_for() {
        for text in [&b""[..], b"k", b"kubebridge-data/1"] {
            let start = tokio::time::Instant::now();
            let error = spoken(&[text], false).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(start.elapsed(), PATIENCE);
            let error = spoken(&[text], true).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
