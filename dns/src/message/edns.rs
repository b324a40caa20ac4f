//! The OPT pseudo-record (RFC 6891): what a client's says, and ours, which is the only one that ever leaves us.
//!
//! Options are checked for form and otherwise ignored: they are hop-by-hop, so none passes on.

use super::wire::{Frame, Located, Reader, Section};
use super::{MessageError, Origin, UDP_PAYLOAD};
use crate::name::{RecordType, ResponseCode};

const DNSSEC_OK: u32 = 0x8000;
const OPTION_CLIENT_SUBNET: u16 = 8;
const OPTION_COOKIE: u16 = 10;
const OPTION_EXTENDED_ERROR: u16 = 15;

/// Tells askers with EDNS why they get the code they get (RFC 8914).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExtendedError {
    code: u16,
    text: &'static str,
}

impl ExtendedError {
    /// The answer's time is over, and no upstream gave a newer one (RFC 8767).
    pub(crate) const STALE: Self = Self::new(3, "");
    /// The same of a name that did not exist.
    pub(crate) const STALE_NXDOMAIN: Self = Self::new(19, "");
    /// Every upstream kept silent.
    pub(crate) const NO_REACHABLE_AUTHORITY: Self = Self::new(22, "");
    /// The way to every upstream is broken.
    pub(crate) const NETWORK_ERROR: Self = Self::new(23, "");
    /// The query had come back to us, or every upstream for it leads back to us.
    pub(crate) const LOOP: Self = Self::new(0, "loop");

    /// The most octets that telling one takes.
    pub(crate) const LENGTH: usize = 10;

    const fn new(code: u16, text: &'static str) -> Self {
        Self { code, text }
    }

    fn write(self, wire: &mut Vec<u8>) {
        // The longest text has four letters.
        let length = 2 + u16::try_from(self.text.len()).unwrap_or_default();
        wire.extend_from_slice(&(4 + length).to_be_bytes());
        wire.extend_from_slice(&OPTION_EXTENDED_ERROR.to_be_bytes());
        wire.extend_from_slice(&length.to_be_bytes());
        wire.extend_from_slice(&self.code.to_be_bytes());
        wire.extend_from_slice(self.text.as_bytes());
    }
}

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
        self.write_saying(wire, code, None);
    }

    /// Appends the record with the reason for the code, if there is one to tell.
    pub(crate) fn write_saying(
        &self,
        wire: &mut Vec<u8>,
        code: ResponseCode,
        reason: Option<ExtendedError>,
    ) {
        self.write_fixed(wire, code);
        match reason {
            Some(reason) => reason.write(wire),
            None => wire.extend_from_slice(&[0, 0]),
        }
    }

    /// Appends the record of a query, with where it began.
    pub(crate) fn write_from(&self, wire: &mut Vec<u8>, origin: Option<Origin>) {
        self.write_fixed(wire, ResponseCode::NOERROR);
        let length = origin.map_or(0, |_| Origin::LENGTH);
        wire.extend_from_slice(&length.to_be_bytes());
        if let Some(origin) = origin {
            origin.write(wire);
        }
    }

    /// Appends all but the options and their length.
    fn write_fixed(&self, wire: &mut Vec<u8>, code: ResponseCode) {
        wire.push(0);
        wire.extend_from_slice(&RecordType::OPT.0.to_be_bytes());
        wire.extend_from_slice(&self.udp_size.to_be_bytes());
        let upper_code = u32::from(code.0 >> 4 & 0xff) << 24;
        let ttl =
            upper_code | u32::from(self.version) << 16 | if self.dnssec_ok { DNSSEC_OK } else { 0 };
        wire.extend_from_slice(&ttl.to_be_bytes());
    }

    /// Finds the OPT record of a client's query and checks it.
    ///
    /// More than one, one outside the additional section or off the root, and options of bad form are
    /// errors. The options of a version nobody knows may have any form (RFC 6891 §6.1.3).
    pub(crate) fn of_query(frame: &Frame<'_>) -> Result<Option<Self>, MessageError> {
        let Some(record) = only_opt(frame)? else {
            return Ok(None);
        };
        let edns = Self::of_record(record);
        if edns.version == 0 {
            check_options(&frame.packet[record.data.clone()])?;
        }
        Ok(Some(edns))
    }

    /// Finds the OPT record of a reply and the upper bits of its response code.
    ///
    /// Its options are not looked at: none is used, and some mean something else than in a query,
    /// such as the scope of a client subnet (RFC 7871 §7.2).
    pub(crate) fn of_reply(frame: &Frame<'_>) -> Result<Option<(Self, u16)>, MessageError> {
        let found = only_opt(frame)?.map(|record| {
            let [upper_code, ..] = record.ttl.to_be_bytes();
            (Self::of_record(record), u16::from(upper_code) << 4)
        });
        Ok(found)
    }

    /// Reads the first OPT record wherever and whatever it is: who sends one is sent one.
    pub(crate) fn first(frame: &Frame<'_>) -> Option<Self> {
        opts(frame).next().map(Self::of_record)
    }

    fn of_record(record: &Located) -> Self {
        let [_, version, ..] = record.ttl.to_be_bytes();
        Self {
            udp_size: record.class,
            dnssec_ok: record.ttl & DNSSEC_OK != 0,
            version,
        }
    }
}

fn opts<'a>(frame: &'a Frame<'_>) -> impl Iterator<Item = &'a Located> {
    frame
        .records
        .iter()
        .filter(|record| record.rtype == RecordType::OPT)
}

/// Returns the one OPT record, which is in the additional section and owned by the root.
fn only_opt<'a>(frame: &'a Frame<'_>) -> Result<Option<&'a Located>, MessageError> {
    let mut all = opts(frame);
    let Some(record) = all.next() else {
        return Ok(None);
    };
    let at_root = frame.packet.get(record.start) == Some(&0);
    if all.next().is_some() || record.section != Section::Additional || !at_root {
        return Err(MessageError::BadEdns);
    }
    Ok(Some(record))
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

/// Checks family, prefix length and address (RFC 7871 §6, §7.1.2); family 0 carries no address.
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
    let beyond_prefix = match source % 8 {
        0 => 0,
        used => address.last().map_or(0, |last| last & 0xff >> used),
    };
    *source <= longest
        && *scope == 0
        && address.len() == usize::from(*source).div_ceil(8)
        && beyond_prefix == 0
}
