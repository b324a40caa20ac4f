//! Reads through a buffer that everything on a thread shares.
//!
//! Most reads find little or nothing: what is kept of them has its own size, and nothing is asked
//! of the allocator for those that find nothing.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// The most octets of one read.
pub(super) const MOST: usize = 64 * 1024;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; MOST].into());
}

/// Reads at most `most` octets and hands them on; none are the end.
///
/// The stream is a socket or the laptop's own stack: while it is read, nothing else is read so.
pub(super) fn poll_read_shared<R>(
    stream: &mut (impl AsyncRead + Unpin),
    context: &mut Context<'_>,
    most: usize,
    take: impl FnOnce(&[u8]) -> R,
) -> Poll<io::Result<R>> {
    SHARED.with_borrow_mut(|shared| {
        let most = most.min(shared.len());
        let mut buffer = ReadBuf::new(&mut shared[..most]);
        ready!(Pin::new(stream).poll_read(context, &mut buffer))?;
        Poll::Ready(Ok(take(buffer.filled())))
    })
}
