//! The OPT pseudo-record (RFC 6891): what a client's says, and ours, which is the only one that ever leaves us.
//!
//! Options are checked for form and otherwise ignored: they are hop-by-hop, so none passes on.

use super::wire::{Frame, Reader, Section};
use super::{MessageError, UDP_PAYLOAD};
use crate::name::{RecordType, ResponseCode};

const DNSSEC_OK: u32 = 0x8000;
const OPTION_CLIENT_SUBNET: u16 = 8;
const OPTION_COOKIE: u16 = 10;

/// What an OPT record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edns {
    /// The largest UDP message the sender takes.
    pub udp_size: u16,
    /// Whether the sender wants DNSSEC records (DO).
    pub dnssec_ok: bool,
    /// The EDNS version.
    pub version: u8,
}

impl Edns {
    /// The length of an OPT record without options.
    pub(crate) const LENGTH: usize = 11;

    pub(crate) fn ours(dnssec_ok: bool) -> Self {
        Self {
            udp_size: UDP_PAYLOAD,
            dnssec_ok,
            version: 0,
        }
    }

    /// Appends the record; the caller counts it.
    pub(crate) fn write(&self, wire: &mut Vec<u8>, code: ResponseCode) {
        wire.push(0);
        wire.extend_from_slice(&RecordType::OPT.0.to_be_bytes());
        wire.extend_from_slice(&self.udp_size.to_be_bytes());
        let upper_code = u32::from(code.0 >> 4 & 0xff) << 24;
        let ttl =
            upper_code | u32::from(self.version) << 16 | if self.dnssec_ok { DNSSEC_OK } else { 0 };
        wire.extend_from_slice(&ttl.to_be_bytes());
        wire.extend_from_slice(&0u16.to_be_bytes());
    }

    /// Finds the OPT record of a message and the upper bits of the response code.
    ///
    /// More than one, one outside the additional section or off the root, and options of bad form are errors.
    pub(crate) fn read(frame: &Frame<'_>) -> Result<Option<(Self, u16)>, MessageError> {
        let mut found = None;
        for record in frame
            .records
            .iter()
            .filter(|record| record.rtype == RecordType::OPT)
        {
            let at_root = frame.packet.get(record.start) == Some(&0);
            if found.is_some() || record.section != Section::Additional || !at_root {
                return Err(MessageError::BadEdns);
            }
            check_options(&frame.packet[record.data.clone()])?;
            let [upper_code, version, ..] = record.ttl.to_be_bytes();
            let edns = Self {
                udp_size: record.class,
                dnssec_ok: record.ttl & DNSSEC_OK != 0,
                version,
            };
            found = Some((edns, u16::from(upper_code) << 4));
        }
        Ok(found)
    }
}

fn check_options(data: &[u8]) -> Result<(), MessageError> {
    let mut reader = Reader::at(data, 0);
    while reader.position() < data.len() {
        let bad = |_| MessageError::BadEdns;
        let code = reader.u16().map_err(bad)?;
        let length = reader.u16().map_err(bad)?;
        let value = reader.bytes(usize::from(length)).map_err(bad)?;
        let sound = match code {
            OPTION_CLIENT_SUBNET => client_subnet_is_sound(value),
            // RFC 7873 §4: eight octets, or eight and a server part of 8 to 32.
            OPTION_COOKIE => matches!(length, 8 | 16..=40),
            _ => true,
        };
        if !sound {
            return Err(MessageError::BadEdns);
        }
    }
    Ok(())
}

/// Checks family, prefix length and address length (RFC 7871 §6); family 0 carries no address.
fn client_subnet_is_sound(value: &[u8]) -> bool {
    let Some(([family_high, family_low, source, scope], address)) = value.split_first_chunk()
    else {
        return false;
    };
    let longest = match u16::from_be_bytes([*family_high, *family_low]) {
        0 => 0,
        1 => 32,
        2 => 128,
        _ => return false,
    };
    *source <= longest && *scope == 0 && address.len() == usize::from(*source).div_ceil(8)
}
