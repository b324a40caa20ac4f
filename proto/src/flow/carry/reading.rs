//! Reads of the local end that become DATA frames.
//!
//! Most are small or find nothing: they go through a buffer that all flows of a thread share, so
//! that a flow which moves little never asks for a large one.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use crate::flow::frame::{HEADER, MAX_DATA, data_header};
use crate::flow::shared::poll_read_shared;

/// The most octets of one read: two whole segments of the laptop's link (MTU 16,000, IPv6), so that
/// none is cut in pieces there.
pub(super) const READ: usize = 2 * 15_940;
/// Reads below this are copied into a buffer of their own size: kept until they are acknowledged,
/// they would keep all of a larger one.
const COPIED: usize = MAX_DATA / 2;

/// How a flow's local end is read.
#[derive(Debug, Default)]
pub(super) struct Reading {
    /// Whether the last read was a large one.
    is_bulk: bool,
}

impl Reading {
    /// Reads at most `room` octets, and returns their frame; an empty one is the end.
    pub(super) fn poll(
        &mut self,
        local: &mut (impl AsyncRead + Unpin),
        context: &mut Context<'_>,
        room: usize,
    ) -> Poll<io::Result<Bytes>> {
        let frame = ready!(if self.is_bulk {
            read_own(local, context, room)
        } else {
            poll_read_shared(local, context, room, framed)
        })?;
        self.is_bulk = frame.len() >= HEADER + COPIED;
        Poll::Ready(Ok(frame))
    }
}

fn read_own(
    local: &mut (impl AsyncRead + Unpin),
    context: &mut Context<'_>,
    room: usize,
) -> Poll<io::Result<Bytes>> {
    let mut buffer = BytesMut::with_capacity(HEADER + room);
    buffer.put_bytes(0, HEADER);
    let mut spare = (&mut buffer).limit(room);
    let count = ready!(poll_read_buf(Pin::new(local), context, &mut spare))?;
    if count < COPIED {
        return Poll::Ready(Ok(framed(&buffer[HEADER..])));
    }
    buffer[..HEADER].copy_from_slice(&data_header(count));
    Poll::Ready(Ok(buffer.freeze()))
}

fn framed(octets: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(HEADER + octets.len());
    frame.put_slice(&data_header(octets.len()));
    frame.put_slice(octets);
    frame.freeze()
}
