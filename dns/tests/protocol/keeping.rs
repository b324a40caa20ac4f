//! K6 to K13: what is not kept, what is left out, and what makes the cache forget.

use std::sync::Arc;
use std::time::Duration;

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
        pass(Duration::from_millis(400)).await;
        world.udp(&web()).await;
        assert_eq!(world.received().len(), asked, "{what}");
        pass(Duration::from_millis(700)).await;
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
