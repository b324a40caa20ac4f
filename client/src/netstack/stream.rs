//! A flow as a stream: what the tunnel reads and writes.
//!
//! It waits by smoltcp's own wakers and copies straight from and to the socket's buffers.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use smoltcp::socket::tcp::{RecvError, Socket, State};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::flow::{Change, Flow};
use crate::flows::Local;

/// The laptop's end of a TCP flow. Dropped before both sides have finished, it resets the flow.
#[derive(Debug)]
pub(super) struct FlowStream {
    flow: Arc<Flow>,
}

impl FlowStream {
    pub(super) fn new(flow: Arc<Flow>) -> Self {
        Self { flow }
    }
}

impl AsyncRead for FlowStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.flow.with_socket(|socket| {
            if socket.state() == State::SynReceived {
                socket.register_recv_waker(cx.waker());
                return (Poll::Pending, Change::None);
            }
            match receive(socket, buffer) {
                Ok(0) if buffer.remaining() > 0 => {
                    socket.register_recv_waker(cx.waker());
                    (Poll::Pending, Change::None)
                }
                Ok(_) => (Poll::Ready(Ok(())), Change::Read),
                Err(RecvError::Finished) => (Poll::Ready(Ok(())), Change::None),
                Err(RecvError::InvalidState) => {
                    let reset = io::Error::from(io::ErrorKind::ConnectionReset);
                    (Poll::Ready(Err(reset)), Change::None)
                }
            }
        })
    }
}

impl AsyncWrite for FlowStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.flow.with_socket(|socket| match socket.state() {
            State::SynReceived => {
                socket.register_send_waker(cx.waker());
                (Poll::Pending, Change::None)
            }
            State::Established | State::CloseWait => match socket.send_slice(bytes) {
                Ok(0) if !bytes.is_empty() => {
                    socket.register_send_waker(cx.waker());
                    (Poll::Pending, Change::None)
                }
                Ok(written) => (Poll::Ready(Ok(written)), Change::Made),
                Err(_) => (Poll::Ready(Err(broken_pipe())), Change::None),
            },
            State::Closed | State::Listen => {
                let reset = io::Error::from(io::ErrorKind::ConnectionReset);
                (Poll::Ready(Err(reset)), Change::None)
            }
            State::SynSent
            | State::FinWait1
            | State::FinWait2
            | State::Closing
            | State::LastAck
            | State::TimeWait => (Poll::Ready(Err(broken_pipe())), Change::None),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flow.with_socket(|socket| {
            // A FIN has its place behind the SYN, which is not confirmed yet.
            if socket.state() == State::SynReceived {
                socket.register_send_waker(cx.waker());
                return (Poll::Pending, Change::None);
            }
            socket.close();
            (Poll::Ready(Ok(())), Change::Made)
        })
    }
}

impl Local for FlowStream {
    fn abort(&mut self) {
        self.flow.abort();
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.flow.poll_reset(cx)
    }
}

impl Drop for FlowStream {
    fn drop(&mut self) {
        self.flow.with_socket(|socket| match socket.state() {
            State::Closing | State::LastAck | State::TimeWait | State::Closed => ((), Change::None),
            State::Listen
            | State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait => (socket.abort(), Change::Made),
        });
    }
}

/// Takes what there is room for, from both ends of the socket's ring, and returns how much.
fn receive(socket: &mut Socket<'_>, buffer: &mut ReadBuf<'_>) -> Result<usize, RecvError> {
    let mut taken = 0;
    for _ in 0..2 {
        let piece = socket.recv(|octets| {
            let count = octets.len().min(buffer.remaining());
            buffer.put_slice(&octets[..count]);
            (count, count)
        });
        match piece {
            Ok(0) => break,
            Ok(count) => taken += count,
            // What came before the end is taken first.
            Err(_) if taken > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(taken)
}

fn broken_pipe() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}
