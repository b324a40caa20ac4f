//! Gives a kept reply once more, to another asker of the same question.

use super::{Header, Query, flags};
use crate::name::Name;

/// Makes a kept reply the reply to a query of the same question: its id, the case of its name, its
/// RD and CD flags.
///
/// `None` when the kept reply is to another question. Whether the asker wants EDNS must be as it was
/// when the reply was made; nothing is added or taken away here.
pub fn answer_again(kept: &[u8], query: &Query) -> Option<Vec<u8>> {
    let mut header = Header::read(kept)?;
    let asked = query.name.as_wire();
    let end = Header::LENGTH + asked.len();
    let question = kept.get(Header::LENGTH..end)?;
    let kind = [query.rtype.0.to_be_bytes(), query.class.to_be_bytes()].concat();
    let is_same = header.counts[0] == 1
        && Name::from_wire(question).is_ok_and(|name| name == query.name)
        && kept.get(end..end + kind.len()) == Some(&kind[..]);
    if !is_same {
        return None;
    }
    let mut reply = kept.to_vec();
    // Owners equal to the asked name point here, so they follow its case.
    reply[Header::LENGTH..end].copy_from_slice(asked);
    header.id = query.id;
    header.flags &= !(flags::RD | flags::CD);
    for (is_set, flag) in [(query.rd, flags::RD), (query.cd, flags::CD)] {
        if is_set {
            header.flags |= flag;
        }
    }
    header.overwrite(&mut reply);
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Checked, QueryOptions, answers, check, encode_query};
    use crate::name::RecordType;
    use crate::test_util::Answer;

    fn query(id: u16, name: &str, rtype: RecordType) -> Query {
        let packet = encode_query(id, &name.parse().unwrap(), rtype, QueryOptions::default());
        match check(&packet) {
            Checked::Query(query) => query,
            other => panic!("{other:?}"),
        }
    }

    fn kept() -> Vec<u8> {
        let name = "authors.default".parse().unwrap();
        let packet = encode_query(7, &name, RecordType::A, QueryOptions::default());
        Answer::address("authors.default", [10, 96, 0, 7]).reply_to(&packet)
    }

    #[test]
    fn a_kept_reply_gets_the_id_and_the_case_of_the_new_query() {
        let reply = answer_again(&kept(), &query(9, "AUTHORS.default", RecordType::A)).unwrap();

        let parsed = answers(&reply).unwrap();
        assert_eq!(parsed.id, 9);
        assert_eq!(parsed.answers.len(), 1);
        let packet = [b"\x07AUTHORS".as_slice(), b"\x07default\x00".as_slice()].concat();
        assert_eq!(&reply[12..12 + packet.len()], packet);
    }

    #[test]
    fn another_question_gets_nothing() {
        for (name, rtype) in [
            ("authors.default", RecordType::AAAA),
            ("authors.shop", RecordType::A),
            (
                "a.very.much.longer.name.than.the.message.has.octets",
                RecordType::A,
            ),
        ] {
            assert_eq!(
                answer_again(&kept(), &query(9, name, rtype)),
                None,
                "{name}"
            );
        }
        let any = query(9, "authors.default", RecordType::A);
        assert_eq!(answer_again(&kept()[..14], &any), None);
        assert_eq!(answer_again(&[], &any), None);
    }
}
