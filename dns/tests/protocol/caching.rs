//! K1 to K5: what is kept, under which key, and for how long. Time is made to pass by moving the clock.

use std::time::Duration;

use futures::future::join_all;
use kubebridge_dns::name::{RecordType, ResponseCode};
use kubebridge_dns::test_util::{Action, Answer, LoopbackServer, Record, name};

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
    for _ in 0..7 {
        let how = TRANSPORTS[ttls.len() % 2];
        ttls.push(parsed(&world.ask(how, &web()).await).answers[0].ttl);
        pass_seconds(5).await;
    }
    assert_eq!(ttls, [30, 25, 20, 15, 10, 5, 30]);
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
