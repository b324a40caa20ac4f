//! Looks at a packet from a client before anything else does: a query to answer, a reply to send at once, or nothing.
//!
//! The checks are ordered so that a reply always reaches an asker that can be understood at all, and
//! so that nothing odd is ever forwarded. No bytes make it panic.

use super::wire::Frame;
use super::{CLASS_IN, Edns, Header, Query, error_reply, flags, push_question, reply_flags};
use crate::name::{RecordType, ResponseCode};

/// What to do with a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// Answer this question.
    Query(Query),
    /// Send these bytes: the packet is malformed, or of a kind that has a fixed answer.
    Reply(Vec<u8>),
    /// Say nothing: too short to answer, or itself a response.
    Drop,
}

/// The most records a query may have in authority (IXFR has one) and additional (OPT and TSIG).
const MOST_AUTHORITY: u16 = 1;
const MOST_ADDITIONAL: u16 = 2;
/// How long the fixed answer to `ANY` may be kept; it never changes.
const ANY_TTL: u32 = 3600;

/// Checks a packet from a client.
pub fn check(packet: &[u8]) -> Checked {
    let Some(header) = Header::read(packet) else {
        return Checked::Drop;
    };
    if header.has(flags::QR) {
        return Checked::Drop;
    }
    let frame = Frame::read(packet).ok();
    let Some((query, sound)) = frame.as_ref().and_then(read) else {
        let opcode = header.flags & flags::OPCODE;
        let code = if opcode == 0 {
            ResponseCode::FORMERR
        } else {
            ResponseCode::NOTIMP
        };
        let edns = frame.as_ref().and_then(Edns::first);
        return Checked::Reply(bare_reply(header, edns, code));
    };
    if header.flags & flags::OPCODE != 0 {
        let mut reply = error_reply(&query, ResponseCode::NOTIMP);
        copy_opcode(&mut reply, header);
        return Checked::Reply(reply);
    }
    if !sound {
        return Checked::Reply(error_reply(&query, ResponseCode::FORMERR));
    }
    judge(query)
}

/// Reads the one question and the OPT record, and says whether the rest is as a query's should be.
fn read(frame: &Frame<'_>) -> Option<(Query, bool)> {
    let header = frame.header;
    let [questions, answers, authority, additional] = header.counts;
    if questions != 1 {
        return None;
    }
    let owners_are_names = || {
        let mut records = frame.records.iter();
        records.all(|record| frame.owner(record).is_ok())
    };
    let sound = frame.end == frame.packet.len()
        && answers == 0
        && authority <= MOST_AUTHORITY
        && additional <= MOST_ADDITIONAL
        && owners_are_names()
        && Edns::of_query(frame).is_ok();
    let (name, rtype, class) = frame.question.clone()?;
    let query = Query {
        id: header.id,
        rd: header.has(flags::RD),
        ad: header.has(flags::AD),
        cd: header.has(flags::CD),
        name,
        rtype,
        class,
        edns: Edns::first(frame),
    };
    Some((query, sound))
}

/// Sorts out what is well-formed but not for us to resolve.
fn judge(query: Query) -> Checked {
    if query.edns.is_some_and(|edns| edns.version > 0) {
        return Checked::Reply(error_reply(&query, ResponseCode::BADVERS));
    }
    if query.class != CLASS_IN {
        return Checked::Reply(error_reply(&query, ResponseCode::REFUSED));
    }
    let code = match query.rtype {
        RecordType::AXFR | RecordType::IXFR => ResponseCode::REFUSED,
        RecordType(0) | RecordType::OPT | RecordType::TSIG | RecordType::TKEY => {
            ResponseCode::FORMERR
        }
        RecordType::MAILA | RecordType::MAILB => ResponseCode::NOTIMP,
        RecordType::ANY => return Checked::Reply(any_reply(&query)),
        _ => return Checked::Query(query),
    };
    Checked::Reply(error_reply(&query, code))
}

/// Answers `ANY` with one HINFO record (RFC 8482 §4.2), so that nothing is forwarded or amplified.
fn any_reply(query: &Query) -> Vec<u8> {
    let mut wire = Vec::new();
    let additional = u16::from(query.edns.is_some());
    Header {
        id: query.id,
        flags: reply_flags(query.into(), ResponseCode::NOERROR),
        counts: [1, 1, 0, additional],
    }
    .write(&mut wire);
    push_question(&mut wire, &query.name, query.rtype, query.class);
    wire.extend_from_slice(&[0xc0, 0x0c]);
    wire.extend_from_slice(&RecordType::HINFO.0.to_be_bytes());
    wire.extend_from_slice(&CLASS_IN.to_be_bytes());
    wire.extend_from_slice(&ANY_TTL.to_be_bytes());
    wire.extend_from_slice(b"\x00\x09\x07RFC8482\x00");
    if query.edns.is_some() {
        Edns::ours(query.dnssec_ok()).write(&mut wire, ResponseCode::NOERROR);
    }
    wire
}

/// A reply to a message whose body makes no sense: the header, and our OPT record if one was found.
///
/// Without it the asker would take us for a server from before EDNS (RFC 6891 §7).
fn bare_reply(header: Header, edns: Option<Edns>, code: ResponseCode) -> Vec<u8> {
    let copied = header.flags & (flags::OPCODE | flags::RD | flags::CD);
    let mut wire = Vec::with_capacity(Header::LENGTH + Edns::LENGTH);
    Header {
        id: header.id,
        flags: flags::QR | flags::RA | copied | code.0,
        counts: [0, 0, 0, u16::from(edns.is_some())],
    }
    .write(&mut wire);
    if let Some(edns) = edns {
        Edns::ours(edns.dnssec_ok).write(&mut wire, code);
    }
    wire
}

fn copy_opcode(reply: &mut [u8], asked: Header) {
    if let Some(header) = Header::read(reply) {
        Header {
            flags: header.flags | asked.flags & flags::OPCODE,
            ..header
        }
        .overwrite(reply);
    }
}
