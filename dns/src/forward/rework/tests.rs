use super::*;
use crate::message::{Checked, QueryOptions, answers, check, encode_query};
use crate::test_util::{Answer, Record, name};

const PLAIN: QueryOptions = QueryOptions {
    class: 1,
    dnssec_ok: false,
    checking_disabled: false,
    edns: false,
    origin: None,
};
const EDNS: QueryOptions = QueryOptions {
    edns: true,
    ..PLAIN
};
const DNSSEC: QueryOptions = QueryOptions {
    dnssec_ok: true,
    ..EDNS
};

/// The bytes of an OPT with room for 4096 bytes and a cookie.
const FOREIGN_OPT: &[u8] = b"\0\0\x29\x10\0\0\0\0\0\0\x0c\0\x0a\0\x08cookie!!";
const OUR_OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";
const OUR_OPT_DO: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0";

/// A query as the asker sent it, without AD.
fn asked(options: QueryOptions) -> (Vec<u8>, Query) {
    let mut packet = encode_query(0xbeef, &name("WwW.test"), RecordType::A, options);
    packet[3] &= !0x20;
    let Checked::Query(query) = check(&packet) else {
        panic!("a sound query");
    };
    (packet, query)
}

/// An upstream's reply to our own query, which is in lower case here.
fn upstream_reply(answer: &Answer) -> Vec<u8> {
    let query = encode_query(0x0101, &name("www.test"), RecordType::A, PLAIN);
    answer.reply_to(&query)
}

fn answer() -> Answer {
    let chain = [
        Record::cname("www.test", "host.test"),
        Record::address("Host.Test", [10, 0, 0, 1]),
    ];
    Answer::records(chain)
}

fn with_opt(mut reply: Vec<u8>, opt: &[u8]) -> Vec<u8> {
    reply[11] += 1;
    reply.extend_from_slice(opt);
    reply
}

#[test]
fn only_id_flags_question_and_opt_differ_from_the_upstreams_reply() {
    for (options, opt) in [(PLAIN, &[][..]), (EDNS, OUR_OPT), (DNSSEC, OUR_OPT_DO)] {
        let (packet, query) = asked(options);
        let expected = {
            let reply = answer().without_edns().reply_to(&packet);
            if opt.is_empty() {
                reply
            } else {
                with_opt(reply, opt)
            }
        };
        for theirs in [&[][..], OUR_OPT, FOREIGN_OPT] {
            let reply = upstream_reply(&answer());
            let reply = if theirs.is_empty() {
                reply
            } else {
                with_opt(reply, theirs)
            };
            assert_eq!(rework(reply, &query).unwrap(), expected);
        }
    }
}

#[test]
fn the_owner_that_points_to_the_question_follows_the_askers_spelling() {
    let (_, query) = asked(PLAIN);
    let reply = rework(upstream_reply(&answer()), &query).unwrap();
    let owners = answers(&reply).unwrap().answers;
    assert_eq!(owners[0].owner.to_string(), "WwW.test");
    assert_eq!(owners[1].owner.to_string(), "Host.Test");
}

#[test]
fn the_code_is_the_upstreams_and_the_flags_are_the_askers_and_ours() {
    let disabled = QueryOptions {
        checking_disabled: true,
        ..EDNS
    };
    for (options, upstream, expected) in [
        // The code passes; AA and Z are cleared, RA is set; RD is the asker's; AD only to one that asked for it.
        (PLAIN, [0x84, 0x43], [0x81, 0x83]),
        (EDNS, [0x81, 0xa0], [0x81, 0x80]),
        (DNSSEC, [0x81, 0xa0], [0x81, 0xa0]),
        (disabled, [0x81, 0x80], [0x81, 0x90]),
        (EDNS, [0x81, 0x90], [0x81, 0x80]),
    ] {
        let (_, query) = asked(options);
        let mut reply = upstream_reply(&answer());
        reply[2..4].copy_from_slice(&upstream);
        assert_eq!(rework(reply, &query).unwrap()[2..4], expected);
    }
    let (_, mut query) = asked(EDNS);
    query.ad = true;
    let mut reply = upstream_reply(&answer());
    reply[3] |= 0x20;
    assert_eq!(rework(reply, &query).unwrap()[3], 0xa0);
}

#[test]
fn a_referral_without_recursion_sends_the_question_to_the_next_upstream() {
    let referral =
        Answer::records([]).authority([Record::new("test", RecordType::NS, *b"\x02ns\0")]);
    let (packet, query) = asked(PLAIN);
    let mut reply = referral.reply_to(&packet);
    reply[2..4].copy_from_slice(&[0x81, 0x00]);
    assert_eq!(rework(reply.clone(), &query), Err(Unusable::Referral));
    reply[3] = 0x80;
    assert!(rework(reply, &query).is_ok());
}

#[test]
fn an_opt_outside_the_additional_section_makes_the_reply_unusable() {
    let (packet, query) = asked(EDNS);
    let mut reply = Answer::records([]).reply_to(&packet);
    for section in [7, 9] {
        reply[7..12].fill(0);
        reply[section] = 1;
        let error = rework(reply.clone(), &query).unwrap_err();
        assert_eq!(error, Unusable::Malformed(MessageError::BadEdns));
    }
}

#[test]
fn an_owner_that_is_no_name_or_lies_in_the_opt_makes_the_reply_unusable() {
    let (packet, query) = asked(EDNS);
    let record = |owner: u8| {
        [
            &[0xc0, owner][..],
            b"\0\x01\0\x01\0\0\0\x05\0\x04\x0a\0\0\x01",
        ]
        .concat()
    };
    let opt = u8::try_from(Answer::records([]).reply_to(&packet).len() - OUR_OPT.len()).unwrap();
    for owner in [opt + 60, opt + 11, opt] {
        let mut reply = Answer::records([]).reply_to(&packet);
        reply[11] += 1;
        reply.extend(record(owner));
        let error = rework(reply, &query).unwrap_err();
        assert_eq!(error, Unusable::Malformed(MessageError::BadName), "{owner}");
    }
}

/// A reply whose OPT comes first in the additional section, with pointers into what follows it.
fn opt_in_the_middle(opt: &[u8], question: &str) -> Vec<u8> {
    let query = encode_query(0xbeef, &name(question), RecordType::A, PLAIN);
    let mut reply = answer().reply_to(&query);
    let additional = if opt.is_empty() { 3 } else { 4 };
    reply[11] = additional;
    reply.extend_from_slice(opt);
    let spelled = u8::try_from(reply.len()).unwrap();
    reply.extend_from_slice(b"\x02ns\x03net\0\0\x01\0\x01\0\0\0\x05\0\x04\x0a\0\0\x02");
    // An MX at the question's name, its exchange under the name just spelled out.
    reply.extend_from_slice(b"\xc0\x0c\0\x0f\0\x01\0\0\0\x05\0\x07\0\x0a\x02mx\xc0");
    reply.push(spelled + 3);
    reply.extend_from_slice(b"\xc0");
    reply.push(spelled);
    reply.extend_from_slice(b"\0\x01\0\x01\0\0\0\x05\0\x04\x0a\0\0\x03");
    reply
}

#[test]
fn pointers_behind_an_opt_that_changes_its_length_still_lead_to_their_names() {
    for (options, ours) in [(PLAIN, &[][..]), (EDNS, OUR_OPT)] {
        let (_, query) = asked(options);
        for theirs in [OUR_OPT, FOREIGN_OPT] {
            let reply = rework(opt_in_the_middle(theirs, "www.test"), &query).unwrap();
            assert_eq!(reply, opt_in_the_middle(ours, "WwW.test"));
        }
    }
}

#[test]
fn bytes_behind_the_last_record_are_left_out() {
    let (packet, query) = asked(EDNS);
    let mut reply = upstream_reply(&answer());
    reply.extend_from_slice(b"junk");
    assert_eq!(rework(reply, &query).unwrap(), answer().reply_to(&packet));
}

#[test]
fn what_is_no_answer_sends_us_to_the_next_upstream() {
    type Change = fn(&mut Vec<u8>);
    let table: [(&str, Change); 10] = [
        ("servfail", |r| r[3] |= 2),
        ("refused", |r| r[3] |= 5),
        ("an extended code", |r| {
            *r = with_opt(r.clone(), b"\0\0\x29\x04\xd0\x01\0\0\0\0\0");
        }),
        ("truncated", |r| r[2] |= 0x02),
        ("a query", |r| r[2] &= 0x7f),
        ("another name", |r| r[13] = b'x'),
        ("another type", |r| r[23] = 28),
        ("cut within a record", |r| r.truncate(r.len() - 1)),
        ("a header alone", |r| r.truncate(12)),
        ("two OPT records", |r| {
            *r = with_opt(r.clone(), OUR_OPT);
            *r = with_opt(r.clone(), OUR_OPT);
        }),
    ];
    let (_, query) = asked(EDNS);
    for (what, change) in table {
        let mut reply = upstream_reply(&answer());
        change(&mut reply);
        assert!(rework(reply, &query).is_err(), "{what}");
    }
}

proptest::proptest! {
    #[test]
    fn any_reply_is_reworked_or_refused_without_a_panic(
        changes in proptest::collection::vec((12_usize..200, proptest::num::u8::ANY), 0..6),
        cut in 0_usize..200,
    ) {
        let (_, query) = asked(EDNS);
        let mut reply = opt_in_the_middle(FOREIGN_OPT, "www.test");
        for (at, value) in changes {
            if let Some(byte) = reply.get_mut(at) {
                *byte = value;
            }
        }
        reply.truncate(cut.max(12));
        let _ = rework(reply, &query);
    }
}
