//! The private EDNS option by which our own parts recognise queries that come back to them.
//!
//! It says which process asked first and how often the query was passed on since. It is written
//! into our OPT record alone and never copied from anybody's; servers that do not know it ignore it
//! (RFC 6891 §6.1.2), and some pass it on, which is what makes a ring through them visible.

use super::wire::{Frame, Reader};
use crate::name::RecordType;

/// In the range for local use (RFC 6891 §9).
const CODE: u16 = 65_313;
/// Tells our option from anybody else's under the same code; the last octet is its version.
const MARK: [u8; 4] = *b"kb\x00\x01";
/// Mark, flags, hops, instance.
const DATA: u16 = 4 + 1 + 1 + 8;
const PROBE: u8 = 1;

/// Where a query of ours began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The random number of the process that asked first.
    pub instance: u64,
    /// How many of our processes have sent the query, that one included.
    pub hops: u8,
    /// Whether it looks for a loop: it is passed on as it is, and nothing is remembered of it.
    pub probe: bool,
}

impl Origin {
    /// The length of the option with its code and length.
    pub(crate) const LENGTH: u16 = 2 + 2 + DATA;

    /// Appends the option.
    pub(crate) fn write(&self, wire: &mut Vec<u8>) {
        wire.extend_from_slice(&CODE.to_be_bytes());
        wire.extend_from_slice(&DATA.to_be_bytes());
        wire.extend_from_slice(&MARK);
        wire.push(if self.probe { PROBE } else { 0 });
        wire.push(self.hops);
        wire.extend_from_slice(&self.instance.to_be_bytes());
    }

    /// Finds the option in a query; anything else under its code is not ours.
    pub fn of_query(packet: &[u8]) -> Option<Self> {
        // Nearly no query has it, and walking a message costs an allocation.
        if !packet.windows(MARK.len()).any(|octets| octets == MARK) {
            return None;
        }
        let frame = Frame::read(packet).ok()?;
        let mut opts = frame.records.iter();
        let opt = opts.find(|record| record.rtype == RecordType::OPT)?;
        Self::among(&packet[opt.data.clone()])
    }

    fn among(options: &[u8]) -> Option<Self> {
        let mut reader = Reader::at(options, 0);
        loop {
            let code = reader.u16().ok()?;
            let length = usize::from(reader.u16().ok()?);
            let data = reader.bytes(length).ok()?;
            if code == CODE {
                return Self::read(data);
            }
        }
    }

    fn read(data: &[u8]) -> Option<Self> {
        let rest = data.strip_prefix(&MARK)?;
        let (&[flags, hops], instance) = rest.split_first_chunk()?;
        Some(Self {
            instance: u64::from_be_bytes(instance.try_into().ok()?),
            hops,
            probe: flags & PROBE != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::message::{QueryOptions, encode_query};

    fn query(origin: Option<Origin>) -> Vec<u8> {
        let options = QueryOptions {
            origin,
            ..QueryOptions::default()
        };
        encode_query(7, &"a.test".parse().unwrap(), RecordType::A, options)
    }

    #[test]
    fn a_query_without_the_option_has_no_origin() {
        assert_eq!(Origin::of_query(&query(None)), None);
        assert_eq!(Origin::of_query(&[0; 12]), None);
        assert_eq!(Origin::of_query(&[]), None);
    }

    #[test]
    fn an_option_of_somebody_else_under_the_code_is_not_ours() {
        let ours = query(Some(Origin {
            instance: 1,
            hops: 1,
            probe: false,
        }));
        let mark = ours.len() - usize::from(DATA);
        let mut other = ours.clone();
        other[mark] ^= 1;
        assert_eq!(Origin::of_query(&other), None);
        let mut shorter = ours;
        shorter.pop();
        assert_eq!(Origin::of_query(&shorter), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(instance: u64, hops: u8, probe: bool) {
            let origin = Origin { instance, hops, probe };
            prop_assert_eq!(Origin::of_query(&query(Some(origin))), Some(origin));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let mut packet = query(None);
            packet.truncate(packet.len() - 2);
            packet.extend_from_slice(&bytes);
            let _ = Origin::of_query(&packet);
        }
    }
}
