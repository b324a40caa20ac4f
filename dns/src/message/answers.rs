//! A reply for those who want to look at it: the command line, status, tests.
//!
//! Not used on the way of an answer to its asker.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use hickory_proto::rr::{RData, RecordType as HickoryType};
use hickory_proto::serialize::binary::{BinDecoder, Restrict};

use super::rdata::names_in;
use super::{Header, MessageError, Record, Reply, flags};
use crate::name::{Name, RecordType, ResponseCode};

/// A reply taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// The message id.
    pub id: u16,
    /// The response code, extended bits included.
    pub code: ResponseCode,
    /// The header flags.
    pub flags: Flags,
    /// The question as echoed.
    pub question: Option<(Name, RecordType)>,
    /// The answer section in its order.
    pub answers: Vec<Answer>,
    /// The authority section in its order.
    pub authority: Vec<Answer>,
    /// Whether the reply carries an OPT record, and what it says.
    pub edns: Option<super::Edns>,
}

/// The flags of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flags {
    /// Authoritative answer (AA).
    pub authoritative: bool,
    /// Truncated (TC).
    pub truncated: bool,
    /// Recursion desired (RD).
    pub recursion_desired: bool,
    /// Recursion available (RA).
    pub recursion_available: bool,
    /// Authentic data (AD).
    pub authentic: bool,
    /// Checking disabled (CD).
    pub checking_disabled: bool,
}

/// A record of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The owner, its case as in the reply.
    pub owner: Name,
    /// The type.
    pub rtype: RecordType,
    /// The time to live in seconds.
    pub ttl: u32,
    /// The data.
    pub data: Data,
}

/// The data of a record as far as it is understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// An address (A, AAAA).
    Address(IpAddr),
    /// A single name (CNAME, PTR, NS).
    Name(Name),
    /// Anything else in presentation form, `\# LENGTH HEX` where that is not known (RFC 3597 §5).
    Text(String),
}

impl Parsed {
    /// Iterates over the addresses in the answer section.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.answers.iter().filter_map(|answer| match answer.data {
            Data::Address(address) => Some(address),
            Data::Name(_) | Data::Text(_) => None,
        })
    }
}

impl fmt::Display for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{address}"),
            Self::Name(name) => write!(f, "{name}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Takes a reply apart.
pub fn answers(reply: &[u8]) -> Result<Parsed, MessageError> {
    let reply = Reply::read(reply)?;
    Ok(Parsed {
        id: reply.header.id,
        code: reply.code,
        flags: Flags::of(reply.header),
        question: reply.question.map(|(name, rtype, _)| (name, rtype)),
        answers: reply.answer.into_iter().map(Answer::of).collect(),
        authority: reply.authority.into_iter().map(Answer::of).collect(),
        edns: reply.edns,
    })
}

impl Flags {
    fn of(header: Header) -> Self {
        Self {
            authoritative: header.has(flags::AA),
            truncated: header.has(flags::TC),
            recursion_desired: header.has(flags::RD),
            recursion_available: header.has(flags::RA),
            authentic: header.has(flags::AD),
            checking_disabled: header.has(flags::CD),
        }
    }
}

impl Answer {
    fn of(record: Record) -> Self {
        let data = data_of(record.rtype, &record.data);
        Self {
            owner: record.owner,
            rtype: record.rtype,
            ttl: record.ttl,
            data,
        }
    }
}

fn data_of(rtype: RecordType, data: &[u8]) -> Data {
    let single_name = || names_in(rtype, data).into_iter().next();
    let known = match rtype {
        RecordType::A => data
            .try_into()
            .ok()
            .map(|octets: [u8; 4]| Data::Address(Ipv4Addr::from(octets).into())),
        RecordType::AAAA => data
            .try_into()
            .ok()
            .map(|octets: [u8; 16]| Data::Address(Ipv6Addr::from(octets).into())),
        RecordType::CNAME | RecordType::PTR | RecordType::NS => single_name().map(Data::Name),
        RecordType::TXT => quoted_strings(data).map(Data::Text),
        _ => presentation(rtype, data).map(Data::Text),
    };
    known.unwrap_or_else(|| Data::Text(generic(data)))
}

fn quoted_strings(data: &[u8]) -> Option<String> {
    let mut rest = data;
    let mut text = String::new();
    while let Some((length, tail)) = rest.split_first() {
        let (string, next) = tail.split_at_checked(usize::from(*length))?;
        let gap = if text.is_empty() { "" } else { " " };
        text += &format!("{gap}\"{}\"", string.escape_ascii());
        rest = next;
    }
    Some(text)
}

/// Lets hickory-proto word the types it knows.
fn presentation(rtype: RecordType, data: &[u8]) -> Option<String> {
    let known = HickoryType::from(rtype.0);
    if matches!(known, HickoryType::Unknown(_)) {
        return None;
    }
    let length = u16::try_from(data.len()).ok()?;
    let mut decoder = BinDecoder::new(data);
    let read = RData::read(&mut decoder, known, Restrict::new(length)).ok()?;
    decoder.is_empty().then(|| read.to_string())
}

fn generic(data: &[u8]) -> String {
    let hex: String = data.iter().map(|octet| format!("{octet:02x}")).collect();
    format!("\\# {} {hex}", data.len()).trim_end().to_owned()
}
