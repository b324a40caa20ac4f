//! K: what is kept, under which key, and for how long. Time is made to pass by moving the clock.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kubebridge_dns::name::{RecordType, ResponseCode};
use kubebridge_dns::server::Transport;
use kubebridge_dns::test_util::{Action, Answer, LoopbackServer, Record, name};
use kubebridge_dns::upstream::{Do53, PortPolicy};

use crate::packet::*;
use crate::world::*;

const WEB: &str = "www.example.org";
const CDN: &str = "cdn.example.net";
const SERVICE: &str = "authors.default.svc.cluster.local";

fn web() -> Vec<u8> {
    query(WEB, RecordType::A)
}

fn address() -> Answer {
    Answer::address(WEB, [192, 0, 2, 1])
}

fn with_ttl(ttl: u32) -> Answer {
    Answer::records([Record::address(WEB, [192, 0, 2, 1]).ttl(ttl)])
}

/// Tells, second by second as given, whether the question is answered without asking the upstream.
async fn kept(world: &World, packet: &[u8], ages: &[u64]) -> Vec<bool> {
    let mut seen = Vec::new();
    let mut age = 0;
    for at in ages {
        pass_seconds(at - age).await;
        age = *at;
        let before = world.received().len();
        world.udp(packet).await;
        seen.push(world.received().len() == before);
    }
    seen
}

/// K1
#[tokio::test]
async fn answers_are_kept_by_name_type_do_cd_and_view_and_by_nothing_else() {
    let world = World::scripted(vec![
        (WEB, RecordType::A, address()),
        (
            SERVICE,
            RecordType::A,
            Answer::address(SERVICE, [10, 96, 0, 1]),
        ),
    ])
    .await;
    let edns = |packet: &[u8], ttl| with_opt(packet, 1232, ttl, b"");
    let authors = query("authors", RecordType::A);
    let table = [
        ("first", POD, web(), 1),
        ("case", POD, query("WWW.Example.ORG", RecordType::A), 0),
        ("an OPT", POD, edns(&web(), 0), 0),
        ("AD", POD, with_flags(&web(), RD | AD), 0),
        (
            "options",
            POD,
            with_opt(&web(), 900, 0, &option(10, b"12345678")),
            0,
        ),
        ("another view", LAPTOP, web(), 0),
        ("DO", POD, edns(&web(), DO), 1),
        ("CD", POD, with_flags(&web(), RD | CD), 1),
        ("DO and CD", POD, edns(&with_flags(&web(), RD | CD), DO), 1),
        ("type", POD, query(WEB, RecordType::AAAA), 1),
        // Three candidates at once, as nobody knows yet which of them exist.
        ("short name", POD, authors.clone(), 3),
        // The namespace `authors` is not granted to this session, so `authors.svc.cluster.local` is left out.
        ("short name in another view", LAPTOP, authors.clone(), 2),
        ("short name again", LAPTOP, authors, 0),
    ];
    for (what, from, packet, queries) in table {
        let before = world.received().len();
        for how in TRANSPORTS {
            let reply = world.ask_from(from, how, &packet).await;
            assert_eq!(id(&reply), ID, "{what}");
        }
        assert_eq!(world.received().len() - before, queries, "{what}");
    }
}

/// K2
#[tokio::test]
async fn ttls_fall_and_never_rise_and_zero_is_a_miss() {
    let world = World::saying(with_ttl(30)).await;
    let mut ttls = Vec::new();
    for _ in 0..31 {
        let how = TRANSPORTS[ttls.len() % 2];
        ttls.push(parsed(&world.ask(how, &web()).await).answers[0].ttl);
        pass_seconds(1).await;
    }
    let expected: Vec<u32> = (1..=30).rev().chain([30]).collect();
    assert_eq!(ttls, expected);
    assert_eq!(world.received().len(), 2);
}

/// K3
#[tokio::test]
async fn data_is_kept_for_its_shortest_ttl_and_half_an_hour_at_most() {
    let chain = Answer::records([
        Record::cname(WEB, CDN).ttl(20),
        Record::address(CDN, [192, 0, 2, 1]).ttl(60),
    ]);
    let world = World::saying(chain).await;
    assert_eq!(
        kept(&world, &web(), &[0, 19, 20]).await,
        [false, true, false]
    );
    let world = World::saying(with_ttl(86_400)).await;
    for how in TRANSPORTS {
        assert_eq!(
            shown(&world.ask(how, &web()).await),
            [format!("{WEB} 1800 A 192.0.2.1")]
        );
    }
    assert_eq!(kept(&world, &web(), &[1799, 1800]).await, [true, false]);
}

/// K3, D19
#[tokio::test]
async fn ttl_zero_is_for_those_who_wait_and_the_top_bit_means_zero() {
    for ttl in [0, 0x8000_0000, 0xffff_ffff] {
        let world = World::saying(with_ttl(ttl).after(Duration::from_millis(50))).await;
        let packet = web();
        let replies = join_all((0..10).map(|n| world.ask(TRANSPORTS[n % 2], &packet))).await;
        for reply in replies {
            assert_eq!(shown(&reply), [format!("{WEB} 0 A 192.0.2.1")]);
        }
        assert_eq!(world.received().len(), 1);
        world.tcp(&web()).await;
        assert_eq!(world.received().len(), 2);
    }
}

/// K3
#[tokio::test]
async fn a_later_ranked_winner_lives_no_longer_than_the_better_ranks_negatives() {
    let negative =
        Answer::code(ResponseCode::NXDOMAIN).authority([Record::soa("cluster.local", 7, 30)]);
    let later = "authors.svc.cluster.local";
    let record = Record::address(later, [10, 96, 0, 1]).ttl(30);
    let world = World::scripted(vec![
        (SERVICE, RecordType::A, negative),
        (later, RecordType::A, Answer::records([record])),
    ])
    .await;
    let packet = query("authors", RecordType::A);
    for how in TRANSPORTS {
        assert_eq!(
            shown(&world.ask(how, &packet).await),
            ["authors 7 A 10.96.0.1"]
        );
    }
    assert_eq!(kept(&world, &packet, &[6, 7]).await, [true, false]);
}

/// K4, D11
#[tokio::test]
async fn negatives_live_for_the_smaller_of_soa_ttl_and_minimum_and_thirty_seconds_at_most() {
    for (ttl, minimum, expected) in [
        (10, 20, 10),
        (20, 10, 10),
        (900, 900, 30),
        (0, 30, 0),
        (30, 0, 0),
    ] {
        for (code, answer) in [
            (3, Answer::code(ResponseCode::NXDOMAIN)),
            (0, Answer::records([])),
        ] {
            let answer = answer.authority([Record::soa("example.org", ttl, minimum)]);
            let world = World::saying(answer).await;
            let packet = with_opt(&web(), 1232, 0, b"");
            for how in TRANSPORTS {
                let reply = world.ask(how, &packet).await;
                assert_echoes("negative", &packet, &reply, REPLY | code);
                let parsed = parsed(&reply);
                assert_eq!(parsed.answers, []);
                let soa = &parsed.authority[0];
                assert_eq!(
                    (soa.owner.to_string().as_str(), soa.ttl),
                    ("example.org", expected)
                );
            }
            if expected == 0 {
                assert_eq!(world.received().len(), 2, "{ttl} {minimum}");
                continue;
            }
            pass_seconds(3).await;
            let aged = world.udp(&packet).await;
            assert_eq!(parsed_soa_ttl(&aged), expected - 3);
            let last = u64::from(expected) - 3;
            assert_eq!(
                kept(&world, &packet, &[last - 1, last]).await,
                [true, false]
            );
        }
    }
}

fn parsed_soa_ttl(reply: &[u8]) -> u32 {
    parsed(reply).authority[0].ttl
}

/// K4
#[tokio::test]
async fn negatives_without_an_soa_are_not_kept() {
    for (code, answer) in [
        (3, Answer::code(ResponseCode::NXDOMAIN)),
        (0, Answer::records([])),
    ] {
        let world = World::saying(answer).await;
        for how in TRANSPORTS {
            let reply = world.ask(how, &web()).await;
            assert_echoes("no SOA", &web(), &reply, REPLY | code);
            assert_eq!(parsed(&reply).authority, []);
        }
        assert_eq!(world.received().len(), 2);
    }
}

/// K4, D11
#[tokio::test]
async fn when_no_candidate_exists_the_shortest_of_the_ranks_counts() {
    let soa = |ttl| {
        Answer::code(ResponseCode::NXDOMAIN).authority([Record::soa("cluster.local", ttl, 30)])
    };
    let world = World::scripted(vec![
        (SERVICE, RecordType::A, soa(25)),
        ("authors.svc.cluster.local", RecordType::A, soa(9)),
        ("authors.cluster.local", RecordType::A, soa(20)),
    ])
    .await;
    let packet = query("authors", RecordType::A);
    for how in TRANSPORTS {
        let reply = world.ask(how, &packet).await;
        assert_echoes("all negative", &packet, &reply, REPLY | 3);
        let soa = &parsed(&reply).authority[0];
        assert_eq!((soa.owner.to_string().as_str(), soa.ttl), ("authors", 9));
    }
    assert_eq!(kept(&world, &packet, &[8, 9]).await, [true, false]);
}

/// K5
#[tokio::test]
async fn a_negative_behind_an_alias_keeps_the_alias_and_has_the_code_of_the_last_name() {
    for code in [0, 3] {
        let start = || async {
            let server = LoopbackServer::start(move |received| {
                let mut reply = Answer::records([Record::cname(WEB, CDN)])
                    .authority([Record::soa("example.net", 20, 20)])
                    .reply_to(&received.message);
                reply[3] |= code;
                vec![Action::Send(reply)]
            });
            Plan::of(vec![server.await]).start().await
        };
        everywhere(start, &web(), |what, world, reply| {
            assert_echoes(what, &web(), reply, REPLY | u16::from(code));
            let parsed = parsed(reply);
            assert_eq!(parsed.answers.len(), 1, "{what}");
            assert_eq!(parsed.answers[0].data.to_string(), CDN, "{what}");
            assert_eq!(parsed.authority[0].owner, name("example.net"), "{what}");
            assert_eq!(world.received().len(), 1, "{what}");
        })
        .await;
    }
}

/// K6, D4
#[tokio::test]
async fn failures_are_never_kept_as_answers_and_remembered_for_a_second() {
    let failures = [
        ("SERVFAIL", Answer::code(ResponseCode::SERVFAIL), 1),
        ("REFUSED", Answer::code(ResponseCode::REFUSED), 1),
        ("FORMERR", Answer::code(ResponseCode::FORMERR), 1),
        ("NOTIMP", Answer::code(ResponseCode::NOTIMP), 1),
        ("another code", Answer::code(ResponseCode(9)), 1),
        ("timeout", Answer::silence(), 0),
    ];
    for (what, failure, queries) in failures {
        let world = World::saying(failure).await;
        for how in [Transport::Udp, Transport::Tcp, Transport::Udp] {
            let reply = world.ask(how, &web()).await;
            assert_echoes(what, &web(), &reply, REPLY | 2);
        }
        let asked = world.received().len();
        assert!(asked == queries || queries == 0, "{what}: {asked}");
        pass(Duration::from_millis(900)).await;
        world.udp(&web()).await;
        assert_eq!(world.received().len(), asked, "{what}");
        pass(Duration::from_millis(200)).await;
        world.udp(&web()).await;
        assert!(world.received().len() > asked, "{what}");
    }
}

/// K6, K12
#[tokio::test]
async fn a_change_clears_a_remembered_failure() {
    let world = World::saying(Answer::code(ResponseCode::SERVFAIL)).await;
    for change in ["purge", "flush", "upstreams"] {
        assert_echoes(change, &web(), &world.udp(&web()).await, REPLY | 2);
        let asked = world.received().len();
        match change {
            "purge" => world.resolver.purge(&name(WEB)),
            "flush" => world.resolver.flush(),
            _ => world.resolver.set_upstreams(vec![Arc::new(Do53::new(
                world.upstreams[0].address(),
                PortPolicy::Pooled,
            ))]),
        }
        world.udp(&web()).await;
        assert_eq!(world.received().len(), asked + 1, "{change}");
        pass_seconds(2).await;
    }
}

/// K7
#[tokio::test]
async fn a_kept_nxdomain_says_nothing_about_the_names_below() {
    for how in TRANSPORTS {
        let world = World::scripted(vec![(WEB, RecordType::A, address())]).await;
        let parent = query("example.org", RecordType::A);
        assert_echoes("parent", &parent, &world.ask(how, &parent).await, REPLY | 3);
        let reply = world.ask(how, &web()).await;
        assert_echoes("child", &web(), &reply, REPLY);
        assert_eq!(parsed(&reply).answers.len(), 1);
    }
}

/// K8: off by default.
#[tokio::test]
async fn nothing_stale_is_served() {
    for how in TRANSPORTS {
        let server = LoopbackServer::start(|received| {
            let answer = if received.number == 0 {
                address()
            } else {
                Answer::code(ResponseCode::SERVFAIL)
            };
            answer.actions(received)
        });
        let world = Plan::of(vec![server.await]).start().await;
        assert_echoes("fresh", &web(), &world.ask(how, &web()).await, REPLY);
        pass_seconds(30).await;
        assert_echoes("stale", &web(), &world.ask(how, &web()).await, REPLY | 2);
    }
}

fn signature(owner: &str, covered: RecordType) -> Record {
    let data = [
        &covered.0.to_be_bytes()[..],
        &[8, 3],
        &[0; 14],
        b"\x03org\0sig",
    ]
    .concat();
    Record::new(owner, RecordType::RRSIG, data)
}

/// K9
#[tokio::test]
async fn signatures_and_proofs_are_for_those_who_want_them() {
    let nsec = || Record::new("a.example.org", RecordType::NSEC, *b"\x01b\0\0\x01\x40");
    let signed = Answer::records([
        Record::address(WEB, [192, 0, 2, 1]),
        signature(WEB, RecordType::A),
    ]);
    let proven = Answer::nodata("example.org").authority([
        Record::soa("example.org", 30, 30),
        signature("example.org", RecordType::SOA),
        nsec(),
        Record::new("hash.example.org", RecordType::NSEC3, *b"\x01\0\0\0\0\x01x"),
        signature("a.example.org", RecordType::NSEC),
    ]);
    for first in [0, DO] {
        for how in TRANSPORTS {
            let world = World::scripted(vec![
                (WEB, RecordType::A, signed.clone()),
                (WEB, RecordType::AAAA, proven.clone()),
                (
                    WEB,
                    RecordType::RRSIG,
                    Answer::records([signature(WEB, RecordType::A)]),
                ),
            ])
            .await;
            for ttl in [first, DO - first, first] {
                let ask = |rtype| with_opt(&query(WEB, rtype), 1232, ttl, b"");
                let data = parsed(&world.ask(how, &ask(RecordType::A)).await);
                assert_eq!(data.answers.len(), if ttl == DO { 2 } else { 1 });
                let negative = parsed(&world.ask(how, &ask(RecordType::AAAA)).await);
                assert_eq!(negative.authority.len(), if ttl == DO { 5 } else { 1 });
                let asked_for = parsed(&world.ask(how, &ask(RecordType::RRSIG)).await);
                assert_eq!(asked_for.answers.len(), 1);
            }
            assert_eq!(world.received().len(), 6);
        }
    }
}

/// K9
#[tokio::test]
async fn checking_disabled_goes_upstream_with_our_ad() {
    for (asked, sent) in [(RD, RD | AD), (RD | CD, RD | AD | CD), (RD | AD, RD | AD)] {
        let packet = with_flags(&web(), asked);
        everywhere(
            || World::saying(address()),
            &packet,
            |what, world, reply| {
                assert_echoes(what, &packet, reply, REPLY | asked & CD);
                assert_eq!(flags(&world.received()[0].message), sent, "{what}");
            },
        )
        .await;
    }
}

/// K10: the path of plain DNS is not trusted. The trusted one comes with the encrypted upstreams.
#[tokio::test]
async fn ad_is_never_passed_on_from_plain_dns() {
    for (asked, ttl) in [(RD, 0), (RD | AD, 0), (RD | AD, DO), (RD | AD | CD, DO)] {
        let packet = with_opt(&with_flags(&web(), asked), 1232, ttl, b"");
        let start = || async {
            let server = LoopbackServer::start(|received| {
                let mut reply = address().reply_to(&received.message);
                reply[3] |= 0x20;
                vec![Action::Send(reply)]
            });
            Plan::of(vec![server.await]).start().await
        };
        everywhere(start, &packet, |what, _, reply| {
            assert_echoes(what, &packet, reply, REPLY | asked & CD);
        })
        .await;
    }
}

/// K11. The full flood is tested beside the cache (`KUBEBRIDGE_FUZZ_CASES`).
#[tokio::test]
async fn a_flood_of_names_leaves_the_hot_ones() {
    let server = LoopbackServer::start(|received| {
        let answer = Answer::address(&asked_name(received), [192, 0, 2, 1]);
        answer.actions(received)
    });
    let mut plan = Plan::of(vec![server.await]);
    plan.cache_entries = 500;
    let world = plan.start().await;
    let socket = world.client(POD).await;
    let ask = async |text: String| {
        socket.send(&query(&text, RecordType::A)).await.unwrap();
        receive(&socket).await;
    };
    let hot = |n: usize| format!("hot{}.example.org", n % 100);
    for n in 0..300 {
        ask(hot(n)).await;
    }
    for n in 0..4000 {
        ask(format!("random{n}.example.org")).await;
        ask(hot(n)).await;
    }
    let before = world.received().len();
    for n in 0..100 {
        ask(hot(n)).await;
    }
    let lost = world.received().len() - before;
    assert!(lost <= 10, "{lost} of 100 hot names were lost");
}

/// K12, D23
#[tokio::test]
async fn a_changed_upstream_set_forgets_everything_and_a_route_event_what_depends_on_it() {
    let below = "web-0.authors.default.svc.cluster.local";
    let entries = [
        (
            SERVICE,
            RecordType::A,
            Answer::address(SERVICE, [10, 96, 0, 1]),
        ),
        (SERVICE, RecordType::AAAA, Answer::nodata("cluster.local")),
        (
            below,
            RecordType::A,
            Answer::address(below, [10, 244, 0, 1]),
        ),
        (WEB, RecordType::A, address()),
    ];
    let world = World::scripted(entries.to_vec()).await;
    let questions = [
        ("authors", RecordType::A, true),
        ("Authors.Default", RecordType::A, true),
        (SERVICE, RecordType::A, true),
        (SERVICE, RecordType::AAAA, true),
        (below, RecordType::A, true),
        ("other.default.svc.cluster.local", RecordType::A, false),
        (WEB, RecordType::A, false),
    ];
    let asked_again = async || {
        let mut again = Vec::new();
        for (text, rtype, _) in questions {
            let before = world.received().len();
            for how in TRANSPORTS {
                world.ask(how, &query(text, rtype)).await;
            }
            again.push(world.received().len() > before);
        }
        again
    };
    assert_eq!(asked_again().await, [true; 7]);
    assert_eq!(asked_again().await, [false; 7]);
    world.resolver.purge(&name(SERVICE));
    assert_eq!(
        asked_again().await,
        questions.map(|(_, _, depends)| depends)
    );
    let same = Do53::new(world.upstreams[0].address(), PortPolicy::Pooled);
    world.resolver.set_upstreams(vec![Arc::new(same)]);
    assert_eq!(asked_again().await, [true; 7]);
}

/// K13
#[tokio::test]
async fn aliases_come_first_and_sets_keep_their_order() {
    let unordered = Answer::records([
        Record::address(CDN, [192, 0, 2, 9]),
        Record::cname("mid.example.org", CDN),
        Record::address(CDN, [192, 0, 2, 1]),
        Record::cname(WEB, "mid.example.org"),
        Record::address(CDN, [192, 0, 2, 5]),
    ]);
    everywhere(
        || World::saying(unordered.clone()),
        &web(),
        |what, _, reply| {
            assert_echoes(what, &web(), reply, REPLY);
            let data: Vec<String> = parsed(reply)
                .answers
                .iter()
                .map(|a| a.data.to_string())
                .collect();
            assert_eq!(
                data,
                [
                    "mid.example.org",
                    CDN,
                    "192.0.2.9",
                    "192.0.2.1",
                    "192.0.2.5"
                ],
                "{what}"
            );
        },
    )
    .await;
}
