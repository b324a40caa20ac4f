//! Takes the lifetimes out of a reply, so that caches beyond our reach keep nothing.

use super::wire::{Frame, Section};
use crate::name::RecordType;

/// The octets of SOA data behind its two names; the last four are MINIMUM.
const SOA_NUMBERS: usize = 20;

/// Sets every TTL to zero, and MINIMUM of SOA records in the authority section; OPT stays, as its field is no TTL.
///
/// A message that cannot be walked is left as it is.
pub fn zero_ttls(reply: &mut [u8]) {
    let Ok(frame) = Frame::read(reply) else {
        return;
    };
    let mut spots = Vec::with_capacity(frame.records.len());
    for record in frame
        .records
        .iter()
        .filter(|record| record.rtype != RecordType::OPT)
    {
        spots.push(record.ttl_at);
        if record.section == Section::Authority
            && record.rtype == RecordType::SOA
            && record.data.len() >= SOA_NUMBERS + 2
        {
            spots.push(record.data.end - 4);
        }
    }
    for spot in spots {
        reply[spot..spot + 4].fill(0);
    }
}
