use super::*;

fn wire_record(owner: &str, rtype: u16, data: &[u8]) -> Record {
    Record::new(owner, RecordType(rtype), data)
}

#[tokio::test(start_paused = true)]
async fn special_names_never_leave() {
    let world = World::new([upstream()]);
    for (asked, rtype, code, answer) in [
        (
            "LocalHost",
            RecordType::A,
            ResponseCode::NOERROR,
            Some("LocalHost A 127.0.0.1"),
        ),
        (
            "x.localhost",
            RecordType::AAAA,
            ResponseCode::NOERROR,
            Some("x.localhost AAAA ::1"),
        ),
        ("localhost", RecordType::MX, ResponseCode::NOERROR, None),
        ("a.invalid", RecordType::A, ResponseCode::NXDOMAIN, None),
        ("x.onion", RecordType::A, ResponseCode::NXDOMAIN, None),
        (
            "_dns.resolver.arpa",
            RecordType::SVCB,
            ResponseCode::NOERROR,
            None,
        ),
        ("cluster.local", RecordType::DS, ResponseCode::NOERROR, None),
    ] {
        let reply = world.ask(asked, rtype).await;
        assert_eq!(reply.code, code, "{asked}");
        assert_eq!(shown(&reply).first().map(String::as_str), answer, "{asked}");
        assert_eq!(
            reply.authority.len(),
            usize::from(answer.is_none()),
            "{asked}: a negative has its SOA"
        );
    }
    assert!(world.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn malformed_and_odd_packets_are_not_forwarded() {
    let world = World::new([upstream()]);
    assert_eq!(
        world.resolver.answer(&[0; 11], &Asker::new(pod())).await,
        None
    );
    let mut class_ch = encode_query(1, &name("a.b"), RecordType::TXT, QueryOptions::default());
    class_ch[20] = 3;
    assert_eq!(
        answers(&world.raw(&class_ch, &pod()).await).unwrap().code,
        ResponseCode::REFUSED
    );
    assert_eq!(world.ask("a.b", RecordType::ANY).await.answers.len(), 1);
    assert!(world.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn unknown_types_and_data_that_decoders_refuse_pass_byte_exact() {
    let odd = [
        (65280, &b"\xc0\x0c\x00\xff"[..]),
        (16, b""),
        // SvcParams out of order, and a key nobody knows.
        (
            65,
            b"\x00\x01\x00\x00\x03\x00\x02\x01\xbb\x00\x01\x00\x03\x02h2\xfe\x00\x00\x01x",
        ),
    ];
    for (rtype, data) in odd {
        let script = upstream().with(
            SERVICE,
            RecordType(rtype),
            Answer::records([wire_record(SERVICE, rtype, data)]),
        );
        let world = World::new([script]);
        for _ in 0..2 {
            let packet = encode_query(
                1,
                &name("authors"),
                RecordType(rtype),
                QueryOptions::default(),
            );
            let reply = world.raw(&packet, &pod()).await;
            let record = [
                &b"\xc0\x0c"[..],
                &rtype.to_be_bytes(),
                b"\0\x01\0\0\0\x1e\0",
                &[u8::try_from(data.len()).unwrap()],
                data,
            ];
            let record = record.concat();
            assert!(
                reply.windows(record.len()).any(|window| window == record),
                "type {rtype}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn extras_and_the_upstreams_opt_are_dropped() {
    let extra = || Record::address("evil.example", v4(66));
    let script = Answer::records([Record::address(SERVICE, v4(1)), extra()])
        .authority([extra()])
        .additional([extra()]);
    let world = World::new([upstream().with(SERVICE, RecordType::A, script)]);
    let without = QueryOptions {
        edns: false,
        ..QueryOptions::default()
    };
    let wire = world
        .raw(
            &encode_query(1, &name(SERVICE), RecordType::A, without),
            &pod(),
        )
        .await;
    let reply = answers(&wire).unwrap();
    assert_eq!(shown(&reply), [format!("{SERVICE} A 10.96.0.1")]);
    assert!(reply.authority.is_empty() && reply.edns.is_none());
    assert_eq!(wire[6..12], [0, 1, 0, 0, 0, 0]);
    let with = world.ask(SERVICE, RecordType::A).await;
    assert_eq!(with.edns.map(|edns| edns.udp_size), Some(1232));
}

#[tokio::test(start_paused = true)]
async fn signatures_are_given_only_when_wanted_and_only_when_they_still_fit() {
    let signature = [&RecordType::A.0.to_be_bytes()[..], &[8; 30]].concat();
    let signed = || {
        Answer::records([
            Record::address(SERVICE, v4(1)),
            Record::new(SERVICE, RecordType::RRSIG, signature.clone()),
        ])
    };
    let world = World::new([upstream().with(SERVICE, RecordType::A, signed())]);
    for (asked, dnssec_ok, records) in [
        (SERVICE, false, 1),
        (SERVICE, true, 2),
        ("authors", true, 1),
    ] {
        let options = QueryOptions {
            dnssec_ok,
            ..QueryOptions::default()
        };
        let reply = world
            .raw(
                &encode_query(1, &name(asked), RecordType::A, options),
                &pod(),
            )
            .await;
        let reply = answers(&reply).unwrap();
        assert_eq!(
            (reply.answers.len(), reply.flags.authentic),
            (records, false),
            "{asked} {dnssec_ok}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn large_answers_come_whole() {
    let records: Vec<Record> = (0..=255u8)
        .flat_map(|high| {
            (0..8u8).map(move |low| Record::address(SERVICE, IpAddr::from([10, 1, high, low])))
        })
        .collect();
    let world = World::new([upstream().with(SERVICE, RecordType::A, Answer::records(records))]);
    for _ in 0..2 {
        let reply = world.ask("authors", RecordType::A).await;
        assert_eq!(reply.answers.len(), 2048);
        assert!(!reply.flags.truncated);
    }
}

#[tokio::test(start_paused = true)]
async fn a_referral_without_recursion_is_no_answer() {
    let referral = Answer::records([]).authority([Record::new(
        "example",
        RecordType::NS,
        name("ns.example").as_wire(),
    )]);
    let world = World::new([upstream().with("a.example", RecordType::A, referral)]);
    let reply = world.ask("a.example", RecordType::A).await;
    assert!(reply.answers.is_empty());
}
