//! What is done to a reply before anybody looks at its records.
//!
//! The question of a query of ours may be spelled at random, and records point to it for the rest of
//! their names; undoing the spelling there undoes it in most of them. In owners that are written out it
//! is undone one by one.

use super::wire::Frame;
use super::{Header, flags};
use crate::name::{Name, ResponseCode};

/// Puts the name into the question of a reply, if that has it in any spelling, and into the owners that
/// are the same name: a cache on the way may have kept them in the spelling of an earlier query.
pub(crate) fn respell(reply: &mut [u8], name: &Name) {
    let wire = name.as_wire();
    let has_question = Header::read(reply).is_some_and(|header| header.counts[0] == 1);
    let Some(question) = reply.get_mut(Header::LENGTH..Header::LENGTH + wire.len()) else {
        return;
    };
    if !has_question || !question.eq_ignore_ascii_case(wire) {
        return;
    }
    question.copy_from_slice(wire);
    for start in written_owners(reply, name) {
        let mut at = 0;
        // Up to the root or a pointer, which leads to where it is spelled already.
        while let Some(length @ 1..=63) = reply.get(start + at).copied() {
            let label = at..at + 1 + usize::from(length);
            reply[start + label.start..start + label.end].copy_from_slice(&wire[label.clone()]);
            at = label.end;
        }
    }
}

/// Finds where records begin whose owner is the name.
fn written_owners(reply: &[u8], name: &Name) -> Vec<usize> {
    let Ok(frame) = Frame::read(reply) else {
        return Vec::new();
    };
    let is_owned = |start: &usize| frame.owner_at(*start).is_ok_and(|owner| owner == *name);
    let starts = frame.records.iter().map(|record| record.start);
    starts.filter(is_owned).collect()
}

/// Says whether a reply tells something about the name: it exists, or it does not.
pub(crate) fn has_result(reply: &[u8]) -> bool {
    let code = Header::read(reply).map(|header| ResponseCode(header.flags & flags::RCODE));
    matches!(code, Some(ResponseCode::NOERROR | ResponseCode::NXDOMAIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{QueryOptions, encode_query};
    use crate::name::RecordType;

    fn message(text: &str) -> Vec<u8> {
        let name: Name = text.parse().unwrap();
        encode_query(1, &name, RecordType::A, QueryOptions::default())
    }

    #[test]
    fn the_question_is_spelled_as_it_should_and_another_is_left_alone() {
        let name: Name = "www.example.org".parse().unwrap();
        let mut reply = message("wWw.EXample.oRg");
        respell(&mut reply, &name);
        assert_eq!(reply, message("www.example.org"));
        for other in ["wWw.example.net", "w.E", "."] {
            let mut reply = message(other);
            respell(&mut reply, &name);
            assert_eq!(reply, message(other));
        }
        respell(&mut [0; 4], &name);
    }

    #[test]
    fn owners_that_are_written_out_are_spelled_too_and_others_left_alone() {
        let record = |owner: &[u8], octet: u8| {
            let data = [0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, octet];
            [owner, &data].concat()
        };
        let wire = |text: &str| text.parse::<Name>().unwrap().as_wire().to_vec();
        let made = |asked: &str| {
            let name = wire(asked);
            let partly = [&name[..4], &[0xc0, 16]].concat();
            let mut reply = vec![0, 1, 0x80, 0, 0, 1, 0, 4, 0, 0, 0, 0];
            reply.extend([&name[..], &[0, 1, 0, 1]].concat());
            for record in [
                record(&name, 1),
                record(&partly, 2),
                record(&[0xc0, 12], 3),
                record(&wire("MAIL.example.Org"), 4),
            ] {
                reply.extend(record);
            }
            reply
        };
        let mut reply = made("wWw.EXample.oRg");

        respell(&mut reply, &"www.example.org".parse().unwrap());

        assert_eq!(reply, made("www.example.org"));

        // A cache answered: the question is ours, the owners are those of another query.
        let mut kept = made("wWw.EXample.oRg");
        kept[12..29].copy_from_slice(&wire("www.EXAMPLE.org"));
        respell(&mut kept, &"www.example.org".parse().unwrap());
        assert_eq!(kept, made("www.example.org"));
    }

    #[test]
    fn failures_tell_nothing_about_the_name() {
        for (code, told) in [(0, true), (2, false), (3, true), (5, false)] {
            let mut reply = message("a.test");
            reply[3] |= code;
            assert_eq!(has_result(&reply), told, "{code}");
        }
        assert!(!has_result(&[0; 3]));
    }
}
