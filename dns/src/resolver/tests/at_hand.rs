//! Hits given where queries are received: the same octets as by the long way, and only hits.

use super::*;
use crate::message::Edns;

fn packet(text: &str, edns: bool) -> Vec<u8> {
    let options = QueryOptions {
        edns,
        ..QueryOptions::default()
    };
    encode_query(77, &name(text), RecordType::A, options)
}

fn at_hand(world: &World, packet: &[u8], view: &Arc<View>) -> Option<Vec<u8>> {
    let mut reply = b"what was there before".to_vec();
    let found = world.resolver.answer_at_hand(packet, view, &mut reply);
    found.then_some(reply)
}

#[tokio::test(start_paused = true)]
async fn a_hit_is_the_same_by_both_ways() {
    let ext = "ext.default.svc.cluster.local";
    let chain = [Record::cname(ext, SERVICE), Record::address(SERVICE, v4(9))];
    let world = World::new([upstream()
        .with(SERVICE, RecordType::A, Answer::address(SERVICE, v4(1)))
        .with(ext, RecordType::A, Answer::records(chain))]);
    for view in [pod(), session("default", 2)] {
        for text in ["authors", "AuThOrS", SERVICE, "ext", "nope", "nope.default"] {
            for edns in [false, true] {
                let packet = packet(text, edns);
                world.raw(&packet, &view).await;
                tokio::time::advance(ms(1500)).await;
                let long = world.raw(&packet, &view).await;
                assert_eq!(at_hand(&world, &packet, &view), Some(long), "{text} {edns}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_in_the_cache_or_not_for_the_asker_is_left_to_the_long_way() {
    let other = "db.prod.svc.cluster.local";
    let alias = "db.example.com";
    let to_prod = Answer::records([Record::cname(alias, other), Record::address(other, v4(3))]);
    let world = World::new([upstream()
        .with(other, RecordType::A, Answer::address(other, v4(2)))
        .with(alias, RecordType::A, to_prod)]);
    let packet = |text| packet(text, true);
    assert_eq!(at_hand(&world, &packet(other), &pod()), None, "a miss");
    for text in [other, "localhost", "db.prod.svc.cluster.local.example"] {
        world.raw(&packet(text), &pod()).await;
    }
    assert!(at_hand(&world, &packet(other), &pod()).is_some());
    for text in [other, "localhost"] {
        let session = session("default", 2);
        assert_eq!(at_hand(&world, &packet(text), &session), None, "{text}");
    }
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(at_hand(&world, &packet(other), &pod()), None, "expired");
    let before = world.asked().len();
    at_hand(&world, &packet("never.asked"), &pod());
    assert_eq!(world.asked().len(), before, "nothing is asked from here");
}

#[tokio::test(start_paused = true)]
async fn an_answer_longer_than_the_asker_takes_is_left_to_be_cut() {
    let records: Vec<Record> = (0..40)
        .map(|last| Record::address(SERVICE, v4(last)))
        .collect();
    let world = World::new([upstream().with(SERVICE, RecordType::A, Answer::records(records))]);
    let (plain, edns) = (packet(SERVICE, false), packet(SERVICE, true));
    world.raw(&edns, &pod()).await;
    assert!(at_hand(&world, &edns, &pod()).is_some_and(|reply| reply.len() > 512));
    assert_eq!(at_hand(&world, &plain, &pod()), None);
    let reply = at_hand(&world, &edns, &pod()).unwrap();
    assert_eq!(
        answers(&reply).unwrap().edns,
        Some(Edns {
            udp_size: 1232,
            dnssec_ok: false,
            version: 0
        })
    );
}

#[tokio::test(start_paused = true)]
async fn a_hit_at_hand_is_counted_and_renews_like_any_other() {
    let script = upstream().with(
        SERVICE,
        RecordType::A,
        Answer::records([Record::address(SERVICE, v4(1)).ttl(100)]),
    );
    let world = World::with([script], Table::default(), |config| config.prefetch = true);
    let packet = packet(SERVICE, true);
    world.raw(&packet, &pod()).await;
    tokio::time::sleep(Duration::from_secs(95)).await;
    for _ in 0..3 {
        assert!(at_hand(&world, &packet, &pod()).is_some());
    }
    tokio::time::sleep(ms(1)).await;
    assert_eq!(world.asked().len(), 2);
    let stats = world.resolver.stats();
    assert_eq!(
        (stats.cache_hits, stats.cache_misses, stats.renewed),
        (3, 1, 1)
    );
}
