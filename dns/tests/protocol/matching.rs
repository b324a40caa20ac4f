//! S and Q: which reply belongs to which question, on both sides; and the case of names.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::join_all;
use kubebridge_dns::name::RecordType;
use kubebridge_dns::server::Transport;
use kubebridge_dns::test_util::{Action, Answer, LoopbackServer, Received, Record};
use kubebridge_dns::upstream::PortPolicy;
use tokio::time::Instant;

use crate::packet::*;
use crate::world::*;

const WEB: &str = "www.example.org";
const POLICIES: [PortPolicy; 2] = [PortPolicy::Pooled, PortPolicy::FreshPort];

fn web() -> Vec<u8> {
    query(WEB, RecordType::A)
}

fn truth(received: &Received) -> Vec<u8> {
    Answer::address(&asked_name(received), [192, 0, 2, 1]).reply_to(&received.message)
}

fn lie(received: &Received) -> Vec<u8> {
    Answer::address(&asked_name(received), [6, 6, 6, 6]).reply_to(&received.message)
}

async fn world_with(server: LoopbackServer, ports: PortPolicy) -> World {
    let mut plan = Plan::of(vec![server]);
    plan.ports = ports;
    plan.start().await
}

/// How unevenly numbers are spread over sixteen buckets.
fn chi_square(numbers: impl Iterator<Item = u16>) -> f64 {
    let mut buckets = [0_u32; 16];
    numbers.for_each(|number| buckets[usize::from(number)] += 1);
    let expected = f64::from(buckets.iter().sum::<u32>()) / 16.0;
    let deviation = |seen: &u32| (f64::from(*seen) - expected).powi(2) / expected;
    buckets.iter().map(deviation).sum()
}

/// S1. The hundred thousand draws are tested beside the code (`upstream/ids`).
#[tokio::test]
async fn upstream_ids_are_random_whatever_the_clients_and_ports_follow_their_policy() {
    const QUERIES: u16 = 3000;
    for ports in POLICIES {
        let server = LoopbackServer::start(|received| vec![Action::Send(truth(received))]);
        let world = world_with(server.await, ports).await;
        let socket = world.client(POD).await;
        let begun = Instant::now();
        for number in 0..QUERIES {
            let packet = query(&format!("n{number}.example.org"), RecordType::A);
            socket.send(&packet).await.unwrap();
            assert_eq!(id(&receive(&socket).await), ID);
        }
        let received = world.received();
        let ids: Vec<u16> = received.iter().map(|r| id(&r.message)).collect();
        // 15 degrees of freedom: a fair source exceeds 60 once in some 10^6 runs.
        assert!(chi_square(ids.iter().map(|id| id >> 12)) < 60.0);
        assert!(chi_square(ids.iter().map(|id| id & 15)) < 60.0);
        assert!(ids.iter().filter(|id| **id == ID).count() < 5);
        let used: BTreeSet<u16> = received.iter().map(|r| r.peer.port()).collect();
        match ports {
            PortPolicy::Pooled => {
                // Four sockets for 1,000 queries or ten seconds each.
                let most = 4 * (2 + begun.elapsed().as_secs() / 10);
                assert!(
                    used.len() >= 4 && used.len() as u64 <= most,
                    "{}",
                    used.len()
                );
            }
            PortPolicy::FreshPort => assert!(used.len() > 2500, "{}", used.len()),
        }
    }
}

/// S2
#[tokio::test]
async fn only_a_reply_to_the_very_question_from_the_very_server_is_accepted() {
    type Forge = fn(&Received) -> Action;
    let table: [(&str, Forge); 10] = [
        ("another port", |r| Action::SendFromElsewhere(lie(r))),
        ("a query", |r| Action::Send(with_flags(&lie(r), 0x0100))),
        ("another opcode", |r| {
            Action::Send(with_flags(&lie(r), 0xa180))
        }),
        ("no question", |r| Action::Send(with_count(&lie(r), 0, 0))),
        ("two questions", |r| Action::Send(with_count(&lie(r), 0, 2))),
        ("another type", |r| Action::Send(changed(lie(r), 30, 28))),
        ("another class", |r| Action::Send(changed(lie(r), 32, 3))),
        ("another name", |r| Action::Send(changed(lie(r), 13, b'x'))),
        ("another label boundary", |r| {
            Action::Send(changed(lie(r), 12, 4))
        }),
        ("a cut header", |r| Action::Send(lie(r)[..11].to_vec())),
    ];
    for (what, forge) in table {
        for ports in POLICIES {
            let server = LoopbackServer::start(move |received| {
                vec![
                    forge(received),
                    forge(received),
                    Action::Send(truth(received)),
                ]
            });
            let world = world_with(server.await, ports).await;
            for how in TRANSPORTS {
                let reply = world.ask(how, &web()).await;
                assert_echoes(what, &web(), &reply, REPLY);
                assert_eq!(shown(&reply), [format!("{WEB} 30 A 192.0.2.1")], "{what}");
            }
            assert_eq!(world.received().len(), 1, "{what}: no other query, no TCP");
        }
    }
}

fn changed(mut message: Vec<u8>, at: usize, octet: u8) -> Vec<u8> {
    message[at] = octet;
    message
}

/// Sends this many lies under wrong ids before the truth.
async fn guessing(lies: u16) -> LoopbackServer {
    LoopbackServer::start(move |received| {
        let mut actions = Vec::new();
        if received.transport == Transport::Udp {
            let wrong = |n| with_id(&lie(received), id(&received.message).wrapping_add(1 + n));
            actions.extend((0..lies).map(|n| Action::Send(wrong(n))));
        }
        actions.push(Action::Send(truth(received)));
        actions
    })
    .await
}

/// S2
#[tokio::test]
async fn guessed_ids_turn_the_question_to_tcp() {
    let table = [
        (PortPolicy::FreshPort, 7, vec![Transport::Udp]),
        (
            PortPolicy::FreshPort,
            8,
            vec![Transport::Udp, Transport::Tcp],
        ),
        (PortPolicy::Pooled, 1, vec![Transport::Udp, Transport::Tcp]),
    ];
    for (ports, lies, ways) in table {
        for how in TRANSPORTS {
            let world = world_with(guessing(lies).await, ports).await;
            let reply = world.ask(how, &web()).await;
            assert_eq!(shown(&reply), [format!("{WEB} 30 A 192.0.2.1")]);
            let used: Vec<Transport> = world.received().iter().map(|r| r.transport).collect();
            assert_eq!(used, ways, "{ports:?}, {lies}");
        }
    }
}

/// S3, D22
#[tokio::test]
async fn one_question_is_never_outstanding_twice_at_an_upstream() {
    let service = "authors.default.svc.cluster.local";
    let late = Answer::address(service, [10, 96, 0, 1]).after(Duration::from_millis(100));
    let world = World::scripted(vec![(service, RecordType::A, late)]).await;
    let mut asking = Vec::new();
    for (from, text) in [
        (POD, "authors"),
        (POD, "Authors.default"),
        (POD, service),
        (LAPTOP, "authors"),
        (LAPTOP, "AUTHORS.default.svc"),
        (SHOP_LAPTOP, "authors.default"),
    ] {
        for how in TRANSPORTS {
            let packet = query(text, RecordType::A);
            let world = &world;
            asking.push(async move { world.ask_from(from, how, &packet).await });
        }
    }
    // The shop's laptop may not see `default`; everyone else gets the address.
    let replies = join_all(asking).await;
    let answered = replies
        .iter()
        .filter(|reply| parsed(reply).answers.len() == 1)
        .count();
    assert_eq!(answered, 10);
    let asked = world.asked();
    assert_eq!(
        asked.iter().filter(|name| *name == service).count(),
        1,
        "{asked:?}"
    );
    for (flags, ttl) in [(RD, DO), (RD | CD, 0)] {
        let packet = with_opt(
            &with_flags(&query(service, RecordType::A), flags),
            1232,
            ttl,
            b"",
        );
        world.udp(&packet).await;
    }
    let asked = world.asked();
    assert_eq!(asked.iter().filter(|name| *name == service).count(), 3);
}

/// S4, D26
#[tokio::test]
async fn records_off_the_chain_answer_no_other_name() {
    let other = "other.example.org";
    let poisoned = Answer::records([
        Record::cname(WEB, "cdn.example.net"),
        Record::address(other, [6, 6, 6, 6]),
        Record::address("cdn.example.net", [192, 0, 2, 1]),
    ])
    .authority([Record::new("example.org", RecordType::NS, *b"\x02ns\0")])
    .additional([
        Record::address(other, [6, 6, 6, 6]),
        Record::address("ns", [6, 6, 6, 6]),
    ]);
    for how in TRANSPORTS {
        let world = World::scripted(vec![
            (WEB, RecordType::A, poisoned.clone()),
            (other, RecordType::A, Answer::address(other, [192, 0, 2, 9])),
        ])
        .await;
        for _ in ["cold", "from the cache"] {
            let reply = world.ask(how, &web()).await;
            assert_echoes("poisoned", &web(), &reply, REPLY);
            assert_eq!(
                shown(&reply),
                [
                    format!("{WEB} 30 CNAME cdn.example.net"),
                    "cdn.example.net 30 A 192.0.2.1".into()
                ]
            );
            assert_eq!(reply[8..12], [0; 4], "authority and additional are empty");
        }
        let reply = world.ask(how, &query(other, RecordType::A)).await;
        assert_eq!(shown(&reply), [format!("{other} 30 A 192.0.2.9")]);
        assert_eq!(world.asked(), [WEB, other]);
    }
}

/// S5
#[tokio::test]
async fn servers_that_fold_the_case_are_believed_over_tcp_and_asked_in_lower_case_from_then_on() {
    for fold in [<[u8]>::to_ascii_uppercase, <[u8]>::to_ascii_lowercase] {
        for ports in POLICIES {
            let server = LoopbackServer::start(move |received| {
                let mut reply = truth(received);
                let end = 12 + question_of(&reply).len() - 4;
                let folded = fold(&reply[12..end]);
                reply[12..end].copy_from_slice(&folded);
                vec![Action::Send(reply)]
            });
            let world = world_with(server.await, ports).await;
            let packet = query("wWw.ExamplE.org", RecordType::A);
            for how in TRANSPORTS {
                let reply = world.ask(how, &packet).await;
                assert_echoes("folded", &packet, &reply, REPLY);
                assert_eq!(shown(&reply), ["wWw.ExamplE.org 30 A 192.0.2.1"]);
            }
            world
                .udp(&query("another.Example.org", RecordType::A))
                .await;
            let received = world.received();
            let sent: Vec<_> = received.iter().map(|r| (r.transport, spelled(r))).collect();
            let [(_, first), (_, second), (third_way, third)] = &sent[..] else {
                panic!("three queries: {sent:?}");
            };
            let ways = sent.iter().map(|(how, _)| *how);
            assert_eq!(
                ways.collect::<Vec<_>>(),
                [Transport::Udp, Transport::Tcp, Transport::Udp]
            );
            assert_eq!((first, *third_way), (second, Transport::Udp));
            assert_ne!(first, "wWw.ExamplE.org", "the asker's case stays with us");
            assert_eq!(third, "another.example.org");
        }
    }
}

/// S5
#[tokio::test]
async fn a_server_that_folds_the_case_and_has_no_tcp_is_asked_again_in_lower_case() {
    for ports in POLICIES {
        let server = LoopbackServer::start(move |received| {
            if received.transport == Transport::Tcp {
                return vec![Action::Close];
            }
            let mut reply = truth(received);
            let end = 12 + question_of(&reply).len() - 4;
            reply[12..end].make_ascii_lowercase();
            vec![Action::Send(reply)]
        });
        let world = world_with(server.await, ports).await;
        for packet in [web(), query("another.example.org", RecordType::A)] {
            let reply = world.udp(&packet).await;
            assert_echoes("folded", &packet, &reply, REPLY);
            assert_eq!(parsed(&reply).answers.len(), 1);
        }
        let received = world.received();
        let udp = received.iter().filter(|r| r.transport == Transport::Udp);
        let sent: Vec<_> = udp.map(spelled).collect();
        assert_eq!(sent[1..], [WEB, "another.example.org"]);
        assert_ne!(sent[0], WEB);
    }
}

fn spelled(received: &Received) -> String {
    let question = question_of(&received.message);
    let name = kubebridge_dns::name::Name::from_wire(&question[..question.len() - 4]);
    name.unwrap().to_string()
}

/// S2
#[tokio::test]
async fn a_reply_in_another_spelling_is_not_believed_over_udp() {
    for ports in POLICIES {
        let server = LoopbackServer::start(move |received| {
            if received.transport == Transport::Tcp {
                return vec![Action::Send(truth(received))];
            }
            let mut forged = lie(received);
            forged[12..].make_ascii_lowercase();
            vec![Action::Send(forged)]
        });
        let world = world_with(server.await, ports).await;
        let reply = world.udp(&web()).await;
        assert_eq!(shown(&reply), [format!("{WEB} 30 A 192.0.2.1")]);
        let ways: Vec<_> = world.received().iter().map(|r| r.transport).collect();
        assert_eq!(ways, [Transport::Udp, Transport::Tcp]);
    }
}

/// S6
#[tokio::test]
async fn followers_get_the_leaders_result_in_their_own_form() {
    let many: Vec<Record> = (0..60)
        .map(|last| Record::address(WEB, [192, 0, 2, last]))
        .collect();
    let late = Duration::from_millis(100);
    let table = [(Answer::records(many), 0), (Answer::nxdomain("org"), 3)];
    for (answer, code) in table {
        let world = World::saying(answer.after(late)).await;
        let mut asking = Vec::new();
        for number in 0..16_u16 {
            let spelled = if number & 1 == 0 {
                "WWW.example.ORG"
            } else {
                "www.Example.org"
            };
            let mut packet = with_id(&query(spelled, RecordType::A), number);
            if number & 2 == 0 {
                packet = with_opt(&packet, if number & 4 == 0 { 4096 } else { 600 }, 0, b"");
            }
            let how = if number & 8 == 0 {
                Transport::Udp
            } else {
                Transport::Tcp
            };
            let world = &world;
            asking.push(async move { (how, packet.clone(), world.ask(how, &packet).await) });
        }
        for (how, packet, reply) in join_all(asking).await {
            let room = how == Transport::Tcp || packet[11] > 0 && packet[packet.len() - 8] == 0x10;
            let cut = code == 0 && !room;
            assert_echoes(
                "follower",
                &packet,
                &reply,
                REPLY | code | if cut { TC } else { 0 },
            );
            let expected = if code == 0 && room { 60 } else { 0 };
            assert_eq!(parsed(&reply).answers.len(), expected);
        }
        assert_eq!(world.received().len(), 1);
    }
}

/// Q1, D10
#[tokio::test]
async fn the_question_is_echoed_bit_exact_and_answers_are_owned_in_the_askers_case() {
    let world = World::saying(Answer::address(WEB, [192, 0, 2, 1])).await;
    for spelled in [
        "wWw.eXample.oRg",
        "WWW.EXAMPLE.ORG",
        "www.example.org",
        "Www.Example.Org",
    ] {
        for how in TRANSPORTS {
            let packet = query(spelled, RecordType::A);
            let reply = world.ask(how, &packet).await;
            assert_echoes(spelled, &packet, &reply, REPLY);
            assert_eq!(shown(&reply), [format!("{spelled} 30 A 192.0.2.1")]);
        }
    }
    assert_eq!(world.asked(), [WEB]);
}

/// Q1
#[tokio::test]
async fn only_ascii_letters_are_folded() {
    let server = LoopbackServer::start(|received| vec![Action::Send(truth(received))]);
    let world = Plan::of(vec![server.await]).start().await;
    // Pairs that differ in the bit that makes the case of letters, and are no letters.
    for text in [
        r"\195.example.org",
        r"\227.example.org",
        r"\@.example.org",
        r"`.example.org",
    ] {
        let packet = query(text, RecordType::A);
        for how in TRANSPORTS {
            assert_echoes(text, &packet, &world.ask(how, &packet).await, REPLY);
        }
    }
    assert_eq!(world.received().len(), 4);
}
