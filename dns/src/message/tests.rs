use proptest::prelude::*;

use super::wire::Reader;
use super::*;

mod replies;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn query_bytes() -> Vec<u8> {
    encode_query(
        0x1234,
        &name("WeB.Example"),
        RecordType::AAAA,
        QueryOptions::default(),
    )
}

fn without_edns() -> Vec<u8> {
    encode_query(
        7,
        &name("web.example"),
        RecordType::A,
        QueryOptions {
            edns: false,
            ..QueryOptions::default()
        },
    )
}

fn with(mut packet: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    packet[at..at + bytes.len()].copy_from_slice(bytes);
    packet
}

fn appended(mut packet: Vec<u8>, bytes: &[u8]) -> Vec<u8> {
    packet.extend_from_slice(bytes);
    packet
}

fn asked(packet: &[u8]) -> Query {
    match check(packet) {
        Checked::Query(query) => query,
        other => panic!("not a query: {other:?}"),
    }
}

fn replied(packet: &[u8]) -> Parsed {
    match check(packet) {
        Checked::Reply(reply) => answers(&reply).unwrap(),
        other => panic!("not a reply: {other:?}"),
    }
}

#[test]
fn a_query_of_ours_reads_back_as_asked() {
    let query = asked(&query_bytes());
    assert_eq!(query.id, 0x1234);
    assert_eq!(query.name.to_string(), "WeB.Example");
    assert_eq!((query.rtype, query.class), (RecordType::AAAA, CLASS_IN));
    assert_eq!((query.rd, query.ad, query.cd), (true, true, false));
    assert_eq!(
        query.edns,
        Some(Edns {
            udp_size: 1232,
            dnssec_ok: false,
            version: 0
        })
    );
    let options = QueryOptions {
        dnssec_ok: true,
        checking_disabled: true,
        ..QueryOptions::default()
    };
    let query = asked(&encode_query(1, &Name::root(), RecordType::NS, options));
    assert!(query.dnssec_ok() && query.cd && query.name.is_root());
}

#[test]
fn short_packets_and_responses_are_dropped() {
    for packet in [vec![], vec![0; 11], with(query_bytes(), 2, &[0x80])] {
        assert_eq!(check(&packet), Checked::Drop);
    }
}

fn assert_fixed_code(what: &str, packet: &[u8], code: ResponseCode) {
    let reply = replied(packet);
    assert_eq!(reply.code, code, "{what}");
    assert!(
        reply.answers.is_empty() && reply.flags.recursion_available,
        "{what}"
    );
    assert_eq!(
        reply.id,
        u16::from_be_bytes([packet[0], packet[1]]),
        "{what}"
    );
}

#[test]
fn malformed_packets_get_formerr() {
    for (what, packet) in [
        ("no question", with(without_edns(), 4, &[0, 0])),
        (
            "two questions",
            with(appended(without_edns(), b"\xc0\x0c\0\x01\0\x01"), 5, &[2]),
        ),
        ("trailing byte", appended(query_bytes(), &[0])),
        ("cut body", query_bytes()[..20].to_vec()),
        ("pointer to itself", with(without_edns(), 12, &[0xc0, 0x0c])),
        ("label type 01", with(without_edns(), 12, &[0x41])),
        (
            "an answer",
            with(
                appended(without_edns(), b"\0\0\x01\0\x01\0\0\0\0\0\0"),
                7,
                &[1],
            ),
        ),
    ] {
        assert_fixed_code(what, &packet, ResponseCode::FORMERR);
    }
}

#[test]
fn malformed_edns_gets_formerr() {
    let opt = query_bytes()[29..].to_vec();
    let named_opt = b"\x01a\x00\x00\x29\x04\xd0\0\0\0\0\0\0";
    let with_option = |option: &[u8]| {
        let length = u16::try_from(option.len()).unwrap();
        with(
            appended(query_bytes(), option),
            query_bytes().len() - 2,
            &length.to_be_bytes(),
        )
    };
    for (what, packet) in [
        ("two OPT", with(appended(query_bytes(), &opt), 11, &[2])),
        (
            "OPT with a name",
            with(appended(without_edns(), named_opt), 11, &[1]),
        ),
        (
            "OPT as answer",
            with(appended(without_edns(), &opt), 7, &[1]),
        ),
        ("option overrun", with_option(b"\0\x0c\0\x09\0")),
        ("bad cookie", with_option(b"\0\x0a\0\x01\0")),
        ("bad client subnet", with_option(b"\0\x08\0\x04\0\x09\0\0")),
    ] {
        assert_fixed_code(what, &packet, ResponseCode::FORMERR);
    }
    for sound in [
        &b"\0\x0a\0\x08abcdefgh"[..],
        b"\0\x08\0\x04\0\0\0\0",
        b"\xff\xff\0\x01a",
    ] {
        assert_eq!(asked(&with_option(sound)).name, name("web.example"));
    }
}

#[test]
fn packets_of_other_kinds_get_their_fixed_code() {
    let typed = |rtype| encode_query(1, &name("x"), rtype, QueryOptions::default());
    for (what, packet, code) in [
        (
            "notify",
            with(query_bytes(), 2, &[0x20]),
            ResponseCode::NOTIMP,
        ),
        (
            "update without question",
            with(without_edns(), 2, &[0x28, 0, 0, 0]),
            ResponseCode::NOTIMP,
        ),
        (
            "EDNS version 1",
            with(query_bytes(), query_bytes().len() - 5, &[1]),
            ResponseCode::BADVERS,
        ),
        (
            "class CH",
            with(query_bytes(), 27, &[0, 3]),
            ResponseCode::REFUSED,
        ),
        ("AXFR", typed(RecordType::AXFR), ResponseCode::REFUSED),
        ("IXFR", typed(RecordType::IXFR), ResponseCode::REFUSED),
        ("type 0", typed(RecordType(0)), ResponseCode::FORMERR),
        ("OPT asked", typed(RecordType::OPT), ResponseCode::FORMERR),
        ("MAILA", typed(RecordType::MAILA), ResponseCode::NOTIMP),
    ] {
        assert_fixed_code(what, &packet, code);
    }
}

#[test]
fn any_is_answered_with_one_hinfo() {
    let reply = replied(&encode_query(
        9,
        &name("Any.example"),
        RecordType::ANY,
        QueryOptions::default(),
    ));
    assert_eq!(reply.code, ResponseCode::NOERROR);
    assert_eq!(reply.answers.len(), 1);
    assert_eq!(reply.answers[0].owner.to_string(), "Any.example");
    assert_eq!(reply.answers[0].rtype, RecordType::HINFO);
    assert!(reply.answers[0].data.to_string().contains("RFC8482"));
}

#[test]
fn an_error_reply_echoes_question_flags_and_opt() {
    let mut packet = query_bytes();
    packet[3] |= 0x10 | 0x40;
    let opt_flags = packet.len() - 4;
    packet[opt_flags] = 0x80;
    let query = asked(&packet);
    let wire = error_reply(&query, ResponseCode::SERVFAIL);
    assert_eq!(wire[12..29], packet[12..29], "question bytes");
    assert_eq!(
        u16::from_be_bytes([wire[2], wire[3]]),
        0x8192,
        "QR RD RA CD, Z and AD clear"
    );
    assert_eq!(
        answers(&wire).unwrap().edns,
        Some(Edns {
            udp_size: 1232,
            dnssec_ok: true,
            version: 0
        })
    );
    let plain = error_reply(&asked(&without_edns()), ResponseCode::REFUSED);
    assert_eq!(answers(&plain).unwrap().edns, None);
    assert_eq!(plain.len(), without_edns().len());
}

#[test]
fn a_name_of_255_octets_with_binary_labels_is_asked() {
    let label = [0x80u8; 63];
    let mut wire = Vec::new();
    for length in [63usize, 63, 63, 61] {
        wire.push(u8::try_from(length).unwrap());
        wire.extend_from_slice(&label[..length]);
    }
    wire.push(0);
    let longest = Name::from_wire(&wire).unwrap();
    let query = asked(&encode_query(
        1,
        &longest,
        RecordType::A,
        QueryOptions::default(),
    ));
    assert_eq!(query.name.as_wire(), wire);
}

#[test]
fn chains_of_pointers_end_quickly() {
    let mut packet = vec![0u8; 12];
    packet.push(0);
    for step in 0..4000u16 {
        let target = if step == 0 { 12 } else { 13 + (step - 1) * 2 };
        packet.extend_from_slice(&(0xc000 | target).to_be_bytes());
    }
    let last = packet.len() - 2;
    assert_eq!(Reader::at(&packet, last).name(), Err(MessageError::BadName));
    assert_eq!(Reader::at(&packet, 13).name(), Ok(Name::root()));
}

fn record(owner: &str, rtype: RecordType, data: &[u8]) -> Record {
    Record {
        owner: name(owner),
        rtype,
        class: CLASS_IN,
        ttl: 300,
        data: data.to_vec(),
    }
}

/// A finished reply with our OPT record behind it.
fn reply_of(asked: &Name, rtype: RecordType, answer: &[Record], authority: &[Record]) -> Vec<u8> {
    let mut builder = Builder::new(asked, rtype, CLASS_IN);
    answer.iter().for_each(|record| builder.answer(record));
    authority
        .iter()
        .for_each(|record| builder.authority(record));
    let mut wire = builder.finish().unwrap().wire;
    wire[2] = 0x81;
    wire[3] = 0x80;
    wire[11] = 1;
    Edns::ours(false).write(&mut wire, ResponseCode::NOERROR);
    wire
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    #[test]
    fn random_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..600), query in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = check(&bytes);
        let _ = answers(&bytes);
        prop_assert!(fit_udp(bytes.clone(), &query).len() <= bytes.len().max(UDP_PAYLOAD_WITHOUT_EDNS.into()));
        zero_ttls(&mut bytes);
    }

    #[test]
    fn mutated_packets_never_panic_and_get_sound_replies(
        reply in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let soa = [name("ns.example").as_wire(), name("host.example").as_wire(), &[9u8; 20]].concat();
        let answer: Vec<Record> = (0..60).map(|last| record("web.example", RecordType::A, &[10, 0, 0, last])).collect();
        let mut packet = if reply {
            reply_of(&name("web.example"), RecordType::A, &answer, &[record("example", RecordType::SOA, &soa)])
        } else {
            query_bytes()
        };
        for (index, value) in &changes {
            let at = index.index(packet.len());
            packet[at] = *value;
        }
        if let Some(index) = cut {
            packet.truncate(index.index(packet.len()));
        }
        if let Checked::Reply(reply) = check(&packet) {
            prop_assert!(answers(&reply).is_ok());
        }
        if answers(&packet).is_ok() {
            prop_assert!(answers(&fit_udp(packet.clone(), &query_bytes())).is_ok());
        }
        let length = packet.len();
        zero_ttls(&mut packet);
        prop_assert_eq!(packet.len(), length);
    }

    #[test]
    fn hickory_reads_the_same_question(labels in prop::collection::vec("[a-zA-Z0-9_-]{1,12}", 1..5), rtype in 1u16..60) {
        let asked = name(&labels.join("."));
        let wire = encode_query(3, &asked, RecordType(rtype), QueryOptions::default());
        let theirs = hickory_proto::op::Message::from_vec(&wire).unwrap();
        prop_assert_eq!(theirs.queries.len(), 1);
        prop_assert_eq!(u16::from(theirs.queries[0].query_type()), rtype);
        prop_assert!(theirs.queries[0].name().iter().eq(asked.labels()));
    }
}

#[test]
fn the_options_of_a_reply_do_not_spoil_it() {
    // A client subnet with its scope (RFC 7871 §7.2), a cookie of no legal length, and bytes that are no options.
    let subnet: &[u8] = b"\0\x08\0\x07\0\x01\x18\x18\x0a\0\x01";
    let cookie: &[u8] = b"\0\x0a\0\x03abc";
    for options in [subnet, cookie, b"\x01"] {
        let name = name("a.test");
        let mut reply = reply_of(
            &name,
            RecordType::A,
            &[record("a.test", RecordType::A, &[10, 0, 0, 1])],
            &[],
        );
        reply.truncate(reply.len() - 2);
        reply.push(0);
        reply.push(u8::try_from(options.len()).unwrap());
        reply.extend_from_slice(options);
        let parsed = answers(&reply).unwrap();
        assert_eq!(parsed.addresses().count(), 1, "{options:?}");
        assert!(parsed.edns.is_some());
    }
}
