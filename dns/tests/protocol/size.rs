//! T: replies too large for their way, and upstreams that cut theirs.

use std::time::Duration;

use kubebridge_dns::name::RecordType;
use kubebridge_dns::server::Transport;
use kubebridge_dns::test_util::{Action, Answer, LoopbackServer, Received, Record};

use crate::packet::*;
use crate::world::*;

const WEB: &str = "www.example.org";
const CDN: &str = "cdn.example.net";

fn addresses(owner: &str, count: u8) -> Vec<Record> {
    (0..count)
        .map(|last| Record::address(owner, [192, 0, 2, last]))
        .collect()
}

fn web() -> Vec<u8> {
    query(WEB, RecordType::A)
}

/// T1
#[tokio::test]
async fn a_datagram_too_small_holds_whole_record_sets_only_and_says_so() {
    let mut records = vec![Record::cname(WEB, CDN)];
    records.extend(addresses(CDN, 100));
    let answer = Answer::records(records);
    for packet in [
        web(),
        with_opt(&web(), 512, 0, b""),
        with_opt(&web(), 1232, DO, b""),
    ] {
        let start = || World::saying(answer.clone());
        everywhere(start, &packet, |what, _, reply| {
            if what.starts_with("over Udp") || what == "cold over Udp" {
                assert_echoes(what, &packet, reply, REPLY | TC);
                assert_eq!(shown(reply), [format!("{WEB} 30 CNAME {CDN}")], "{what}");
                assert!(reply.len() <= 512, "{what}");
            } else {
                assert_echoes(what, &packet, reply, REPLY);
                assert_eq!(shown(reply).len(), 101, "{what}");
            }
        })
        .await;
    }
}

/// T1
#[tokio::test]
async fn a_cut_reply_keeps_its_code() {
    let link = |n: usize| format!("{}.{n}.example.net", "x".repeat(60));
    let mut records = vec![Record::cname(WEB, &link(0))];
    records.extend((0..12).map(|n| Record::cname(&link(n), &link(n + 1))));
    let script = move |received: &Received| {
        let mut reply = Answer::records(records.clone())
            .authority([Record::soa("example.net", 30, 30)])
            .reply_to(&received.message);
        reply[3] |= 3;
        vec![Action::Send(reply)]
    };
    let packet = with_opt(&web(), 512, 0, b"");
    // Our own upstream query allows 1232 octets, which the chain fits into.
    let start = || async {
        Plan::of(vec![LoopbackServer::start(script.clone()).await])
            .start()
            .await
    };
    everywhere(start, &packet, |what, _, reply| {
        let cut = what.starts_with("over Udp") || what == "cold over Udp";
        assert_echoes(what, &packet, reply, REPLY | 3 | if cut { TC } else { 0 });
        let count = parsed(reply).answers.len();
        assert!(
            if cut {
                (1..13).contains(&count)
            } else {
                count == 13
            },
            "{what}: {count}"
        );
    })
    .await;
}

/// Whatever is asked over UDP is cut in this way; over TCP the answer is whole or the connection is closed.
async fn cutting(cut: fn(Vec<u8>) -> Vec<u8>, tcp_works: bool) -> LoopbackServer {
    LoopbackServer::start(move |received| {
        let whole = Answer::records(addresses(WEB, 60)).reply_to(&received.message);
        match received.transport {
            Transport::Udp => vec![Action::Send(cut(whole))],
            Transport::Tcp if tcp_works => vec![Action::Send(whole)],
            Transport::Tcp => vec![Action::Close],
        }
    })
    .await
}

/// TC=1, and nothing or half a record behind the question.
fn emptied(mut reply: Vec<u8>) -> Vec<u8> {
    reply[2] |= 2;
    reply.truncate(33);
    with_count(&with_count(&reply, 1, 0), 3, 0)
}

fn cut_in_a_record(mut reply: Vec<u8>) -> Vec<u8> {
    reply[2] |= 2;
    reply.truncate(60);
    reply
}

fn with_some_records(reply: Vec<u8>) -> Vec<u8> {
    let mut reply = with_count(&with_count(&reply, 1, 4), 3, 0);
    reply[2] |= 2;
    reply.truncate(33 + 4 * 16);
    reply
}

/// More than 512 octets from a server that does not know EDNS, as if truncated.
fn without_opt(reply: Vec<u8>) -> Vec<u8> {
    let length = reply.len() - OUR_OPT.len();
    with_count(&reply[..length], 3, 0)
}

/// T2, T3, T4, D6
#[tokio::test]
async fn what_an_upstream_cuts_over_udp_is_asked_of_it_over_tcp() {
    type Cut = fn(Vec<u8>) -> Vec<u8>;
    let table: [(&str, Cut); 4] = [
        ("empty", emptied),
        ("cut in a record", cut_in_a_record),
        ("some records", with_some_records),
        ("no OPT", without_opt),
    ];
    for (how_cut, cut) in table {
        let packet = web();
        let start = || async { Plan::of(vec![cutting(cut, true).await]).start().await };
        everywhere(start, &packet, |what, world, reply| {
            let what = format!("{how_cut}: {what}");
            if what.contains("over Udp,") || what.ends_with("cold over Udp") {
                assert_echoes(&what, &packet, reply, REPLY | TC);
            } else {
                assert_echoes(&what, &packet, reply, REPLY);
                assert_eq!(parsed(reply).answers.len(), 60, "{what}");
            }
            let ways: Vec<Transport> = world.received().iter().map(|r| r.transport).collect();
            assert_eq!(ways, [Transport::Udp, Transport::Tcp], "{what}");
        })
        .await;
    }
}

/// T2
#[tokio::test]
async fn when_tcp_fails_too_the_other_upstream_answers_else_servfail_that_is_not_kept() {
    for how in TRANSPORTS {
        let good = LoopbackServer::saying(Answer::address(WEB, [192, 0, 2, 1])).await;
        let world = Plan::of(vec![cutting(emptied, false).await, good])
            .start()
            .await;
        let reply = world.ask(how, &web()).await;
        assert_echoes("two upstreams", &web(), &reply, REPLY);
        assert_eq!(parsed(&reply).answers.len(), 1);
    }
    for how in TRANSPORTS {
        let cut_once = LoopbackServer::start(|received| {
            let whole = Answer::address(WEB, [192, 0, 2, 1]).reply_to(&received.message);
            match (received.number, received.transport) {
                (0, _) => vec![Action::Send(emptied(whole))],
                (_, Transport::Tcp) => vec![Action::Close],
                (_, Transport::Udp) => vec![Action::Send(whole)],
            }
        });
        let world = Plan::of(vec![cut_once.await]).start().await;
        let reply = world.ask(how, &web()).await;
        assert_echoes("one upstream", &web(), &reply, REPLY | 2);
        assert_eq!(parsed(&reply).answers, []);
        pass(Duration::from_millis(1001)).await;
        let reply = world.ask(how, &web()).await;
        assert_echoes("asked again", &web(), &reply, REPLY);
    }
}

/// T2
#[tokio::test]
async fn truncated_over_tcp_is_a_failure_and_never_passed_on() {
    let start = || async {
        let server = LoopbackServer::start(|received| {
            let whole = Answer::records(addresses(WEB, 60)).reply_to(&received.message);
            vec![Action::Send(with_some_records(whole))]
        });
        Plan::of(vec![server.await]).start().await
    };
    everywhere(start, &web(), |what, _, reply| {
        assert_echoes(what, &web(), reply, REPLY | 2);
    })
    .await;
}

/// T5
#[tokio::test]
async fn sixty_four_kilobytes_come_whole_over_tcp() {
    let chunk = |n: u8| Record::new(WEB, RecordType::TXT, [&[250][..], &[n; 250]].concat());
    let records: Vec<Record> = (0..247).map(chunk).collect();
    let size: usize = 12 + 21 + 247 * (12 + 251) + 11;
    assert!((64_900..65_536).contains(&size), "{size}");
    let answer = Answer::records(records);
    let start = || async {
        let server = LoopbackServer::start(move |received| match received.transport {
            Transport::Udp => vec![Action::Send(
                Answer::records([]).truncated().reply_to(&received.message),
            )],
            Transport::Tcp => answer.actions(received),
        });
        Plan::of(vec![server.await]).start().await
    };
    let world = start().await;
    let packet = with_opt(&query(WEB, RecordType::TXT), 1232, 0, b"");
    for _ in ["cold", "from the cache"] {
        let reply = world.tcp(&packet).await;
        assert_echoes("64 KiB", &packet, &reply, REPLY);
        assert_eq!(reply.len(), size);
        let mut at = 33;
        for n in 0..247 {
            assert_eq!(reply[at + 12..at + 263], [&[250][..], &[n; 250]].concat());
            at += 263;
        }
    }
    assert_eq!(world.received().len(), 2);
    let cut = world.udp(&packet).await;
    assert_echoes("64 KiB", &packet, &cut, REPLY | TC);
}
