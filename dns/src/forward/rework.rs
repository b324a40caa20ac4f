//! Turns an upstream's reply into the reply to our asker, touching only what belongs to one hop:
//! id, RD, CD, AD, the spelling of the question, and the OPT record.
//!
//! Records stay as they came, byte by byte. An owner that points to the question follows the
//! asker's spelling by itself; one that is spelled out keeps the upstream's.

use std::ops::Range;

use crate::message::{
    Edns, Frame, Header, Located, MessageError, Query, flags, name_positions, reply_flags,
};
use crate::name::{RecordType, ResponseCode};

/// The two top bits of a pointer (RFC 1035 §4.1.4).
const POINTER: u8 = 0xc0;

/// Tells why the next upstream should be asked instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// The server could not or would not answer.
    #[error("the upstream said {0}")]
    Failed(ResponseCode),
    /// The reply is not a sound message.
    #[error("malformed reply: {0}")]
    Malformed(MessageError),
    /// The server resolves nothing for us and names others instead.
    #[error("the upstream gave a referral")]
    Referral,
    /// The reply answers something else or not completely.
    #[error("the reply is truncated or to another question")]
    NotTheAnswer,
}

impl From<MessageError> for Unusable {
    fn from(error: MessageError) -> Self {
        Self::Malformed(error)
    }
}

/// Makes the reply to the query out of an upstream's.
pub(super) fn rework(mut reply: Vec<u8>, query: &Query) -> Result<Vec<u8>, Unusable> {
    let frame = Frame::read(&reply)?;
    judge(&frame, query)?;
    let end = frame.end;
    let mut opts = frame.records.iter().filter(|r| r.rtype == RecordType::OPT);
    let opt = opts.next().map(|record| record.start..record.data.end);
    // There is one at most, and where it belongs: only then do the counts below hold.
    Edns::of_reply(&frame)?;
    let behind = names_behind(&frame, opt.as_ref())?;
    let mut header = frame.header;
    header.id = query.id;
    header.flags = flags_for(query, header.flags);
    header.counts[3] =
        header.counts[3] + u16::from(query.edns.is_some()) - u16::from(opt.is_some());
    header.overwrite(&mut reply);
    let name = query.name.as_wire();
    reply[Header::LENGTH..Header::LENGTH + name.len()].copy_from_slice(name);
    reply.truncate(end);
    replace_opt(&mut reply, opt.unwrap_or(end..end), &behind, query)?;
    // Looked at last: an odd pointer may lead into what was cut off or exchanged.
    let finished = Frame::read(&reply)?;
    for record in &finished.records {
        finished.owner(record)?;
    }
    Ok(reply)
}

/// Checks that the reply is an answer, and to the question.
fn judge(frame: &Frame<'_>, query: &Query) -> Result<(), Unusable> {
    let opt = frame.records.iter().find(|r| r.rtype == RecordType::OPT);
    // Extended codes speak about the OPT of the query, which was ours and not the asker's.
    let upper = opt.map_or(0, |opt| u16::from(opt.ttl.to_be_bytes()[0]) << 4);
    let code = ResponseCode(upper | frame.header.flags & flags::RCODE);
    if upper > 0 || matches!(code, ResponseCode::SERVFAIL | ResponseCode::REFUSED) {
        return Err(Unusable::Failed(code));
    }
    if is_lame(frame) {
        return Err(Unusable::Referral);
    }
    let asked = Some((query.name.clone(), query.rtype, query.class));
    let spelled_out = frame.questions_end == Header::LENGTH + query.name.as_wire().len() + 4;
    let whole = frame.header.has(flags::QR) && !frame.header.has(flags::TC);
    if frame.header.counts[0] == 1 && frame.question == asked && spelled_out && whole {
        Ok(())
    } else {
        Err(Unusable::NotTheAnswer)
    }
}

/// Keeps the upstream's code and restores what the asker said about its query; the rest is ours to say.
fn flags_for(query: &Query, reply: u16) -> u16 {
    // Our query always asks for AD; an asker that asked for neither gets it cleared (RFC 6840 §5.8).
    let authentic = reply & flags::AD != 0 && (query.ad || query.dnssec_ok());
    let authentic = if authentic { flags::AD } else { 0 };
    reply_flags(query.into(), ResponseCode(reply & flags::RCODE)) | authentic
}

/// A reply without records that points to other servers comes from a server that does not resolve for us.
fn is_lame(frame: &Frame<'_>) -> bool {
    let has = |rtype| frame.records.iter().any(|record| record.rtype == rtype);
    let recursive = frame.header.has(flags::RA) || frame.header.has(flags::AA);
    frame.header.flags & flags::RCODE == 0
        && !recursive
        && frame.header.counts[1] == 0
        && has(RecordType::NS)
        && !has(RecordType::SOA)
}

/// Returns where names lie in the records behind the OPT, which move when its length changes.
fn names_behind(frame: &Frame<'_>, opt: Option<&Range<usize>>) -> Result<Vec<usize>, Unusable> {
    let Some(opt) = opt else {
        return Ok(Vec::new());
    };
    let mut positions = Vec::new();
    let behind = |record: &&Located| record.start >= opt.end;
    for record in frame.records.iter().filter(behind) {
        positions.push(record.start);
        let data = record.data.clone();
        positions.extend(name_positions(frame.packet, record.rtype, data)?);
    }
    Ok(positions)
}

/// Puts our OPT, if the asker sent one, in the place of the upstream's.
fn replace_opt(
    reply: &mut Vec<u8>,
    old: Range<usize>,
    names_behind: &[usize],
    query: &Query,
) -> Result<(), Unusable> {
    let mut ours = Vec::new();
    if query.edns.is_some() {
        Edns::ours(query.dnssec_ok()).write(&mut ours, ResponseCode::NOERROR);
    }
    let moved = |position: usize| position - old.len() + ours.len();
    for &name in names_behind {
        let Some((at, target)) = pointer_of(reply, name) else {
            continue;
        };
        if old.contains(&target) {
            return Err(MessageError::BadName.into());
        }
        if target >= old.end {
            let target = u16::try_from(moved(target)).ok().filter(|t| *t < 1 << 14);
            let target = target.ok_or(MessageError::BadName)?;
            let pointer = target | u16::from(POINTER) << 8;
            reply[at..at + 2].copy_from_slice(&pointer.to_be_bytes());
        }
    }
    reply.splice(old, ours);
    Ok(())
}

/// Returns where the pointer that ends a name lies and where it leads, if the name ends in one.
fn pointer_of(message: &[u8], mut at: usize) -> Option<(usize, usize)> {
    loop {
        let length = *message.get(at)?;
        if length >= POINTER {
            let low = *message.get(at + 1)?;
            let target = usize::from(u16::from_be_bytes([length & !POINTER, low]));
            return Some((at, target));
        }
        if length == 0 {
            return None;
        }
        at += 1 + usize::from(length);
    }
}

#[cfg(test)]
mod tests;
