//! Decides, from bytes alone, whether a datagram or frame is the reply to a question we asked and
//! what to do with it (RFC 5452 §9.1).
//!
//! Looks at the header and the question, and walks the records only to learn whether there is an
//! OPT; what the answers say is not judged here.

/// The fixed part at the start of every message.
pub(crate) const HEADER: usize = 12;

/// The reply size a server may use over UDP towards an asker without EDNS (RFC 1035 §4.2.1).
const PLAIN_UDP_LIMIT: usize = 512;

const FORMERR: u8 = 1;
const NOTIMP: u8 = 4;
const OPT: u16 = 41;

/// The question of a query in wire form: name, type and class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question(Box<[u8]>);

/// What an accepted reply asks of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The reply is the server's word.
    Final,
    /// There is more than fitted: ask again over TCP.
    Truncated,
    /// The server does not know EDNS: ask again without.
    NoEdns,
    /// The name came back in another spelling than it was drawn in: ask again in lower case.
    Folded,
}

impl Question {
    /// Takes the question out of a query we encoded ourselves.
    pub(crate) fn of_query(query: &[u8]) -> Option<Self> {
        let end = name_end(query, HEADER)?.checked_add(4)?;
        Some(Self(query.get(HEADER..end)?.into()))
    }

    /// Tells whether the reply repeats this question, ignoring the case of the name.
    pub(crate) fn repeated_in(&self, reply: &[u8]) -> bool {
        let Some(echo) = reply.get(HEADER..HEADER + self.0.len()) else {
            return false;
        };
        let (name, fixed) = self.0.split_at(self.0.len() - 4);
        // Label lengths are below 64, so folding ASCII letters cannot make two of them equal.
        echo[..name.len()].eq_ignore_ascii_case(name) && echo[name.len()..] == *fixed
    }

    /// Tells whether the reply, which has this question, spells it otherwise.
    pub(crate) fn is_respelled_in(&self, reply: &[u8]) -> bool {
        let echo = reply.get(HEADER..HEADER + self.0.len());
        echo.is_some_and(|echo| *echo != *self.0)
    }
}

/// Returns the id of anything that may be a reply: a whole header with QR=1 and opcode 0.
pub(crate) fn reply_id(packet: &[u8]) -> Option<u16> {
    let header = packet.get(..HEADER)?;
    (header[2] & 0xf8 == 0x80).then(|| u16::from_be_bytes([header[0], header[1]]))
}

/// Tells whether a packet with a matching id answers the question.
///
/// A header alone is accepted as FORMERR or NOTIMP: servers from before EDNS reject the OPT like
/// that, and all it can lead to is the same question without EDNS, checked in full.
pub(crate) fn answers(packet: &[u8], question: &Question) -> bool {
    match count(packet, 4) {
        1 => question.repeated_in(packet),
        0 => packet.len() == HEADER && rejects(packet),
        _ => false,
    }
}

/// Judges a reply that [`answers`] its question and came over UDP.
pub(crate) fn judge_udp(reply: &[u8], asked_with_edns: bool, buffer: usize) -> Verdict {
    let oversized = || reply.len() > PLAIN_UDP_LIMIT && !(asked_with_edns && has_opt(reply));
    if reply.len() >= buffer || oversized() {
        Verdict::Truncated
    } else {
        judge_stream(reply, asked_with_edns)
    }
}

/// Judges a reply that [`answers`] its question and came by a way without a size limit.
pub(crate) fn judge_stream(reply: &[u8], asked_with_edns: bool) -> Verdict {
    if reply[2] & 0x02 != 0 {
        Verdict::Truncated
    } else if asked_with_edns && rejects(reply) && !has_opt(reply) {
        Verdict::NoEdns
    } else {
        Verdict::Final
    }
}

/// Tells whether the reply's code is FORMERR or NOTIMP.
pub(crate) fn rejects(reply: &[u8]) -> bool {
    matches!(reply[3] & 0x0f, FORMERR | NOTIMP)
}

fn count(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

/// Tells whether an OPT record can be reached; a message that is cut or broken has none.
fn has_opt(reply: &[u8]) -> bool {
    let mut at = HEADER;
    for _ in 0..count(reply, 4) {
        match name_end(reply, at) {
            Some(end) => at = end + 4,
            None => return false,
        }
    }
    let records = [6, 8, 10].map(|at| u32::from(count(reply, at)));
    for _ in 0..records.iter().sum() {
        let Some(end) = name_end(reply, at) else {
            return false;
        };
        let Some(fixed) = reply.get(end..end + 10) else {
            return false;
        };
        if u16::from_be_bytes([fixed[0], fixed[1]]) == OPT {
            return true;
        }
        at = end + 10 + usize::from(u16::from_be_bytes([fixed[8], fixed[9]]));
    }
    false
}

/// Returns the offset behind a name, which ends at the root label or at its first pointer.
fn name_end(packet: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *packet.get(at)? {
            0 => return Some(at + 1),
            length @ 1..=63 => at += 1 + usize::from(length),
            0xc0.. => return Some(at + 2),
            64..=191 => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUERY: &[u8] = b"\x12\x34\x01\x00\0\x01\0\0\0\0\0\0\x03WwW\x04test\0\0\x01\0\x01";

    fn reply(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut reply = QUERY.to_ascii_lowercase();
        reply[2] = 0x81;
        reply[3] = 0x80;
        change(&mut reply);
        reply
    }

    fn with_opt(mut reply: Vec<u8>) -> Vec<u8> {
        reply[11] += 1;
        reply.extend_from_slice(b"\0\0\x29\x04\xd0\0\0\0\0\0\0");
        reply
    }

    fn accepted(packet: &[u8]) -> bool {
        let question = Question::of_query(QUERY).unwrap();
        reply_id(packet) == Some(0x1234) && answers(packet, &question)
    }

    #[test]
    fn a_reply_to_the_question_is_accepted_whatever_the_case_of_the_name() {
        assert!(accepted(&reply(|_| ())));
        assert!(accepted(&reply(|r| r[13] = b'W')));
        assert!(accepted(&reply(|r| r.extend_from_slice(b"cut"))));
    }

    #[test]
    fn a_reply_that_differs_in_any_part_is_ignored() {
        type Change = fn(&mut Vec<u8>);
        let table: [(&str, Change); 12] = [
            ("id", |r| r[1] ^= 1),
            ("query bit", |r| r[2] &= 0x7f),
            ("opcode", |r| r[2] |= 0x20),
            ("no question", |r| r[5] = 0),
            ("two questions", |r| r[5] = 2),
            ("name", |r| r[14] = b'x'),
            ("label boundary", |r| r[12] = 4),
            ("type", |r| r[23] = 28),
            ("class", |r| r[25] = 3),
            ("cut question", |r| r.truncate(20)),
            ("cut header", |r| r.truncate(11)),
            ("bare header without a rejection", |r| {
                r[5] = 0;
                r.truncate(12);
            }),
        ];
        for (part, change) in table {
            assert!(!accepted(&reply(change)), "{part}");
        }
    }

    #[test]
    fn a_bare_header_is_accepted_as_a_rejection_of_edns() {
        for rcode in [FORMERR, NOTIMP] {
            let packet = reply(|r| {
                r[3] = rcode;
                r[5] = 0;
                r.truncate(HEADER);
            });
            assert!(accepted(&packet));
            assert_eq!(judge_udp(&packet, true, 4096), Verdict::NoEdns);
        }
    }

    #[test]
    fn truncation_is_seen_even_when_the_body_is_cut() {
        let cut = reply(|r| {
            r[2] |= 0x02;
            r[7] = 9;
            r.extend_from_slice(b"\xc0\x0c\0");
        });
        assert_eq!(judge_udp(&cut, true, 4096), Verdict::Truncated);
        assert_eq!(judge_udp(&reply(|_| ()), true, 26), Verdict::Truncated);
    }

    #[test]
    fn a_long_reply_is_taken_for_truncated_without_edns_on_both_sides() {
        let long = reply(|r| {
            r[7] = 1;
            r.extend_from_slice(b"\xc0\x0c\0\x10\0\x01\0\0\0\0\x02\0");
            r.resize(r.len() + 512, 0);
        });
        assert_eq!(judge_udp(&long, true, 4096), Verdict::Truncated);
        let long = with_opt(long);
        assert_eq!(judge_udp(&long, true, 4096), Verdict::Final);
        assert_eq!(judge_udp(&long, false, 4096), Verdict::Truncated);
    }

    #[test]
    fn a_rejection_counts_against_edns_only_without_an_opt() {
        for rcode in [FORMERR, NOTIMP] {
            let rejection = reply(|r| r[3] |= rcode);
            assert_eq!(judge_udp(&rejection, true, 4096), Verdict::NoEdns);
            assert_eq!(judge_udp(&rejection, false, 4096), Verdict::Final);
            let speaks_edns = with_opt(rejection);
            assert_eq!(judge_udp(&speaks_edns, true, 4096), Verdict::Final);
        }
        let servfail = reply(|r| r[3] |= 2);
        assert_eq!(judge_udp(&servfail, true, 4096), Verdict::Final);
    }
}
