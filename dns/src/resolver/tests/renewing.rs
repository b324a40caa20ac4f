//! Answers made anew before their time is over.

use super::*;

fn aged(last: u8, ttl: u32) -> Answer {
    Answer::records([Record::address(SERVICE, v4(last)).ttl(ttl)])
}

/// A world that renews, with an answer of that lifetime and then another upstream answer.
async fn renewing(first: Answer, then: Answer) -> World {
    let script = upstream().with(SERVICE, RecordType::A, first);
    let world = World::with([script], Table::default(), |config| config.prefetch = true);
    world.ask(SERVICE, RecordType::A).await;
    world.upstreams[0].set(SERVICE, RecordType::A, then);
    world
}

async fn last_octet_and_ttl(world: &World) -> (IpAddr, u32) {
    let reply = world.ask(SERVICE, RecordType::A).await;
    let address = reply.addresses().next().expect("an address");
    (address, reply.answers[0].ttl)
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_renewed_unless_it_is_asked_for() {
    let world = World::new([upstream().with(SERVICE, RecordType::A, aged(1, 100))]);
    for _ in 0..100 {
        world.ask(SERVICE, RecordType::A).await;
        seconds(1).await;
    }
    assert_eq!(world.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hit_in_the_last_tenth_renews_an_answer_once_and_nobody_waits() {
    let world = renewing(aged(1, 100), aged(2, 100).after(ms(500))).await;
    seconds(89).await;
    for _ in 0..5 {
        assert_eq!(last_octet_and_ttl(&world).await, (v4(1), 11));
    }
    assert_eq!(world.asked().len(), 1, "not in its last tenth yet");
    seconds(1).await;
    for _ in 0..5 {
        let begun = Instant::now();
        assert_eq!(last_octet_and_ttl(&world).await, (v4(1), 10));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
    seconds(1).await;
    assert_eq!(last_octet_and_ttl(&world).await, (v4(2), 100));
    assert_eq!(world.asked().len(), 2);
    assert_eq!(world.resolver.stats().renewed, 1);
}

#[tokio::test(start_paused = true)]
async fn an_answer_asked_for_once_or_of_a_short_life_is_not_renewed() {
    let world = renewing(aged(1, 100), aged(2, 100)).await;
    seconds(95).await;
    assert_eq!(last_octet_and_ttl(&world).await, (v4(1), 5));
    seconds(1).await;
    assert_eq!(world.asked().len(), 1, "its first hit");

    let world = renewing(aged(1, 9), aged(2, 100)).await;
    seconds(8).await;
    for _ in 0..5 {
        assert_eq!(last_octet_and_ttl(&world).await, (v4(1), 1));
    }
    assert_eq!(world.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_asks_when_the_time_is_over_waits_for_the_renewal_under_way() {
    let world = renewing(aged(1, 10), aged(2, 100).after(ms(1500))).await;
    tokio::time::sleep(ms(9500)).await;
    for _ in 0..2 {
        last_octet_and_ttl(&world).await;
    }
    tokio::time::sleep(ms(600)).await;
    let replies = futures::future::join_all((0..50).map(|_| last_octet_and_ttl(&world))).await;
    assert!(replies.iter().all(|reply| *reply == (v4(2), 100)));
    assert_eq!(world.asked().len(), 2, "one query for all of them");
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_leaves_the_answer_for_the_rest_of_its_time() {
    for failing in [Answer::failure(), Answer::code(ResponseCode::REFUSED)] {
        let world = renewing(aged(1, 100), failing).await;
        seconds(95).await;
        for _ in 0..5 {
            last_octet_and_ttl(&world).await;
        }
        seconds(4).await;
        assert_eq!(last_octet_and_ttl(&world).await, (v4(1), 1));
        assert_eq!(world.asked().len(), 2, "tried once");
        seconds(1).await;
        let reply = world.ask(SERVICE, RecordType::A).await;
        assert_eq!(reply.code, ResponseCode::SERVFAIL);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_finds_nothing_is_believed() {
    let world = renewing(aged(1, 100), Answer::nxdomain(".")).await;
    seconds(95).await;
    for _ in 0..2 {
        last_octet_and_ttl(&world).await;
    }
    seconds(1).await;
    let reply = world.ask(SERVICE, RecordType::A).await;
    assert_eq!(reply.code, ResponseCode::NXDOMAIN);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_being_renewed_is_purged_like_any_other() {
    for flush in [false, true] {
        let world = renewing(aged(1, 100), aged(2, 100).after(ms(500))).await;
        seconds(95).await;
        for _ in 0..2 {
            last_octet_and_ttl(&world).await;
        }
        tokio::time::sleep(ms(100)).await;
        if flush {
            world.resolver.flush();
        } else {
            world.resolver.purge(&name(SERVICE));
        }
        // Both wait for the query under way, whatever the old answer has left of its time.
        assert_eq!(last_octet_and_ttl(&world).await.0, v4(2), "{flush}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_a_purge_overtook_is_not_kept() {
    let world = renewing(aged(1, 100), aged(2, 100).after(ms(500))).await;
    seconds(95).await;
    for _ in 0..2 {
        last_octet_and_ttl(&world).await;
    }
    tokio::time::sleep(ms(100)).await;
    world.upstreams[0].set(SERVICE, RecordType::A, aged(3, 100));
    world.resolver.purge(&name(SERVICE));
    seconds(1).await;
    assert_eq!(last_octet_and_ttl(&world).await.0, v4(3));
}

#[tokio::test(start_paused = true)]
async fn renewals_are_bounded_and_what_finds_no_room_is_renewed_at_a_later_hit() {
    let world = World::with(
        [upstream().otherwise(Answer::records([]).authority([Record::soa(".", 100, 100)]))],
        Table::default(),
        |config| config.prefetch = true,
    );
    let names: Vec<String> = (0..100)
        .map(|index| format!("s{index}.default.svc.cluster.local"))
        .collect();
    let ask_all =
        || futures::future::join_all(names.iter().map(|one| world.ask(one, RecordType::A)));
    ask_all().await;
    world.upstreams[0].set_otherwise(Answer::silence());
    tokio::time::sleep(ms(28_000)).await;
    for _ in 0..3 {
        ask_all().await;
        tokio::time::sleep(ms(1)).await;
    }
    assert_eq!(world.upstreams[0].in_flight(), 64);
    tokio::time::sleep(ms(1000)).await;
    tokio::time::sleep(ms(900)).await;
    let tried = world.asked().len();
    assert_eq!(tried, 164);
}
