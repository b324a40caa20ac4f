//! What is done to a reply before anybody looks at its records.
//!
//! The question of a query of ours may be spelled at random, and records point to it for the rest of
//! their names; undoing the spelling there undoes it in all of them.

use super::{Header, flags};
use crate::name::{Name, ResponseCode};

/// Puts the name into the question of a reply, if that has it in any spelling.
pub(crate) fn respell(reply: &mut [u8], name: &Name) {
    let wire = name.as_wire();
    let has_question = Header::read(reply).is_some_and(|header| header.counts[0] == 1);
    let Some(question) = reply.get_mut(Header::LENGTH..Header::LENGTH + wire.len()) else {
        return;
    };
    if has_question && question.eq_ignore_ascii_case(wire) {
        question.copy_from_slice(wire);
    }
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
    fn failures_tell_nothing_about_the_name() {
        for (code, told) in [(0, true), (2, false), (3, true), (5, false)] {
            let mut reply = message("a.test");
            reply[3] |= code;
            assert_eq!(has_result(&reply), told, "{code}");
        }
        assert!(!has_result(&[0; 3]));
    }
}
