//! What stands in the bodies of a flow: `kind u8, length u16, payload`.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

/// The octets before a frame's payload.
pub const HEADER: usize = 3;
/// The most octets of a TCP flow in one frame: two of them fit a 64 KiB HTTP/2 frame, and a stream
/// that has its turn holds the others up for no longer than this takes.
pub const MAX_DATA: usize = 32 * 1024;
/// The longest UDP payload (IPv4).
pub const MAX_DATAGRAM: usize = 65_507;

const DATA: u8 = 0;
const CREDIT: u8 = 1;
const FIN: u8 = 2;

/// The length of a CREDIT's payload.
const CREDIT_LENGTH: usize = 12;

/// What a receiver has consumed, and how much it takes beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    /// Octets consumed since the flow began; a consumed end counts as one.
    pub consumed: u64,
    /// Octets that may be sent beyond these.
    pub window: u32,
}

/// One frame, or of a stream's DATA as much as there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// Octets of the flow; for datagrams exactly one.
    Data(Bytes),
    /// How much the sender of this frame has consumed.
    Credit(Credit),
    /// This direction ends after the octets before.
    Fin,
}

impl Frame {
    /// Writes the frame.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        match self {
            Self::Data(payload) => {
                let mut frame = BytesMut::with_capacity(HEADER + payload.len());
                frame.extend_from_slice(&data_header(payload.len()));
                frame.extend_from_slice(payload);
                frame.freeze()
            }
            Self::Credit(credit) => {
                let mut frame = BytesMut::with_capacity(HEADER + CREDIT_LENGTH);
                frame.extend_from_slice(&[CREDIT, 0, 12]);
                frame.extend_from_slice(&credit.consumed.to_be_bytes());
                frame.extend_from_slice(&credit.window.to_be_bytes());
                frame.freeze()
            }
            Self::Fin => Bytes::from_static(&[FIN, 0, 0]),
        }
    }
}

/// Returns what precedes a DATA frame's payload.
#[must_use]
pub(super) fn data_header(length: usize) -> [u8; HEADER] {
    debug_assert!(
        length <= usize::from(u16::MAX),
        "a frame is cut by its sender"
    );
    let length = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    [DATA, length[0], length[1]]
}

/// Octets that are no frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A DATA frame is longer than its sender may make it.
    #[error("a data frame of {0} octets")]
    DataLength(usize),
    /// A CREDIT frame has another length than it must have.
    #[error("a credit frame of {0} octets")]
    CreditLength(usize),
    /// A FIN frame has a payload.
    #[error("a final frame of {0} octets")]
    FinLength(usize),
}

/// Finds the frames in octets that come in pieces of any size.
///
/// Frames of a kind that only a newer peer knows are skipped.
#[derive(Debug)]
pub struct FrameReader {
    /// Whether DATA is handed on in whole frames only.
    whole: bool,
    /// What came and was not looked at yet.
    input: Bytes,
    /// A header, or payload that has to be whole, until it is.
    partial: BytesMut,
    payload: Option<Payload>,
}

#[derive(Debug, Clone, Copy)]
struct Payload {
    kind: u8,
    left: usize,
}

impl FrameReader {
    /// Reads a byte stream: DATA is handed on as it comes.
    #[must_use]
    pub fn stream() -> Self {
        Self::new(false)
    }

    /// Reads datagrams: DATA is handed on in whole frames.
    #[must_use]
    pub fn datagrams() -> Self {
        Self::new(true)
    }

    fn new(whole: bool) -> Self {
        Self {
            whole,
            input: Bytes::new(),
            partial: BytesMut::new(),
            payload: None,
        }
    }

    /// Takes what came. All frames of what came before have been read.
    pub fn push(&mut self, input: Bytes) {
        debug_assert!(self.input.is_empty(), "read what there is first");
        self.input = input;
    }

    /// Returns the next frame; `None` when more has to come first.
    ///
    /// # Errors
    ///
    /// These are no frames; nothing after it can be read.
    pub fn read(&mut self) -> Result<Option<Frame>, FrameError> {
        loop {
            let payload = match self.payload {
                Some(payload) => payload,
                None => match self.read_header()? {
                    Some(payload) => payload,
                    None => return Ok(None),
                },
            };
            match payload.kind {
                DATA if !self.whole => {
                    if let Some(piece) = self.take_piece(payload) {
                        return Ok(Some(Frame::Data(piece)));
                    }
                    if self.payload.is_some() {
                        return Ok(None);
                    }
                }
                DATA | CREDIT | FIN => match self.take_whole(payload) {
                    None => return Ok(None),
                    Some(octets) => return Ok(Some(whole(payload.kind, octets))),
                },
                // Skipped without being kept.
                _ => {
                    if self.take_piece(payload).is_none() && self.payload.is_some() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    fn read_header(&mut self) -> Result<Option<Payload>, FrameError> {
        let wanted = HEADER - self.partial.len();
        let taken = self.input.split_to(wanted.min(self.input.len()));
        self.partial.extend_from_slice(&taken);
        if self.partial.len() < HEADER {
            return Ok(None);
        }
        let kind = self.partial.get_u8();
        let left = usize::from(self.partial.get_u16());
        self.partial.clear();
        match (kind, left) {
            (DATA, _) if left > self.longest() => return Err(FrameError::DataLength(left)),
            (CREDIT, _) if left != CREDIT_LENGTH => return Err(FrameError::CreditLength(left)),
            (FIN, _) if left != 0 => return Err(FrameError::FinLength(left)),
            _ => {}
        }
        let payload = Payload { kind, left };
        self.payload = Some(payload);
        Ok(Some(payload))
    }

    fn longest(&self) -> usize {
        if self.whole { MAX_DATAGRAM } else { MAX_DATA }
    }

    /// Takes what there is of a payload; `None` when that is nothing.
    fn take_piece(&mut self, payload: Payload) -> Option<Bytes> {
        let piece = self.input.split_to(payload.left.min(self.input.len()));
        let left = payload.left - piece.len();
        self.payload = (left > 0).then_some(Payload { left, ..payload });
        (!piece.is_empty()).then_some(piece)
    }

    /// Takes a payload when all of it is there.
    fn take_whole(&mut self, payload: Payload) -> Option<Bytes> {
        if self.partial.is_empty() && self.input.len() >= payload.left {
            self.payload = None;
            return Some(self.input.split_to(payload.left));
        }
        let wanted = payload.left - self.partial.len();
        let taken = self.input.split_to(wanted.min(self.input.len()));
        self.partial.extend_from_slice(&taken);
        if self.partial.len() < payload.left {
            return None;
        }
        self.payload = None;
        Some(std::mem::take(&mut self.partial).freeze())
    }
}

/// Makes a frame of a payload whose length was checked with its header.
fn whole(kind: u8, mut octets: Bytes) -> Frame {
    match kind {
        CREDIT => Frame::Credit(Credit {
            consumed: octets.get_u64(),
            window: octets.get_u32(),
        }),
        FIN => Frame::Fin,
        _ => Frame::Data(octets),
    }
}

#[cfg(test)]
mod tests;
