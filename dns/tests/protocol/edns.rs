//! E: the OPT record of askers, of upstreams, and ours.

use std::net::UdpSocket;
use std::sync::Arc;

use kubebridge_dns::name::{RecordType, ResponseCode};
use kubebridge_dns::server::Transport;
use kubebridge_dns::test_util::{Answer, LoopbackServer, Record};
use kubebridge_dns::upstream::{Do53, PortPolicy};

use crate::packet::*;
use crate::world::*;

const WEB: &str = "www.example.org";

fn address() -> Answer {
    Answer::address(WEB, [192, 0, 2, 1])
}

fn web() -> Vec<u8> {
    query(WEB, RecordType::A)
}

/// A family of addresses that needs about 1,600 octets.
fn hundred() -> Answer {
    let records = (0..100).map(|last| Record::address(WEB, [192, 0, 2, last]));
    Answer::records(records.collect::<Vec<_>>())
}

/// Counts the OPT records in the additional section; none elsewhere.
fn opts(reply: &[u8]) -> usize {
    reply
        .windows(5)
        .filter(|five| *five == b"\0\0\x29\x04\xd0")
        .count()
}

/// E1
#[tokio::test]
async fn without_an_opt_none_comes_back_and_datagrams_stay_within_512_octets() {
    let packet = web();
    everywhere(
        || World::saying(hundred()),
        &packet,
        |what, _, reply| {
            assert_eq!(reply[11], 0, "{what}");
            let over_tcp = what.starts_with("over Tcp") || what == "cold over Tcp";
            assert!(over_tcp || reply.len() <= 512, "{what}: {}", reply.len());
            let expected = if over_tcp { REPLY } else { REPLY | TC };
            assert_echoes(what, &packet, reply, expected);
        },
    )
    .await;
}

/// E2
#[tokio::test]
async fn an_opt_is_answered_by_one_of_ours_whatever_the_code() {
    let codes = [
        (Answer::records([Record::address(WEB, [192, 0, 2, 1])]), 0),
        (Answer::nodata("example.org"), 0),
        (Answer::nxdomain("org"), 3),
        (Answer::code(ResponseCode::SERVFAIL), 2),
        (Answer::code(ResponseCode::REFUSED), 2),
        (hundred(), 0),
    ];
    for (answer, code) in codes {
        for (ttl, ours) in [(0, OUR_OPT), (DO, OUR_OPT_DO), (DO | 0x7fff, OUR_OPT_DO)] {
            let packet = with_opt(&web(), 512, ttl, b"");
            everywhere(
                || World::saying(answer.clone()),
                &packet,
                |what, _, reply| {
                    let what = format!("code {code} {what}");
                    assert_eq!(flags(reply) & !TC, REPLY | code, "{what}");
                    assert!(reply.ends_with(ours), "{what}: {reply:?}");
                    assert_eq!(opts(reply), 1, "{what}");
                    assert_eq!(
                        parsed(reply).edns.map(|e| e.dnssec_ok),
                        Some(ttl >= DO),
                        "{what}"
                    );
                },
            )
            .await;
        }
    }
}

/// E2
#[tokio::test]
async fn replies_made_without_asking_anyone_carry_the_opt_too() {
    let world = World::silent().await;
    let bodies = [
        (
            "update",
            with_flags(&web(), RD | 0x2800),
            REPLY | 0x2800 | 4,
        ),
        ("no question", header(ID, RD, [0; 4]), REPLY | 1),
        (
            "an answer",
            with_count(&[&web()[..], b"\0\0\x01\0\x01\0\0\0\0\0\0"].concat(), 1, 1),
            REPLY | 1,
        ),
        ("transfer", query(WEB, RecordType::AXFR), REPLY | 5),
        ("any", query(WEB, RecordType::ANY), REPLY),
        (
            "special name",
            query("x.invalid", RecordType::A),
            REPLY | AA | 3,
        ),
        ("not recursive", with_flags(&web(), 0), 0x8085),
    ];
    for (what, body, expected) in bodies {
        for how in TRANSPORTS {
            for (ttl, ours) in [(0, OUR_OPT), (DO, OUR_OPT_DO)] {
                let reply = world.ask(how, &with_opt(&body, 4096, ttl, b"")).await;
                assert_eq!(flags(&reply), expected, "{what}: {:04x}", flags(&reply));
                assert!(reply.ends_with(ours), "{what}: {reply:?}");
                assert_eq!(opts(&reply), 1, "{what}");
            }
        }
    }
}

/// E3
#[tokio::test]
async fn a_later_version_gets_badvers_and_is_not_forwarded() {
    let world = World::saying(address()).await;
    for version in [1, 2, 255_u32] {
        for options in [&b""[..], b"no options"] {
            let packet = with_opt(&web(), 4096, version << 16, options);
            for how in [Transport::Udp, Transport::Tcp, Transport::Udp] {
                let reply = world.ask(how, &packet).await;
                assert_echoes("version", &packet, &reply, REPLY);
                assert!(reply.ends_with(OUR_OPT_BADVERS), "{reply:?}");
                assert_eq!(parsed(&reply).code, ResponseCode::BADVERS);
                assert_eq!(parsed(&reply).answers, []);
            }
        }
    }
    assert_eq!(world.asked(), [""; 0]);
}

/// E4, E8, E9: what is wrong with an OPT and its options.
#[tokio::test]
async fn malformed_opts_and_options_get_formerr() {
    let one = with_opt(&web(), 1232, 0, b"");
    let off_root = [&b"\x01a"[..], &opt(1232, 0, b"")].concat();
    let by_pointer = [&b"\xc0\x1c"[..], &opt(1232, 0, b"")[1..]].concat();
    let subnet = |value: &[u8]| with_opt(&web(), 1232, 0, &option(8, value));
    let cookie = |length: usize| with_opt(&web(), 1232, 0, &option(10, &vec![7; length]));
    let mut table = vec![
        ("two", with_opt(&one, 1232, 0, b"")),
        ("off the root", with_additional(&web(), &off_root)),
        (
            "at the root by pointer",
            with_additional(&web(), &by_pointer),
        ),
        (
            "in authority",
            with_count(&[web(), opt(1232, 0, b"")].concat(), 2, 1),
        ),
        (
            "option longer than the record",
            with_opt(&web(), 1232, 0, b"\0\x0c\0\x09abc"),
        ),
        (
            "option cut in its head",
            with_opt(&web(), 1232, 0, b"\0\x0c\0"),
        ),
        ("subnet of family 3", subnet(b"\0\x03\x08\0\x0a")),
        (
            "subnet of family 0 with a prefix",
            subnet(b"\0\0\x08\0\x0a"),
        ),
        (
            "subnet prefix above 32",
            subnet(b"\0\x01\x21\0\x0a\0\0\0\0"),
        ),
        (
            "subnet prefix above 128",
            subnet(&[&b"\0\x02\x81\0"[..], &[0; 17]].concat()),
        ),
        ("subnet with a scope", subnet(b"\0\x01\x08\x08\x0a")),
        ("subnet with too few octets", subnet(b"\0\x01\x18\0\x0a\0")),
        ("subnet with too many octets", subnet(b"\0\x01\x08\0\x0a\0")),
        (
            "subnet with bits beyond its prefix",
            subnet(b"\0\x01\x0c\0\x0a\x1f"),
        ),
        ("subnet without a family", subnet(b"\0")),
    ];
    for length in [0, 7, 9, 15, 41] {
        table.push(("cookie", cookie(length)));
    }
    let world = World::saying(address()).await;
    for (what, packet) in table {
        for how in TRANSPORTS {
            let reply = world.ask(how, &packet).await;
            assert_eq!(flags(&reply), REPLY | 1, "{what}");
            assert_eq!(opts(&reply), 1, "{what}");
        }
    }
    assert_eq!(world.asked(), [""; 0]);
}

/// E8, E9
#[tokio::test]
async fn well_formed_subnets_and_cookies_are_accepted() {
    let mut options = vec![
        option(8, b"\0\0\0\0"),
        option(8, b"\0\x01\0\0"),
        option(8, b"\0\x01\x18\0\x0a\0\x01"),
        option(8, b"\0\x01\x0c\0\x0a\x10"),
        option(8, b"\0\x02\x38\0\x20\x01\x0d\xb8\0\0\0"),
    ];
    options.extend([8, 16, 24, 40].map(|length| option(10, &vec![7; length])));
    for options in options {
        let packet = with_opt(&web(), 1232, 0, &options);
        everywhere(
            || World::saying(address()),
            &packet,
            |what, _, reply| {
                assert_echoes(what, &packet, reply, REPLY);
                assert!(reply.ends_with(OUR_OPT), "{what}");
            },
        )
        .await;
    }
}

/// E5
#[tokio::test]
async fn the_askers_size_counts_from_512_to_1232_octets() {
    for (size, limit) in [
        (0, 512),
        (100, 512),
        (512, 512),
        (800, 800),
        (1232, 1232),
        (4096, 1232),
        (65_535, 1232),
    ] {
        let packet = with_opt(&web(), size, 0, b"");
        let reply = World::saying(hundred()).await.udp(&packet).await;
        assert_echoes("too large", &packet, &reply, REPLY | TC);
        assert!(reply.len() <= limit, "{size}: {}", reply.len());
        // 60 addresses of 16 octets, header, question and OPT are 1,004 octets.
        let sixty = (0..60).map(|last| Record::address(WEB, [192, 0, 2, last]));
        let world = World::saying(Answer::records(sixty.collect::<Vec<_>>())).await;
        let reply = world.udp(&packet).await;
        let fits = limit >= 1004;
        assert_eq!(
            flags(&reply),
            if fits { REPLY } else { REPLY | TC },
            "{size}"
        );
        assert_eq!(
            parsed(&reply).answers.len(),
            if fits { 60 } else { 0 },
            "{size}"
        );
    }
}

/// Every option a client could send: NSID, subnet, expire, cookie, keepalive, padding, chain, key tag, EDE, and one of nobody's.
fn all_options() -> Vec<u8> {
    let values: [(u16, &[u8]); 10] = [
        (3, b""),
        (8, b"\0\x01\x18\0\x0a\0\x01"),
        (9, b""),
        (10, b"12345678"),
        (11, b""),
        (12, &[0; 20]),
        (13, b"\0"),
        (14, b"\x4f\x66"),
        (15, b"\0\x16"),
        (65_001, b"private"),
    ];
    values
        .iter()
        .flat_map(|(code, value)| option(*code, value))
        .collect()
}

/// E6, E7, E10
#[tokio::test]
async fn options_are_neither_echoed_nor_passed_on_in_either_direction() {
    let theirs = with_opt(&web(), 4096, DO | 0x1234, &all_options());
    let start = || async {
        let server = LoopbackServer::start(|received| {
            let mut answer = address().without_edns().reply_to(&received.message);
            answer = with_opt(&answer, 8192, 0x7fff, &all_options());
            vec![kubebridge_dns::test_util::Action::Send(answer)]
        });
        Plan::of(vec![server.await]).start().await
    };
    let flagged = with_flags(&theirs, RD | AD | CD | Z);
    everywhere(start, &flagged, |what, world, reply| {
        assert_echoes(what, &flagged, reply, REPLY | CD);
        assert!(reply.ends_with(OUR_OPT_DO), "{what}: {reply:?}");
        assert_eq!(reply[11], 1, "{what}");
        assert_eq!(world.received().len(), 1, "{what}");
        let sent = &world.received()[0].message;
        // Our own option alone, which is for other parts of ours.
        let begin = [
            &header(id(sent), RD | AD | CD, [1, 0, 0, 1])[..],
            &question(WEB, 1, 1),
            &OUR_OPT_DO[..9],
            b"\0\x12\xff\x21\0\x0ekb\0\x01\0\x01",
        ];
        let begin = begin.concat();
        assert!(
            sent[..begin.len()].eq_ignore_ascii_case(&begin),
            "{what}: {sent:?}"
        );
        assert_eq!(sent.len(), begin.len() + 8, "{what}: {sent:?}");
    })
    .await;
}

/// E11
#[tokio::test]
async fn a_server_that_rejects_edns_is_asked_again_without_it_and_so_for_five_minutes() {
    for code in [ResponseCode::FORMERR, ResponseCode::NOTIMP] {
        let server = LoopbackServer::start(move |received| {
            let answer = if received.message[11] > 0 {
                Answer::code(code).without_edns()
            } else {
                address()
            };
            answer.actions(received)
        });
        let world = Plan::of(vec![server.await]).start().await;
        let with_edns = |world: &World| -> Vec<bool> {
            world
                .received()
                .iter()
                .map(|received| received.message[11] > 0)
                .collect()
        };
        for how in TRANSPORTS {
            let packet = with_opt(&web(), 1232, 0, b"");
            let reply = world.ask(how, &packet).await;
            assert_echoes("retried", &packet, &reply, REPLY);
            assert_eq!(parsed(&reply).answers.len(), 1);
        }
        assert_eq!(with_edns(&world), [true, false]);
        pass_seconds(290).await;
        world.udp(&web()).await;
        assert_eq!(with_edns(&world), [true, false, false]);
        pass_seconds(31).await;
        world.udp(&web()).await;
        assert_eq!(with_edns(&world), [true, false, false, true, false]);
    }
}

/// E12: why nobody could be reached. The codes for stale and not ready answers come with those.
#[tokio::test]
async fn a_failure_says_that_no_upstream_could_be_reached() {
    let closed = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let unreachable = || async {
        let world = World::silent().await;
        let upstream = Do53::new(closed, PortPolicy::FreshPort);
        world.resolver.set_upstreams(vec![Arc::new(upstream)]);
        world
    };
    let says = |what: &str, packet: &[u8], reply: &[u8], info: &[u8]| {
        assert_echoes(what, packet, reply, REPLY | 2);
        let expected = if packet[11] == 0 {
            vec![]
        } else {
            opt(1232, 0, info)
        };
        let end = 12 + question_of(reply).len();
        assert_eq!(reply[end..], expected, "{what}");
    };
    for packet in [web(), with_opt(&web(), 1232, 0, b"")] {
        everywhere(World::silent, &packet, |what, _, reply| {
            says(what, &packet, reply, b"\0\x0f\0\x02\0\x16");
        })
        .await;
        everywhere(unreachable, &packet, |what, _, reply| {
            says(what, &packet, reply, b"\0\x0f\0\x02\0\x17");
        })
        .await;
        let servfail = || World::saying(Answer::code(ResponseCode::SERVFAIL));
        everywhere(servfail, &packet, |what, _, reply| {
            says(what, &packet, reply, b"");
        })
        .await;
    }
}

/// E11
#[tokio::test]
async fn a_server_that_rejects_the_question_either_way_is_a_failure() {
    let reject = Answer::code(ResponseCode::FORMERR).without_edns();
    let packet = with_opt(&web(), 1232, 0, b"");
    everywhere(
        || World::saying(reject.clone()),
        &packet,
        |what, world, reply| {
            assert_echoes(what, &packet, reply, REPLY | 2);
            assert_eq!(world.received().len(), 2, "{what}");
        },
    )
    .await;
}
