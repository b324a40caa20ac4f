//! N: types and names that are treated in a way of their own, and what expansion does to names.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::forward::Forwarder;
use kubebridge_dns::message::{Checked, check};
use kubebridge_dns::name::{Name, RecordType};
use kubebridge_dns::records::{Local, NoLocalRecords};
use kubebridge_dns::resolver::{Asker, Resolver, ResolverConfig};
use kubebridge_dns::server::{Handler, Transport};
use kubebridge_dns::split::Split;
use kubebridge_dns::test_util::{Answer, LoopbackServer, Record, name};
use kubebridge_dns::upstream::{Do53, PortPolicy, Upstream};
use kubebridge_dns::upstreams::{Settings, Upstreams};
use kubebridge_dns::view::View;

use crate::packet::*;
use crate::world::*;

const WEB: &str = "www.example.org";
const SERVICE: &str = "authors.default.svc.cluster.local";

/// N1
#[tokio::test]
async fn any_gets_one_hinfo_and_is_not_forwarded() {
    for text in [WEB, "authors", SERVICE, "."] {
        for packet in [
            query(text, RecordType::ANY),
            with_opt(&query(text, RecordType::ANY), 1232, DO, b""),
        ] {
            everywhere(World::silent, &packet, |what, world, reply| {
                assert_echoes(what, &packet, reply, REPLY);
                let answers = parsed(reply).answers;
                assert_eq!(answers.len(), 1, "{what}");
                assert_eq!(
                    (answers[0].rtype, &answers[0].owner),
                    (RecordType::HINFO, &name(text))
                );
                let data = b"\0\x0d\0\x01\0\0\x0e\x10\0\x09\x07RFC8482\0";
                assert!(reply.windows(data.len()).any(|part| part == data), "{what}");
                assert_eq!(world.asked(), [""; 0]);
            })
            .await;
        }
    }
}

/// N2
#[tokio::test]
async fn service_bindings_pass_byte_exact_and_mean_the_same_after_expansion() {
    // Alias mode; service mode of the owner itself with an unknown key and keys out of order; a target.
    let alias = [&b"\0\0"[..], name("svc.example.net").as_wire()].concat();
    let own = b"\0\x01\0\xff\xf0\0\x03odd\0\x01\0\x03\x02h2\0\x04\0\x04\x0a\x60\0\x01";
    let target = [
        &b"\0\x02"[..],
        name("b.example.net").as_wire(),
        b"\0\x03\0\x02\x20\xfb",
    ]
    .concat();
    for rtype in [RecordType::HTTPS, RecordType::SVCB] {
        for (asked, owner) in [("wWw.example.org", WEB), ("Authors", SERVICE)] {
            let records =
                [&alias[..], own, &target].map(|data| Record::new(owner, rtype, data).ttl(9));
            let packet = query(asked, rtype);
            let start = || World::scripted(vec![(owner, rtype, Answer::records(records.clone()))]);
            everywhere(start, &packet, |what, _, reply| {
                assert_echoes(what, &packet, reply, REPLY);
                let mut expected = Vec::new();
                for data in [&alias[..], own, &target] {
                    expected.extend(b"\xc0\x0c");
                    expected.extend(rtype.0.to_be_bytes());
                    expected.extend(b"\0\x01\0\0\0\x09\0");
                    expected.push(u8::try_from(data.len()).unwrap());
                    expected.extend(data);
                }
                assert!(reply.ends_with(&expected), "{what}: {reply:?}");
            })
            .await;
            let world = start().await;
            world.udp(&packet).await;
            let asked = world.received().len();
            pass_seconds(8).await;
            world.udp(&packet).await;
            assert_eq!(world.received().len(), asked);
            pass_seconds(1).await;
            world.udp(&packet).await;
            assert!(world.received().len() > asked);
        }
    }
}

/// N3, N4, N6
#[tokio::test]
async fn special_names_are_answered_here() {
    let table = [
        ("localhost", RecordType::A, 0, Some("127.0.0.1")),
        ("LocalHost", RecordType::AAAA, 0, Some("::1")),
        ("a.b.localhost", RecordType::A, 0, Some("127.0.0.1")),
        ("localhost", RecordType::MX, 0, None),
        ("invalid", RecordType::A, 3, None),
        ("x.Invalid", RecordType::AAAA, 3, None),
        ("onion", RecordType::A, 3, None),
        ("abc.onion", RecordType::HTTPS, 3, None),
        ("resolver.arpa", RecordType::SVCB, 0, None),
        ("_dns.resolver.arpa", RecordType::SVCB, 0, None),
        ("_dns.Resolver.Arpa", RecordType::A, 0, None),
        ("cluster.local", RecordType::DS, 0, None),
        ("Cluster.Local", RecordType::DS, 0, None),
    ];
    for (text, rtype, code, address) in table {
        let packet = query(text, rtype);
        everywhere(World::silent, &packet, |what, world, reply| {
            let what = format!("{text} {rtype} {what}");
            assert_echoes(&what, &packet, reply, REPLY | AA | code);
            let parsed = parsed(reply);
            let found: Vec<String> = parsed.addresses().map(|a| a.to_string()).collect();
            assert_eq!(found, Vec::from_iter(address), "{what}");
            if address.is_none() {
                assert_eq!(parsed.authority[0].rtype, RecordType::SOA, "{what}");
                assert_eq!(parsed.authority[0].owner, name(text), "{what}");
            } else {
                assert_eq!(parsed.answers[0].owner, name(text), "{what}");
            }
            assert_eq!(world.asked(), [""; 0], "{what}");
        })
        .await;
    }
}

/// N3
#[tokio::test]
async fn names_that_only_look_special_are_asked() {
    let world = World::saying(Answer::nxdomain(".")).await;
    for (text, rtype) in [
        ("localhost.example.org", RecordType::A),
        ("onion.example.org", RecordType::A),
        ("a.cluster.local", RecordType::DS),
        ("cluster.local", RecordType::A),
    ] {
        let before = world.received().len();
        world.udp(&query(text, rtype)).await;
        assert_eq!(world.received().len(), before + 1, "{text}");
    }
}

/// A laptop's resolver: what belongs to the cluster goes there, the rest to the servers of before.
struct Laptop {
    split: Split<bool>,
    cluster: Arc<Resolver>,
    before: Forwarder,
    view: Arc<View>,
}

impl Handler for Laptop {
    async fn handle(&self, packet: Vec<u8>, peer: SocketAddr, _: Transport) -> Option<Vec<u8>> {
        let Checked::Query(query) = check(&packet) else {
            return self.before.forward(&packet).await;
        };
        if *self.split.route(&query.name) {
            let asker = Asker::at(peer, Arc::clone(&self.view));
            self.cluster.answer(&packet, &asker).await
        } else {
            self.before.forward(&packet).await
        }
    }
}

fn transport(server: &LoopbackServer) -> Arc<dyn Upstream> {
    Arc::new(Do53::new(server.address(), PortPolicy::Pooled))
}

async fn pointing_to(target: &'static str) -> LoopbackServer {
    LoopbackServer::start(move |received| {
        let asked = asked_name(received);
        let data = name(target);
        Answer::records([Record::new(&asked, RecordType::PTR, data.as_wire())]).actions(received)
    })
    .await
}

/// N5
#[tokio::test]
async fn reverse_names_of_the_cluster_go_there_and_all_others_to_the_servers_of_before() {
    // The zones of 10.96.0.0/16 and fd00:10:96::/44; nibbles 0x0 to 0xf of a /46 are cut at 4.
    let zones = [
        "96.10.in-addr.arpa",
        "9.0.0.0.1.0.0.0.0.d.f.ip6.arpa",
        "4.1.0.0.0.0.d.f.ip6.arpa",
    ];
    let (inside, outside) = (pointing_to(SERVICE).await, pointing_to("router.home").await);
    let mut split = Split::new(false);
    for zone in zones {
        split.insert(&name(zone), true);
    }
    let pod = pod_view();
    let second = Duration::from_secs(1);
    let laptop = Laptop {
        split,
        cluster: Resolver::new(
            ResolverConfig::new(vec![transport(&inside)]),
            Arc::new(NoLocalRecords),
        ),
        before: Forwarder::new(
            Upstreams::new(vec![transport(&outside)], Settings::default()),
            second,
        ),
        view: Arc::new(pod),
    };
    let world = Plan::of(vec![inside, outside])
        .start_with(Arc::new(laptop))
        .await;
    let nibbles = |text: &str, rest: usize| format!("{}{text}", "0.".repeat(rest));
    let table = [
        ("1.0.96.10.in-addr.arpa".to_owned(), true),
        ("255.255.96.10.IN-ADDR.ARPA".to_owned(), true),
        ("1.0.97.10.in-addr.arpa".to_owned(), false),
        ("1.0.196.10.in-addr.arpa".to_owned(), false),
        ("1.1.168.192.in-addr.arpa".to_owned(), false),
        ("10.in-addr.arpa".to_owned(), false),
        (nibbles("9.0.0.0.1.0.0.0.0.d.f.ip6.arpa", 21), true),
        (nibbles("8.0.0.0.1.0.0.0.0.d.f.ip6.arpa", 21), false),
        (nibbles("a.0.0.0.1.0.0.0.0.d.f.ip6.arpa", 21), false),
        (nibbles("f.4.1.0.0.0.0.d.f.ip6.arpa", 22), true),
        (nibbles("0.5.1.0.0.0.0.d.f.ip6.arpa", 22), false),
    ];
    for (text, to_cluster) in table {
        let packet = query(&text, RecordType::PTR);
        for how in TRANSPORTS {
            let counts = [0, 1].map(|n| world.upstreams[n].received().len());
            let reply = world.ask(how, &packet).await;
            assert_echoes(&text, &packet, &reply, REPLY);
            let expected = if to_cluster { SERVICE } else { "router.home" };
            assert_eq!(
                parsed(&reply).answers[0].data.to_string(),
                expected,
                "{text}"
            );
            let other = usize::from(to_cluster);
            assert_eq!(
                world.upstreams[other].received().len(),
                counts[other],
                "{text}"
            );
        }
    }
}

/// N7, D2
#[tokio::test]
async fn a_known_name_without_the_type_is_nodata_with_an_soa() {
    let ours = Local::Addresses(vec![[10, 96, 0, 7].into()]);
    for (text, expected) in [
        ("web.default.svc.cluster.local", AA),
        ("web", AA),
        (SERVICE, 0),
        ("authors", 0),
    ] {
        for rtype in [RecordType::AAAA, RecordType::HTTPS, RecordType::TXT] {
            let start = || async {
                let server = server(vec![
                    (
                        SERVICE,
                        RecordType::A,
                        Answer::address(SERVICE, [10, 96, 0, 1]),
                    ),
                    (SERVICE, rtype, Answer::nodata("cluster.local")),
                ]);
                let mut plan = Plan::of(vec![server.await]);
                plan.local = Table::default()
                    .with("web.default.svc.cluster.local", RecordType::A, ours.clone())
                    .with("web.default.svc.cluster.local", rtype, Local::NoData);
                plan.start().await
            };
            let packet = query(text, rtype);
            everywhere(start, &packet, |what, _, reply| {
                let what = format!("{text} {rtype} {what}");
                assert_echoes(&what, &packet, reply, REPLY | expected);
                let parsed = parsed(reply);
                assert_eq!(parsed.answers, [], "{what}");
                assert_eq!(parsed.authority.len(), 1, "{what}");
                assert_eq!(parsed.authority[0].rtype, RecordType::SOA, "{what}");
                let zone = if text == SERVICE {
                    "cluster.local"
                } else {
                    text
                };
                assert_eq!(parsed.authority[0].owner, name(zone), "{what}");
            })
            .await;
        }
    }
}

/// N8, D1
#[tokio::test]
async fn an_expanded_answer_begins_at_the_question_and_its_chain_holds_together() {
    let docs = "docs.default.svc.cluster.local";
    let chain = Answer::records([
        Record::cname(docs, "a.example.net"),
        Record::cname("a.example.net", "b.example.net"),
        Record::address("b.example.net", [192, 0, 2, 1]),
    ]);
    for asked in ["docs", "DOCS.default", docs] {
        let packet = query(asked, RecordType::A);
        let start = || World::scripted(vec![(docs, RecordType::A, chain.clone())]);
        everywhere(start, &packet, |what, _, reply| {
            assert_echoes(what, &packet, reply, REPLY);
            let expected = [
                format!("{asked} 30 CNAME a.example.net"),
                "a.example.net 30 CNAME b.example.net".to_owned(),
                "b.example.net 30 A 192.0.2.1".to_owned(),
            ];
            assert_eq!(shown(reply), expected, "{what}");
        })
        .await;
    }
}

/// N8, K9
#[tokio::test]
async fn signatures_of_an_expanded_name_are_no_data_of_the_asked_one() {
    let data = [&b"\0\x01\x08\x03"[..], &[0; 14], b"\x05local\0sig"].concat();
    let signed = Answer::records([Record::new(SERVICE, RecordType::RRSIG, data)]);
    let packet = query("authors", RecordType::RRSIG);
    let start = || World::scripted(vec![(SERVICE, RecordType::RRSIG, signed.clone())]);
    everywhere(start, &packet, |what, _, reply| {
        assert_echoes(what, &packet, reply, REPLY);
        let parsed = parsed(reply);
        assert_eq!(parsed.answers, [], "{what}");
        assert_eq!(parsed.authority[0].rtype, RecordType::SOA, "{what}");
        assert_eq!(parsed.authority[0].owner, name("authors"), "{what}");
    })
    .await;
}

/// N8, D12
#[tokio::test]
async fn names_of_the_cluster_and_of_absolute_zones_are_never_expanded() {
    let world = World::saying(Answer::nxdomain(".")).await;
    let mut expected = Vec::new();
    for text in [
        "x.cluster.local",
        "nope.default.svc.cluster.local",
        "cluster.local",
        "example.org",
        "a.example.org",
    ] {
        for how in TRANSPORTS {
            let packet = query(text, RecordType::A);
            assert_echoes(text, &packet, &world.ask(how, &packet).await, REPLY | 3);
        }
        expected.push(text);
    }
    assert_eq!(world.asked(), expected);
}

/// N8, D25
#[tokio::test]
async fn a_candidate_that_would_be_too_long_is_skipped() {
    // 238 octets: itself and under `cluster.local` (14 more) it fits, under the two longer domains it does not.
    let long = [
        "x".repeat(63),
        "y".repeat(63),
        "z".repeat(63),
        "w".repeat(44),
    ]
    .join(".");
    let world = World::saying(Answer::nxdomain(".")).await;
    let packet = query(&long, RecordType::A);
    for how in TRANSPORTS {
        assert_echoes("long", &packet, &world.ask(how, &packet).await, REPLY | 3);
    }
    let mut asked = world.asked();
    asked.sort_by_key(String::len);
    assert_eq!(asked, [long.clone(), format!("{long}.cluster.local")]);
    let longest: Name = [
        "x".repeat(63),
        "y".repeat(63),
        "z".repeat(63),
        "w".repeat(61),
    ]
    .join(".")
    .parse()
    .unwrap();
    let packet = query(&longest.to_string(), RecordType::A);
    assert_echoes("255", &packet, &world.udp(&packet).await, REPLY | 3);
    assert_eq!(world.received().len(), 3);
}
