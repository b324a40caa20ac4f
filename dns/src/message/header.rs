//! The twelve octets every message begins with (RFC 1035 §4.1.1).

/// Bits of the second header word.
pub(crate) mod flags {
    /// The message is a response.
    pub(crate) const QR: u16 = 0x8000;
    /// The kind of query.
    pub(crate) const OPCODE: u16 = 0x7800;
    /// The answer is the server's own.
    pub(crate) const AA: u16 = 0x0400;
    /// The message was cut to fit.
    pub(crate) const TC: u16 = 0x0200;
    /// Recursion is desired.
    pub(crate) const RD: u16 = 0x0100;
    /// Recursion is available.
    pub(crate) const RA: u16 = 0x0080;
    /// The data was validated.
    pub(crate) const AD: u16 = 0x0020;
    /// Checking is disabled.
    pub(crate) const CD: u16 = 0x0010;
    /// The lower bits of the response code.
    pub(crate) const RCODE: u16 = 0x000f;
}

/// A message header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) id: u16,
    pub(crate) flags: u16,
    /// Questions, answers, authority records, additional records.
    pub(crate) counts: [u16; 4],
}

impl Header {
    pub(crate) const LENGTH: usize = 12;

    pub(crate) fn read(packet: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LENGTH] = packet.first_chunk()?;
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        Some(Self {
            id: word(0),
            flags: word(2),
            counts: [word(4), word(6), word(8), word(10)],
        })
    }

    /// Appends the header to an empty buffer.
    pub(crate) fn write(&self, wire: &mut Vec<u8>) {
        for word in [self.id, self.flags].iter().chain(&self.counts) {
            wire.extend_from_slice(&word.to_be_bytes());
        }
    }

    /// Writes the header over the first octets of a message, which has at least those.
    pub(crate) fn overwrite(&self, wire: &mut [u8]) {
        for (slot, word) in wire
            .chunks_exact_mut(2)
            .zip([self.id, self.flags].iter().chain(&self.counts))
        {
            slot.copy_from_slice(&word.to_be_bytes());
        }
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}
