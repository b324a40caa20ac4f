//! An upstream's reply read into records that no longer refer to the message they came in.

use super::rdata::expand;
use super::wire::{Frame, Section};
use super::{Edns, Header, MessageError};
use crate::name::{Name, RecordType, ResponseCode};

/// TTLs with the top bit set mean zero (RFC 2181 §8).
const LARGEST_TTL: u32 = i32::MAX as u32;

/// A record on its own: names in its data are expanded, everything else is as on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) owner: Name,
    pub(crate) rtype: RecordType,
    pub(crate) class: u16,
    pub(crate) ttl: u32,
    pub(crate) data: Vec<u8>,
}

/// A message read whole: OPT is taken out of the records, the additional section is left behind.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) header: Header,
    pub(crate) code: ResponseCode,
    pub(crate) question: Option<(Name, RecordType, u16)>,
    pub(crate) answer: Vec<Record>,
    pub(crate) authority: Vec<Record>,
    pub(crate) edns: Option<Edns>,
}

impl Reply {
    pub(crate) fn read(packet: &[u8]) -> Result<Self, MessageError> {
        let frame = Frame::read(packet)?;
        let (edns, upper_code) = Edns::of_reply(&frame)?.unzip();
        let mut answer = Vec::new();
        let mut authority = Vec::new();
        for record in &frame.records {
            let section = match record.section {
                Section::Answer => &mut answer,
                Section::Authority => &mut authority,
                Section::Additional => continue,
            };
            section.push(Record {
                owner: frame.owner(record)?,
                rtype: record.rtype,
                class: record.class,
                ttl: if record.ttl > LARGEST_TTL {
                    0
                } else {
                    record.ttl
                },
                data: expand(packet, record.rtype, record.data.clone())?,
            });
        }
        let lower_code = frame.header.flags & super::flags::RCODE;
        Ok(Self {
            header: frame.header,
            code: ResponseCode(upper_code.unwrap_or(0) | lower_code),
            question: frame.question,
            answer,
            authority,
            edns,
        })
    }
}
