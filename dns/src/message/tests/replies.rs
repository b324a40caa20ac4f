//! Replies: built, cut to size, aged and read back.

use super::*;

#[test]
fn built_replies_keep_every_record_and_every_spelling() {
    let target = name("ReAl.Other.example");
    let soa = [
        name("NS.example").as_wire(),
        name("hostmaster.Example").as_wire(),
        &[1u8; 20],
    ]
    .concat();
    let answer = [
        record("EXT.example", RecordType::CNAME, target.as_wire()),
        record("ReAl.Other.example", RecordType::A, &[192, 0, 2, 1]),
        record(
            "ReAl.Other.example",
            RecordType(65280),
            &[0xc0, 0x0c, 0xff, 0],
        ),
        record("ReAl.Other.example", RecordType::TXT, &[]),
        record(
            "other.EXAMPLE",
            RecordType::MX,
            &[&[0, 10][..], name("Mail.other.EXAMPLE").as_wire()].concat(),
        ),
    ];
    let authority = [record("example", RecordType::SOA, &soa)];
    let wire = reply_of(&name("ext.Example"), RecordType::A, &answer, &authority);
    let reply = Reply::read(&wire).unwrap();
    assert_eq!(
        reply.answer[0].owner.as_wire(),
        name("ext.Example").as_wire(),
        "owner in the asker's case"
    );
    for (read, written) in reply.answer.iter().zip(&answer).skip(1) {
        assert_eq!(read.owner.as_wire(), written.owner.as_wire());
        assert_eq!((read.rtype, &read.data), (written.rtype, &written.data));
    }
    assert_eq!(reply.answer[0].data, target.as_wire());
    assert_eq!(reply.authority[0].data, soa);
}

#[test]
fn a_reply_that_fits_is_left_alone() {
    let wire = reply_of(
        &name("web.example"),
        RecordType::A,
        &[record("web.example", RecordType::A, &[1; 4])],
        &[],
    );
    assert_eq!(fit_udp(wire.clone(), &query_bytes()), wire);
}

#[test]
fn an_over_long_reply_is_cut_at_a_set_and_keeps_its_opt() {
    let asked = name("web.example");
    let mut answer = vec![record(
        "web.example",
        RecordType::CNAME,
        name("big.example").as_wire(),
    )];
    answer.extend((0..100).map(|last| record("big.example", RecordType::A, &[10, 0, 0, last])));
    let wire = reply_of(&asked, RecordType::A, &answer, &[]);
    for (query, limit, edns) in [(without_edns(), 512, true), (query_bytes(), 1232, true)] {
        let cut = fit_udp(wire.clone(), &query);
        let parsed = answers(&cut).unwrap();
        assert!(cut.len() <= limit && parsed.flags.truncated);
        assert_eq!(
            parsed.answers.len(),
            1,
            "the alias stays, no part of the address set does"
        );
        assert_eq!(parsed.edns.is_some(), edns);
    }
}

#[test]
fn edns_sizes_are_held_between_512_and_1232() {
    let asked = name("web.example");
    let answer: Vec<Record> = (0..50)
        .map(|last| record("web.example", RecordType::A, &[10, 0, 0, last]))
        .collect();
    let wire = reply_of(&asked, RecordType::A, &answer, &[]);
    let sized = |size: u16| with(query_bytes(), query_bytes().len() - 8, &size.to_be_bytes());
    assert!(wire.len() > 512 && wire.len() <= 1232);
    assert!(
        answers(&fit_udp(wire.clone(), &sized(100)))
            .unwrap()
            .flags
            .truncated
    );
    assert!(
        !answers(&fit_udp(wire, &sized(65535)))
            .unwrap()
            .flags
            .truncated
    );
    let large: Vec<Record> = (0..100)
        .map(|last| record("web.example", RecordType::A, &[10, 0, 0, last]))
        .collect();
    let large = reply_of(&asked, RecordType::A, &large, &[]);
    assert!(fit_udp(large, &sized(65535)).len() <= 1232);
}

#[test]
fn zeroed_replies_keep_opt_and_lose_all_ttls() {
    let soa = [
        name("ns.example").as_wire(),
        name("host.example").as_wire(),
        &[9u8; 20],
    ]
    .concat();
    let answer = [record(
        "web.example",
        RecordType::CNAME,
        name("b.example").as_wire(),
    )];
    let mut wire = reply_of(
        &name("web.example"),
        RecordType::A,
        &answer,
        &[record("example", RecordType::SOA, &soa)],
    );
    let opt_ttl = wire.len() - 6;
    wire[opt_ttl..opt_ttl + 4].copy_from_slice(&[0, 0, 0x80, 0]);
    zero_ttls(&mut wire);
    let reply = Reply::read(&wire).unwrap();
    assert!(
        reply
            .answer
            .iter()
            .chain(&reply.authority)
            .all(|record| record.ttl == 0)
    );
    assert_eq!(reply.authority[0].data[soa.len() - 4..], [0; 4], "MINIMUM");
    assert_eq!(
        reply.authority[0].data[..soa.len() - 4],
        soa[..soa.len() - 4]
    );
    assert!(reply.edns.unwrap().dnssec_ok);
}

#[test]
fn ttls_with_the_top_bit_count_as_zero() {
    let mut wire = reply_of(
        &name("a.example"),
        RecordType::A,
        &[record("a.example", RecordType::A, &[1; 4])],
        &[],
    );
    let ttl_at = wire.len() - 11 - 4 - 2 - 4;
    wire[ttl_at] = 0x80;
    assert_eq!(Reply::read(&wire).unwrap().answer[0].ttl, 0);
}

#[test]
fn pointers_in_known_data_are_expanded_and_unknown_data_is_not_touched() {
    let mut wire = vec![0, 1, 0x81, 0x80, 0, 1, 0, 2, 0, 0, 0, 0];
    push_question(&mut wire, &name("a.example"), RecordType::SRV, CLASS_IN);
    for rtype in [RecordType::SRV, RecordType(65280)] {
        wire.extend_from_slice(&[0xc0, 0x0c]);
        wire.extend_from_slice(&rtype.0.to_be_bytes());
        wire.extend_from_slice(&[0, 1, 0, 0, 0, 5, 0, 8, 0, 1, 0, 2, 0, 80, 0xc0, 0x0e]);
    }
    let reply = Reply::read(&wire).unwrap();
    assert_eq!(
        reply.answer[0].data,
        [&[0, 1, 0, 2, 0, 80][..], name("example").as_wire()].concat()
    );
    assert_eq!(reply.answer[1].data, [0, 1, 0, 2, 0, 80, 0xc0, 0x0e]);
    assert_eq!(
        names_in(RecordType::SRV, &reply.answer[0].data),
        [name("example")]
    );
}
