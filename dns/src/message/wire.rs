//! Walks a message from front to back: names with their pointers, the question, and where each record lies.
//!
//! Record data is located, not read. Pointers may only go backwards and never into the header, which
//! rules out loops.

use std::ops::Range;

use super::{Header, MessageError};
use crate::name::{MAX_LABEL, MAX_NAME, Name, RecordType};

const POINTER: u8 = 0xc0;
/// A name has at most 127 labels, so no honest sender needs more pointers; the bound keeps chains of pointers cheap.
const MOST_POINTERS: usize = 127;

/// A position in a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    packet: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn at(packet: &'a [u8], at: usize) -> Self {
        Self { packet, at }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], MessageError> {
        let taken = self
            .packet
            .get(self.at..)
            .and_then(|rest| rest.get(..count))
            .ok_or(MessageError::Cut)?;
        self.at += count;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, MessageError> {
        Ok(self.bytes(1)?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, MessageError> {
        let bytes = self.bytes(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, MessageError> {
        let bytes = self.bytes(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads a name, following its pointers, and stops behind it.
    pub(crate) fn name(&mut self) -> Result<Name, MessageError> {
        let mut wire = [0u8; MAX_NAME];
        let mut length = 0;
        let mut reader = *self;
        let mut segment = self.at;
        let mut behind = None;
        let mut pointers = 0;
        loop {
            let octet = reader.u8()?;
            match octet {
                0..=63 => {
                    let label = reader.bytes(usize::from(octet))?;
                    let end = length + 1 + label.len();
                    let room = wire.get_mut(length..end).ok_or(MessageError::BadName)?;
                    room[0] = octet;
                    room[1..].copy_from_slice(label);
                    length = end;
                    if octet == 0 {
                        break;
                    }
                }
                POINTER.. => {
                    let target = usize::from(u16::from_be_bytes([octet & !POINTER, reader.u8()?]));
                    pointers += 1;
                    if target >= segment || target < Header::LENGTH || pointers > MOST_POINTERS {
                        return Err(MessageError::BadName);
                    }
                    behind = behind.or(Some(reader.at));
                    segment = target;
                    reader.at = target;
                }
                _ => return Err(MessageError::BadName),
            }
        }
        self.at = behind.unwrap_or(reader.at);
        Name::from_wire(&wire[..length]).map_err(|_| MessageError::BadName)
    }

    /// Passes over a name without following a pointer.
    pub(crate) fn skip_name(&mut self) -> Result<(), MessageError> {
        loop {
            let octet = self.u8()?;
            match usize::from(octet) {
                0 => return Ok(()),
                length if length <= MAX_LABEL => {
                    self.bytes(length)?;
                }
                _ if octet >= POINTER => {
                    self.u8()?;
                    return Ok(());
                }
                _ => return Err(MessageError::BadName),
            }
        }
    }
}

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    Answer,
    Authority,
    Additional,
}

/// A record located in a message.
#[derive(Debug, Clone)]
pub(crate) struct Located {
    pub(crate) section: Section,
    /// Where the owner begins, and with it the record.
    pub(crate) start: usize,
    pub(crate) rtype: RecordType,
    pub(crate) class: u16,
    pub(crate) ttl_at: usize,
    pub(crate) ttl: u32,
    pub(crate) data: Range<usize>,
}

/// A message whose frame is sound.
#[derive(Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) packet: &'a [u8],
    pub(crate) header: Header,
    /// The first question, and where the questions end.
    pub(crate) question: Option<(Name, RecordType, u16)>,
    pub(crate) questions_end: usize,
    pub(crate) records: Vec<Located>,
    /// Where the last record ends.
    pub(crate) end: usize,
}

impl<'a> Frame<'a> {
    /// Walks the whole message; bytes behind it are allowed here and seen in `end`.
    pub(crate) fn read(packet: &'a [u8]) -> Result<Self, MessageError> {
        let header = Header::read(packet).ok_or(MessageError::Cut)?;
        let mut reader = Reader::at(packet, Header::LENGTH);
        let mut question = None;
        for number in 0..header.counts[0] {
            if number == 0 {
                question = Some((reader.name()?, RecordType(reader.u16()?), reader.u16()?));
            } else {
                reader.skip_name()?;
                reader.bytes(4)?;
            }
        }
        let questions_end = reader.position();
        let mut records = Vec::new();
        for (section, count) in [Section::Answer, Section::Authority, Section::Additional]
            .into_iter()
            .zip(&header.counts[1..])
        {
            for _ in 0..*count {
                records.push(located(&mut reader, section)?);
            }
        }
        Ok(Self {
            packet,
            header,
            question,
            questions_end,
            records,
            end: reader.position(),
        })
    }

    pub(crate) fn owner(&self, record: &Located) -> Result<Name, MessageError> {
        self.owner_at(record.start)
    }

    pub(crate) fn owner_at(&self, start: usize) -> Result<Name, MessageError> {
        Reader::at(self.packet, start).name()
    }
}

fn located(reader: &mut Reader<'_>, section: Section) -> Result<Located, MessageError> {
    let start = reader.position();
    reader.skip_name()?;
    let rtype = RecordType(reader.u16()?);
    let class = reader.u16()?;
    let ttl_at = reader.position();
    let ttl = reader.u32()?;
    let length = usize::from(reader.u16()?);
    let data_at = reader.position();
    reader.bytes(length)?;
    Ok(Located {
        section,
        start,
        rtype,
        class,
        ttl_at,
        ttl,
        data: data_at..data_at + length,
    })
}
