//! Cuts a reply to what its asker takes over UDP: whole record sets only, TC set, the OPT record kept (RFC 2181 §9, RFC 6891 §7).

use super::wire::{Frame, Located, Section};
use super::{Edns, Header, UDP_PAYLOAD, UDP_PAYLOAD_WITHOUT_EDNS, flags};
use crate::name::{Name, RecordType};

/// Cuts a reply to the size that `query` allows; a reply that fits is returned untouched.
pub fn fit_udp(mut reply: Vec<u8>, query: &[u8]) -> Vec<u8> {
    let limit = usize::from(limit_of(query));
    if reply.len() <= limit {
        return reply;
    }
    let Some((kept, opt)) = Frame::read(&reply)
        .ok()
        .and_then(|frame| plan(&frame, limit))
    else {
        return header_only(&reply);
    };
    reply.truncate(kept.end);
    reply.extend_from_slice(&opt);
    kept.header.overwrite(&mut reply);
    reply
}

/// Gives the largest UDP message the asker takes: its EDNS size between 512 and 1232, 512 without EDNS.
fn limit_of(query: &[u8]) -> u16 {
    let edns = Frame::read(query)
        .ok()
        .and_then(|frame| Edns::first(&frame));
    payload_of(edns)
}

/// Gives the largest UDP message for an asker that sent this, or no OPT record.
pub(crate) fn payload_of(edns: Option<Edns>) -> u16 {
    edns.map_or(UDP_PAYLOAD_WITHOUT_EDNS, |edns| {
        edns.udp_size.clamp(UDP_PAYLOAD_WITHOUT_EDNS, UDP_PAYLOAD)
    })
}

struct Kept {
    header: Header,
    end: usize,
}

/// Chooses the longest run of whole record sets from the front that leaves room for the OPT record.
fn plan(frame: &Frame<'_>, limit: usize) -> Option<(Kept, Vec<u8>)> {
    let (opts, records): (Vec<&Located>, Vec<&Located>) = frame
        .records
        .iter()
        .partition(|record| record.rtype == RecordType::OPT);
    let opt = opts.first().map_or(&[][..], |record| {
        &frame.packet[record.start..record.data.end]
    });
    let room = limit
        .checked_sub(opt.len())
        .filter(|room| frame.questions_end <= *room)?;
    let fitting = records
        .iter()
        .take_while(|record| record.data.end <= room)
        .count();
    let count = whole_sets(frame, &records, fitting)?;
    let kept = &records[..count];
    let in_section = |section| {
        kept.iter()
            .filter(|record| record.section == section)
            .count()
    };
    let cut = records[count..]
        .iter()
        .any(|record| record.section != Section::Additional);
    let counts = [
        usize::from(frame.header.counts[0]),
        in_section(Section::Answer),
        in_section(Section::Authority),
        in_section(Section::Additional) + usize::from(!opt.is_empty()),
    ];
    let header = Header {
        flags: frame.header.flags | if cut { flags::TC } else { 0 },
        counts: counts.map(|count| u16::try_from(count).unwrap_or(u16::MAX)),
        ..frame.header
    };
    let end = kept
        .last()
        .map_or(frame.questions_end, |record| record.data.end);
    Some((Kept { header, end }, opt.to_vec()))
}

/// Shortens the run until no set has records on both sides of the cut.
fn whole_sets(frame: &Frame<'_>, records: &[&Located], fitting: usize) -> Option<usize> {
    let mut keys: Vec<(Name, RecordType, Section)> = Vec::with_capacity(records.len());
    for record in records {
        keys.push((frame.owner(record).ok()?, record.rtype, record.section));
    }
    let mut count = fitting;
    while let Some(first) = keys[..count]
        .iter()
        .position(|key| keys[count..].contains(key))
    {
        count = first;
    }
    Some(count)
}

/// The last resort for a reply that cannot be walked: its header with TC, so that the asker comes back over TCP.
fn header_only(reply: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(Header::LENGTH);
    if let Some(header) = Header::read(reply) {
        Header {
            flags: header.flags | flags::TC,
            counts: [0; 4],
            ..header
        }
        .write(&mut wire);
    }
    wire
}
