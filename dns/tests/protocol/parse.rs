//! P: what may come in a packet, and what is said to it.

use std::time::Duration;

use kubebridge_dns::message::check;
use kubebridge_dns::name::RecordType;
use kubebridge_dns::records::Local;
use kubebridge_dns::server::Transport;
use kubebridge_dns::test_util::{Answer, LoopbackServer, Record};
use tokio::time::Instant;

use crate::packet::*;
use crate::world::*;

const WEB: &str = "www.example.org";

fn address() -> Answer {
    Answer::address(WEB, [192, 0, 2, 1])
}

/// Checks that packets are answered with a fixed code, over both transports, the same when asked again, and that no upstream hears of them.
async fn fixed(packets: Vec<(&str, Vec<u8>, u16)>) {
    let world = World::saying(address()).await;
    for (what, packet, expected) in packets {
        for how in [Transport::Udp, Transport::Tcp, Transport::Udp] {
            let reply = world.ask(how, &packet).await;
            assert_eq!(id(&reply), id(&packet), "{what}");
            assert_eq!(flags(&reply), expected, "{what}: {:04x}", flags(&reply));
            assert_eq!(parsed(&reply).answers, [], "{what}");
            if reply[5] > 0 {
                assert_eq!(question_of(&reply), question_of(&packet), "{what}");
            }
        }
    }
    assert_eq!(world.asked(), [""; 0]);
}

/// P1
#[tokio::test]
async fn a_packet_shorter_than_a_header_is_met_with_silence_and_a_closed_stream() {
    let world = World::saying(address()).await;
    let whole = query(WEB, RecordType::A);
    let short: Vec<Vec<u8>> = (0..12).map(|length| whole[..length].to_vec()).collect();
    world.says_nothing_to(&short).await;
    for packet in short {
        let mut stream = world.connect().await;
        send_frame(&mut stream, &packet).await;
        assert_eq!(receive_frame(&mut stream).await, None, "{}", packet.len());
    }
}

/// P2
#[tokio::test]
async fn a_response_is_met_with_silence() {
    let world = World::saying(address()).await;
    let whole = query(WEB, RecordType::A);
    let responses = [0x8000, 0x8180, 0x8583, 0xffff].map(|flags| with_flags(&whole, flags));
    world.says_nothing_to(&responses).await;
    assert_eq!(world.asked(), [""; 0]);
}

/// P3
#[tokio::test]
async fn a_bad_body_behind_a_good_header_gets_one_formerr_at_once() {
    let whole = with_opt(&query(WEB, RecordType::A), 1232, 0, b"");
    let cut: Vec<Vec<u8>> = (12..whole.len()).map(|end| whole[..end].to_vec()).collect();
    let table = cut.iter().map(|packet| ("cut", packet.clone(), REPLY | 1));
    fixed(table.collect()).await;
    let in_time = || {
        let begun = std::time::SystemTime::now();
        cut.iter().for_each(|packet| drop(check(packet)));
        let most = Duration::from_millis(1) * u32::try_from(cut.len()).unwrap();
        begun.elapsed().is_ok_and(|taken| taken < most)
    };
    assert!((0..10).any(|_| in_time()));
}

/// P4
#[tokio::test]
async fn every_opcode_but_query_gets_notimp_whatever_the_body() {
    let whole = query(WEB, RecordType::A);
    let mut table = Vec::new();
    for opcode in [1, 2, 3, 4, 5, 6, 7, 15_u16] {
        let asked = RD | opcode << 11;
        let expected = REPLY | opcode << 11 | 4;
        let update = with_count(&with_flags(&whole, asked), 1, 3);
        table.push(("whole", with_flags(&whole, asked), expected));
        table.push(("no question", header(ID, asked, [0; 4]), expected));
        table.push(("cut", update, expected));
        table.push((
            "without RD",
            with_flags(&whole, opcode << 11),
            expected & !RD,
        ));
    }
    fixed(table).await;
}

/// P5
#[tokio::test]
async fn no_question_or_several_get_formerr() {
    let one = query(WEB, RecordType::A);
    let two = with_count(&[one.clone(), question("b.test", 1, 1)].concat(), 0, 2);
    let none = header(ID, RD, [0; 4]);
    fixed(vec![
        ("none", none.clone(), REPLY | 1),
        ("none with an OPT", with_opt(&none, 1232, 0, b""), REPLY | 1),
        ("two", two.clone(), REPLY | 1),
        ("two with an OPT", with_opt(&two, 1232, 0, b""), REPLY | 1),
        ("many claimed", with_count(&one, 0, 0xffff), REPLY | 1),
    ])
    .await;
}

/// P6
#[tokio::test]
async fn trailing_bytes_get_formerr() {
    let whole = query(WEB, RecordType::A);
    let with_edns = with_opt(&whole, 1232, 0, b"");
    fixed(vec![
        ("one byte", [&whole[..], b"\0"].concat(), REPLY | 1),
        (
            "an OPT uncounted",
            [&whole[..], OUR_OPT].concat(),
            REPLY | 1,
        ),
        ("behind an OPT", [&with_edns[..], b"x"].concat(), REPLY | 1),
    ])
    .await;
}

/// P7
#[tokio::test]
async fn records_no_query_has_get_formerr() {
    let whole = query(WEB, RecordType::A);
    let record: &[u8] = b"\xc0\x0c\0\x01\0\x01\0\0\0\x05\0\x04\x0a\0\0\x01";
    let with = |section, count: u16| {
        let records = record.repeat(count.into());
        with_count(&[&whole[..], &records].concat(), section, count)
    };
    fixed(vec![
        ("an answer", with(1, 1), REPLY | 1),
        ("two in authority", with(2, 2), REPLY | 1),
        ("three additional", with(3, 3), REPLY | 1),
    ])
    .await;
    let world = World::saying(address()).await;
    for (section, count) in [(2, 1), (3, 2)] {
        let reply = world.udp(&with(section, count)).await;
        assert_eq!(flags(&reply), REPLY, "{count} in section {section}");
    }
}

/// P8
#[tokio::test]
async fn malformed_names_get_formerr() {
    let asked = |name: &[u8]| [&header(ID, RD, [1, 0, 0, 0])[..], name, b"\0\x01\0\x01"].concat();
    let long: Vec<u8> = [&b"\x3f"[..], &[b'x'; 63]].concat().repeat(4);
    let owned = |owner: &[u8]| {
        let record = [owner, b"\0\x01\0\x01\0\0\0\x05\0\x04\x0a\0\0\x01"].concat();
        with_additional(&query(WEB, RecordType::A), &record)
    };
    fixed(vec![
        ("pointer to itself", asked(b"\xc0\x0c"), REPLY | 1),
        (
            "pointer to the label before",
            asked(b"\x01a\xc0\x0c"),
            REPLY | 1,
        ),
        ("pointer forward", asked(b"\xc0\x20"), REPLY | 1),
        ("pointer into the header", asked(b"\xc0\x00"), REPLY | 1),
        ("label type 01", asked(b"\x41a\0"), REPLY | 1),
        ("label type 10", asked(b"\x81a\0"), REPLY | 1),
        (
            "256 octets",
            asked(&[&long[..255], b"\0"].concat()),
            REPLY | 1,
        ),
        ("257 octets", asked(&[&long[..], b"\0"].concat()), REPLY | 1),
        ("owner beyond the packet", owned(b"\xff\xff"), REPLY | 1),
        ("owner forward", owned(b"\xc0\x22"), REPLY | 1),
    ])
    .await;
}

/// P8
#[tokio::test]
async fn a_name_of_255_octets_with_any_octets_in_it_is_resolved() {
    let mut name = [&b"\x3f"[..], &[0xff, 0x00, b'.', b'\\', b' '], &[b'x'; 58]].concat();
    name = [
        name.repeat(3),
        [&b"\x3d"[..], &[b'y'; 61]].concat(),
        vec![0],
    ]
    .concat();
    assert_eq!(name.len(), 255);
    let packet = [&header(ID, RD, [1, 0, 0, 0])[..], &name, b"\0\x01\0\x01"].concat();
    let start = || World::saying(Answer::records([Record::address(".", [192, 0, 2, 1])]));
    everywhere(start, &packet, |what, world, reply| {
        // The upstream's record is off the chain, so the name exists without data.
        assert_echoes(what, &packet, reply, REPLY);
        let sent = &world.received()[0].message;
        assert!(question_of(sent)[..255].eq_ignore_ascii_case(&name));
    })
    .await;
}

/// P9
#[tokio::test]
async fn the_zero_bit_is_accepted_and_cleared() {
    let packet = with_flags(&query(WEB, RecordType::A), RD | Z);
    everywhere(
        || World::saying(address()),
        &packet,
        |what, world, reply| {
            assert_echoes(what, &packet, reply, REPLY);
            assert_eq!(flags(&world.received()[0].message) & Z, 0);
        },
    )
    .await;
}

/// P10
#[tokio::test]
async fn classes_other_than_in_are_refused_and_leave_no_trace() {
    let asked = |class, rtype| [header(ID, RD, [1, 0, 0, 0]), question(WEB, rtype, class)].concat();
    fixed(vec![
        ("CH", asked(3, 1), REPLY | 5),
        ("HS", asked(4, 1), REPLY | 5),
        ("NONE", asked(254, 1), REPLY | 5),
        ("ANY", asked(255, 1), REPLY | 5),
        ("0", asked(0, 1), REPLY | 5),
        ("CH and ANY", asked(3, 255), REPLY | 5),
        (
            "CH and OPT",
            with_opt(&asked(3, 16), 1232, 0, b""),
            REPLY | 5,
        ),
    ])
    .await;
    let world = World::saying(address()).await;
    world.udp(&asked(3, 1)).await;
    assert_eq!(flags(&world.udp(&asked(1, 1)).await), REPLY);
}

/// P11
#[tokio::test]
async fn transfers_are_refused_and_types_that_are_no_question_get_their_code() {
    let asked = |rtype| query(WEB, RecordType(rtype));
    let soa: &[u8] =
        b"\xc0\x0c\0\x06\0\x01\0\0\0\0\0\x16\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let ixfr = with_count(&[&asked(251), soa].concat(), 2, 1);
    fixed(vec![
        ("AXFR", asked(252), REPLY | 5),
        ("IXFR", ixfr, REPLY | 5),
        ("type 0", asked(0), REPLY | 1),
        ("OPT", asked(41), REPLY | 1),
        ("TKEY", asked(249), REPLY | 1),
        ("TSIG", asked(250), REPLY | 1),
        ("MAILB", asked(253), REPLY | 4),
        ("MAILA", asked(254), REPLY | 4),
    ])
    .await;
}

/// P12
#[tokio::test]
async fn the_data_of_an_unknown_type_passes_byte_exact() {
    let unknown = RecordType(65_280);
    let data = b"\xc0\x0c\x00\xff\xc0\xff odd \x3f";
    let packet = query("wWw.Example.Org", unknown);
    let start = || World::saying(Answer::records([Record::new(WEB, unknown, *data)]));
    everywhere(start, &packet, |what, world, reply| {
        assert_echoes(what, &packet, reply, REPLY);
        let record = [&b"\xc0\x0c\xff\x00\0\x01\0\0\0\x1e\0\x0c"[..], data].concat();
        assert!(reply.ends_with(&record), "{what}: {reply:?}");
        assert_eq!(world.received().len(), 1, "{what}");
    })
    .await;
}

/// P13
#[tokio::test]
async fn the_name_servers_of_the_root_are_answered_soon_enough_for_a_health_probe() {
    let packet = query(".", RecordType::NS);
    let servers = Answer::records([Record::new(".", RecordType::NS, *b"\x01a\0")]);
    everywhere(
        || World::saying(servers.clone()),
        &packet,
        |what, _, reply| {
            assert_echoes(what, &packet, reply, REPLY);
            assert_eq!(shown(reply), [". 30 NS a"], "{what}");
        },
    )
    .await;
}

/// P13
#[tokio::test(start_paused = true)]
async fn silent_upstreams_do_not_make_us_look_dead_to_a_health_probe() {
    // CoreDNS waits a second for its probe and takes any answer for health.
    let packet = query(".", RecordType::NS);
    for how in TRANSPORTS {
        let world = World::silent().await;
        let begun = Instant::now();
        let reply = world.ask(how, &packet).await;
        assert_echoes("silent upstream", &packet, &reply, REPLY | 2);
        assert!(begun.elapsed() < Duration::from_millis(600), "{how:?}");
    }
}

/// P14
#[tokio::test]
async fn without_recursion_desired_only_our_records_and_the_cache_answer() {
    let service = "authors.default.svc.cluster.local";
    let ours = Local::Addresses(vec![[10, 96, 0, 1].into()]);
    let mut plan = Plan::of(vec![LoopbackServer::saying(address()).await]);
    plan.local = Table::default().with(service, RecordType::A, ours);
    let world = plan.start().await;
    let unasked = |text| with_flags(&query(text, RecordType::A), 0);
    for how in TRANSPORTS {
        let reply = world.ask(how, &unasked(WEB)).await;
        assert_echoes("not known", &unasked(WEB), &reply, 0x8085);
        for text in ["authors", service] {
            let reply = world.ask(how, &unasked(text)).await;
            assert_echoes("ours", &unasked(text), &reply, 0x8080 | AA);
            assert_eq!(parsed(&reply).answers.len(), 1);
        }
    }
    assert_eq!(world.asked(), [""; 0]);
    world.udp(&query(WEB, RecordType::A)).await;
    for how in TRANSPORTS {
        let reply = world.ask(how, &unasked(WEB)).await;
        assert_echoes("from the cache", &unasked(WEB), &reply, 0x8080);
        assert_eq!(parsed(&reply).answers.len(), 1);
    }
    assert_eq!(world.asked(), [WEB]);
}
