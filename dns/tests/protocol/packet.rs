//! Packets put together by hand, also those no honest client sends, and replies looked at byte by byte.

use kubebridge_dns::message::{Parsed, answers};
use kubebridge_dns::name::{Name, RecordType};

/// The id of every query that needs no other.
pub(crate) const ID: u16 = 0x1234;
/// Recursion desired, in a query.
pub(crate) const RD: u16 = 0x0100;
/// Authentic data, checking disabled, and the bit that must be zero.
pub(crate) const AD: u16 = 0x0020;
pub(crate) const CD: u16 = 0x0010;
pub(crate) const Z: u16 = 0x0040;
/// A response with recursion available to a query that desired it; the code comes on top.
pub(crate) const REPLY: u16 = 0x8180;
/// Authoritative: our own records.
pub(crate) const AA: u16 = 0x0400;
/// Truncated.
pub(crate) const TC: u16 = 0x0200;

/// Our OPT record as every reply carries it: 1232 octets, version 0, no options.
pub(crate) const OUR_OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
pub(crate) const OUR_OPT_DO: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0";
/// Our OPT record with the upper bits of BADVERS.
pub(crate) const OUR_OPT_BADVERS: &[u8] = b"\0\0\x29\x04\xd0\x01\0\0\0\0\0";

/// The TTL field of an OPT record that wants DNSSEC records.
pub(crate) const DO: u32 = 0x8000;

/// Makes a header.
pub(crate) fn header(id: u16, flags: u16, counts: [u16; 4]) -> Vec<u8> {
    let words = [id, flags].into_iter().chain(counts);
    words.flat_map(u16::to_be_bytes).collect()
}

/// Makes a question.
pub(crate) fn question(text: &str, rtype: u16, class: u16) -> Vec<u8> {
    let name: Name = text.parse().unwrap();
    let mut wire = name.as_wire().to_vec();
    wire.extend(rtype.to_be_bytes());
    wire.extend(class.to_be_bytes());
    wire
}

/// Makes a usual query: RD, class IN, no OPT.
pub(crate) fn query(text: &str, rtype: RecordType) -> Vec<u8> {
    [header(ID, RD, [1, 0, 0, 0]), question(text, rtype.0, 1)].concat()
}

/// Appends an OPT record to a packet and counts it.
pub(crate) fn with_opt(packet: &[u8], size: u16, ttl: u32, options: &[u8]) -> Vec<u8> {
    with_additional(packet, &opt(size, ttl, options))
}

/// Appends a record to a packet and counts it in the additional section.
pub(crate) fn with_additional(packet: &[u8], record: &[u8]) -> Vec<u8> {
    let mut packet = [packet, record].concat();
    packet[11] += 1;
    packet
}

/// Makes an OPT record.
pub(crate) fn opt(size: u16, ttl: u32, options: &[u8]) -> Vec<u8> {
    let mut wire = b"\0\0\x29".to_vec();
    wire.extend(size.to_be_bytes());
    wire.extend(ttl.to_be_bytes());
    wire.extend(u16::try_from(options.len()).unwrap().to_be_bytes());
    wire.extend(options);
    wire
}

/// Makes an EDNS option.
pub(crate) fn option(code: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).unwrap();
    let mut wire = [code.to_be_bytes(), length.to_be_bytes()].concat();
    wire.extend(value);
    wire
}

/// Changes the id.
pub(crate) fn with_id(packet: &[u8], id: u16) -> Vec<u8> {
    [&id.to_be_bytes(), &packet[2..]].concat()
}

/// Changes all flags.
pub(crate) fn with_flags(packet: &[u8], flags: u16) -> Vec<u8> {
    [&packet[..2], &flags.to_be_bytes(), &packet[4..]].concat()
}

/// Changes one of the counts: questions, answers, authority, additional.
pub(crate) fn with_count(packet: &[u8], section: usize, count: u16) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[4 + 2 * section..6 + 2 * section].copy_from_slice(&count.to_be_bytes());
    packet
}

/// Returns the id.
pub(crate) fn id(message: &[u8]) -> u16 {
    u16::from_be_bytes([message[0], message[1]])
}

/// Returns the flags and the code as they are on the wire.
pub(crate) fn flags(message: &[u8]) -> u16 {
    u16::from_be_bytes([message[2], message[3]])
}

/// Returns the question with its name in the spelling of the wire.
pub(crate) fn question_of(message: &[u8]) -> &[u8] {
    let mut end = 12;
    while message[end] != 0 {
        end += 1 + usize::from(message[end]);
    }
    &message[12..end + 5]
}

/// Takes a reply apart.
pub(crate) fn parsed(reply: &[u8]) -> Parsed {
    answers(reply).unwrap()
}

/// Shows the answer section as `owner TTL TYPE data`.
pub(crate) fn shown(reply: &[u8]) -> Vec<String> {
    let show = |a: &kubebridge_dns::message::Answer| {
        format!("{} {} {} {}", a.owner, a.ttl, a.rtype, a.data)
    };
    parsed(reply).answers.iter().map(show).collect()
}

/// Checks what every reply to a sound question shares: id, flags and code, the question as sent, and an OPT exactly if one came.
pub(crate) fn assert_echoes(what: &str, packet: &[u8], reply: &[u8], expected_flags: u16) {
    assert_eq!(id(reply), id(packet), "{what}: id");
    assert_eq!(
        flags(reply),
        expected_flags,
        "{what}: {:04x} is not {expected_flags:04x}",
        flags(reply)
    );
    assert_eq!(question_of(reply), question_of(packet), "{what}: question");
    let edns = parsed(reply).edns;
    assert_eq!(edns.is_some(), packet[11] > 0, "{what}: OPT");
    if let Some(edns) = edns {
        assert_eq!((edns.udp_size, edns.version), (1232, 0), "{what}: OPT");
    }
}
