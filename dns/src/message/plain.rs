//! The plainest of queries read in place, for answers that are at hand: nothing is copied.
//!
//! Whatever is odd in any way is left to `check`, which sees everything; the two never read a
//! packet differently. Pure.

use super::{CLASS_IN, Edns, Header, Query, flags};
use crate::name::{MAX_LABEL, MAX_NAME, NameRef, RecordType};

/// An OPT record without options: root, type, size, upper code, version, flags, no data.
const OPT_LENGTH: usize = 11;

/// A query with one question of class IN and at most an OPT record without options.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlainQuery<'a> {
    pub(crate) id: u16,
    pub(crate) rd: bool,
    pub(crate) ad: bool,
    pub(crate) cd: bool,
    pub(crate) name: NameRef<'a>,
    pub(crate) rtype: RecordType,
    pub(crate) edns: Option<Edns>,
}

impl<'a> PlainQuery<'a> {
    /// Reads a packet; `None` for everything that needs a closer look.
    pub(crate) fn read(packet: &'a [u8]) -> Option<Self> {
        let header = Header::read(packet)?;
        let [1, 0, 0, additional] = header.counts else {
            return None;
        };
        if header.flags & !(flags::RD | flags::AD | flags::CD) != 0 {
            return None;
        }
        let body = &packet[Header::LENGTH..];
        let (name, rest) = body.split_at(name_length(body)?);
        let ([type_high, type_low, class_high, class_low], rest) = rest.split_first_chunk()?;
        if u16::from_be_bytes([*class_high, *class_low]) != CLASS_IN {
            return None;
        }
        let edns = match (additional, rest) {
            (0, []) => None,
            (1, rest) => Some(empty_opt(rest)?),
            _ => return None,
        };
        Some(Self {
            id: header.id,
            rd: header.has(flags::RD),
            ad: header.has(flags::AD),
            cd: header.has(flags::CD),
            name: NameRef::checked(name),
            rtype: RecordType(u16::from_be_bytes([*type_high, *type_low])),
            edns,
        })
    }

    /// Copies it, for whoever needs to hold it.
    pub(crate) fn to_query(self) -> Query {
        Query {
            id: self.id,
            rd: self.rd,
            ad: self.ad,
            cd: self.cd,
            name: self.name.to_name(),
            rtype: self.rtype,
            class: CLASS_IN,
            edns: self.edns,
        }
    }

    pub(crate) fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }
}

impl<'a> From<&'a Query> for PlainQuery<'a> {
    fn from(query: &'a Query) -> Self {
        Self {
            id: query.id,
            rd: query.rd,
            ad: query.ad,
            cd: query.cd,
            name: NameRef::from(&query.name),
            rtype: query.rtype,
            edns: query.edns,
        }
    }
}

/// Returns the length of the uncompressed name at the front.
fn name_length(body: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let length = usize::from(*body.get(at)?);
        if length > MAX_LABEL {
            return None;
        }
        at += 1 + length;
        if at > MAX_NAME {
            return None;
        }
        if length == 0 {
            return Some(at);
        }
    }
}

fn empty_opt(record: &[u8]) -> Option<Edns> {
    let record: &[u8; OPT_LENGTH] = record.try_into().ok()?;
    let [
        root,
        type_high,
        type_low,
        size_high,
        size_low,
        _,
        version,
        flags_high,
        _,
        0,
        0,
    ] = *record
    else {
        return None;
    };
    let is_opt = root == 0 && u16::from_be_bytes([type_high, type_low]) == RecordType::OPT.0;
    (is_opt && version == 0).then(|| Edns {
        udp_size: u16::from_be_bytes([size_high, size_low]),
        dnssec_ok: flags_high & 0x80 != 0,
        version,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Checked, QueryOptions, check, encode_query};

    fn packet(options: QueryOptions) -> Vec<u8> {
        let name = "WeB.example".parse().unwrap();
        encode_query(7, &name, RecordType::AAAA, options)
    }

    #[test]
    fn plain_queries_are_read_as_the_check_reads_them() {
        for (dnssec_ok, checking_disabled, edns) in [
            (false, false, false),
            (false, false, true),
            (true, true, true),
            (false, true, false),
        ] {
            let options = QueryOptions {
                dnssec_ok,
                checking_disabled,
                edns,
                ..QueryOptions::default()
            };
            let packet = packet(options);
            let read = PlainQuery::read(&packet).expect("a plain query");
            assert_eq!(read.name.as_wire(), b"\x03WeB\x07example\0");
            assert_eq!(check(&packet), Checked::Query(read.to_query()));
        }
    }

    #[test]
    fn everything_odd_is_left_to_the_check() {
        let plain = packet(QueryOptions::default());
        assert!(PlainQuery::read(&plain).is_some());
        let changed = |at: usize, octet: u8| {
            let mut packet = plain.clone();
            packet[at] = octet;
            packet
        };
        let opt = plain.len() - OPT_LENGTH;
        for (what, packet) in [
            ("a response", changed(2, 0x81)),
            ("another opcode", changed(2, 0x09)),
            ("TC", changed(2, 0x03)),
            ("the zero bit", changed(3, 0x40)),
            ("no question", changed(5, 0)),
            ("two questions", changed(5, 2)),
            ("an answer", changed(7, 1)),
            ("authority", changed(9, 1)),
            ("no OPT where one is", changed(11, 0)),
            ("two additional records", changed(11, 2)),
            ("a pointer", changed(12, 0xc0)),
            ("class CH", changed(opt - 1, 3)),
            ("OPT off the root", changed(opt, 1)),
            ("another record", changed(opt + 2, 42)),
            ("another version", changed(opt + 6, 1)),
            ("options", changed(plain.len() - 1, 4)),
            ("something behind it", [&plain[..], &[0]].concat()),
            ("cut", plain[..plain.len() - 1].to_vec()),
        ] {
            assert!(PlainQuery::read(&packet).is_none(), "{what}");
        }
        (0..plain.len()).for_each(|length| assert!(PlainQuery::read(&plain[..length]).is_none()));
    }

    #[test]
    fn a_name_of_255_octets_is_the_longest() {
        let with = |last: usize| {
            let mut body = Vec::new();
            for length in [63, 63, 63, last] {
                body.push(u8::try_from(length).unwrap());
                body.extend(vec![b'a'; length]);
            }
            body.push(0);
            name_length(&body)
        };
        assert_eq!((with(61), with(62)), (Some(255), None));
    }
}
