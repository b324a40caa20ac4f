//! DNS messages on a stream: two bytes of length, then the message (RFC 1035 §4.2.2).
//!
//! Used by the TCP server and the TCP transport. Timeouts are theirs: this file only cuts bytes
//! into messages, and every wait in it may be dropped and begun anew without losing input.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::upstream::HEADER;

/// How much is read at once: most queries and answers are far smaller.
const CHUNK: usize = 2048;

/// Tells why a stream cannot go on giving messages.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The stream failed.
    #[error("cannot read from the stream")]
    Read(#[source] io::Error),
    /// A frame is too short for a header, so the peer does not speak DNS.
    #[error("a frame of {0} bytes is no DNS message")]
    Short(usize),
}

/// Cuts a byte stream into messages.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    stream: R,
    buffer: BytesMut,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads from the stream.
    pub(crate) fn new(stream: R) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
        }
    }

    /// Returns the next message, or `None` when the peer has said it will send no more.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Reads what is there, at least a byte, and returns how much; 0 is the end.
    pub(crate) async fn fill(&mut self) -> Result<usize, FrameError> {
        self.buffer.reserve(CHUNK);
        let read = self.stream.read_buf(&mut self.buffer).await;
        read.map_err(FrameError::Read)
    }

    /// Returns the next message if all of it has been read.
    pub(crate) fn take(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let &[high, low, ..] = &*self.buffer else {
            return Ok(None);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length < HEADER {
            return Err(FrameError::Short(length));
        }
        let Some(message) = self.buffer.get(2..2 + length) else {
            return Ok(None);
        };
        let message = message.to_vec();
        self.buffer.advance(2 + length);
        Ok(Some(message))
    }

    /// Tells whether part of a message has arrived and the rest has not.
    pub(crate) fn is_partial(&self) -> bool {
        !self.buffer.is_empty()
    }
}

/// Puts the length before a message; `None` when it is too long for a frame.
pub(crate) fn frame(message: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(message.len()).ok()?;
    let mut framed = Vec::with_capacity(2 + message.len());
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    Some(framed)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn messages_are_found_in_one_piece_and_byte_by_byte() {
        let (mut peer, stream) = tokio::io::duplex(1);
        let sent = [vec![7; 12], vec![8; 700]];
        let bytes = sent.iter().flat_map(|m| frame(m).unwrap());
        let bytes: Vec<u8> = bytes.collect();
        let whole: &[u8] = &bytes;
        let mut in_one_piece = FrameReader::new(whole);
        let writer = async {
            peer.write_all(&bytes).await.unwrap();
            drop(peer);
        };
        let mut byte_by_byte = FrameReader::new(stream);
        let reader = async {
            for message in &sent {
                assert_eq!(byte_by_byte.next().await.unwrap().as_ref(), Some(message));
            }
            assert_eq!(byte_by_byte.next().await.unwrap(), None);
        };
        tokio::join!(writer, reader);
        for message in &sent {
            assert_eq!(in_one_piece.next().await.unwrap().as_ref(), Some(message));
        }
    }

    #[tokio::test]
    async fn a_frame_too_short_for_a_header_is_an_error() {
        let bytes: &[u8] = b"\0\x0b01234567890";
        let error = FrameReader::new(bytes).next().await.unwrap_err();
        assert!(matches!(error, FrameError::Short(11)));
    }

    #[tokio::test]
    async fn a_message_cut_off_by_the_end_is_not_returned() {
        let bytes: &[u8] = b"\0\x0c0123";
        let mut reader = FrameReader::new(bytes);
        assert_eq!(reader.next().await.unwrap(), None);
        assert!(reader.is_partial());
    }

    #[test]
    fn a_message_over_64_kib_has_no_frame() {
        assert_eq!(frame(&vec![0; 65_536]), None);
        assert_eq!(frame(&vec![0; 65_535]).unwrap().len(), 65_537);
    }
}
