//! Answers whose time is over (K8; RFC 8767).

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn aged(last: u8, ttl: u32) -> Answer {
    Answer::records([Record::address(SERVICE, v4(last)).ttl(ttl)])
}

/// A world that gives stale answers for an hour and has one of 30 seconds whose time is just over.
async fn expired(answer: Answer, upstreams: usize) -> World {
    let script = |_| upstream().with(SERVICE, RecordType::A, answer.clone());
    let world = World::with((0..upstreams).map(script), Table::default(), |config| {
        config.stale = Some(StaleSettings { longest: HOUR });
    });
    world.ask(SERVICE, RecordType::A).await;
    tokio::time::advance(Duration::from_secs(30)).await;
    world
}

fn say(world: &World, upstream: usize, answer: Answer) {
    world.upstreams[upstream].set(SERVICE, RecordType::A, answer);
}

/// What a reply says, and the extended error at its end.
async fn told(world: &World) -> (Parsed, Option<u16>) {
    let packet = encode_query(7, &name(SERVICE), RecordType::A, QueryOptions::default());
    let reply = world.raw(&packet, &pod()).await;
    let reason = match reply[reply.len() - 6..] {
        [0, 15, 0, 2, high, low] => Some(u16::from_be_bytes([high, low])),
        _ => None,
    };
    (answers(&reply).unwrap(), reason)
}

fn shows(reply: &Parsed, last: u8, ttl: u32) -> bool {
    let [answer] = &reply.answers[..] else {
        return false;
    };
    reply.addresses().eq([v4(last)]) && answer.ttl == ttl
}

#[tokio::test(start_paused = true)]
async fn k8_an_expired_answer_is_never_given_unless_it_is_allowed() {
    let world = World::new([upstream().with(SERVICE, RecordType::A, aged(1, 30))]);
    world.ask(SERVICE, RecordType::A).await;
    tokio::time::advance(Duration::from_secs(30)).await;
    say(&world, 0, Answer::code(ResponseCode::SERVFAIL));
    let reply = world.ask(SERVICE, RecordType::A).await;
    assert_eq!(reply.code, ResponseCode::SERVFAIL);
}

#[tokio::test(start_paused = true)]
async fn k8_a_stale_answer_is_given_only_after_all_upstreams_failed() {
    let world = expired(aged(1, 30), 2).await;
    say(&world, 0, Answer::code(ResponseCode::SERVFAIL));
    say(&world, 1, aged(2, 30).after(ms(1000)));
    let (reply, reason) = told(&world).await;
    assert!(shows(&reply, 2, 30), "the other upstream answers in time");
    assert_eq!(reason, None);

    tokio::time::advance(Duration::from_secs(30)).await;
    say(&world, 1, Answer::failure().after(ms(1000)));
    let begun = Instant::now();
    let (reply, reason) = told(&world).await;
    assert!(shows(&reply, 2, 30), "{reply:?}");
    assert_eq!(reason, Some(3));
    assert_eq!(begun.elapsed(), ms(1000), "when the last of them failed");
    assert_eq!(world.resolver.stats().stale, 1);
}

#[tokio::test(start_paused = true)]
async fn k8_silence_costs_1800_ms_and_the_late_answer_is_the_next_one_given() {
    let world = expired(aged(1, 30), 1).await;
    say(&world, 0, aged(2, 30).after(ms(1900)));
    let begun = Instant::now();
    let replies = futures::future::join_all((0..100).map(|_| told(&world))).await;
    assert!(
        replies
            .iter()
            .all(|(reply, reason)| shows(reply, 1, 30) && *reason == Some(3))
    );
    assert_eq!(begun.elapsed(), ms(1800));
    assert_eq!(world.asked().len(), 2, "one flight for all of them");

    tokio::time::sleep(ms(101)).await;
    let (reply, reason) = told(&world).await;
    assert!(shows(&reply, 2, 30) && reason.is_none());
    assert_eq!(world.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn k8_a_fresh_negative_is_never_hidden_by_a_stale_answer() {
    for (delay, first) in [(10, None), (1900, Some(3))] {
        for (negative, code) in [
            (Answer::nxdomain("."), ResponseCode::NXDOMAIN),
            (Answer::nodata("."), ResponseCode::NOERROR),
            // Without an SOA it is not kept, and still ends what was there.
            (Answer::code(ResponseCode::NXDOMAIN), ResponseCode::NXDOMAIN),
        ] {
            let world = expired(aged(1, 30), 1).await;
            say(&world, 0, negative.after(ms(delay)));
            let (_, reason) = told(&world).await;
            assert_eq!(reason, first);
            tokio::time::sleep(ms(101)).await;
            say(&world, 0, Answer::code(ResponseCode::SERVFAIL));
            let later = told(&world).await.0;
            assert!(later.answers.is_empty());
            if delay > 1800 {
                continue;
            }
            let unkept = later.code == ResponseCode::SERVFAIL;
            assert!(unkept || later.code == code, "{later:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn k8_upstreams_are_asked_again_after_thirty_seconds() {
    let world = expired(aged(1, 30), 1).await;
    say(&world, 0, Answer::failure());
    told(&world).await;
    let asked = world.asked().len();
    tokio::time::advance(Duration::from_secs(29)).await;
    let (reply, reason) = told(&world).await;
    assert!(shows(&reply, 1, 1) && reason == Some(3));
    assert_eq!(world.asked().len(), asked);
    tokio::time::advance(Duration::from_secs(1)).await;
    let (reply, reason) = told(&world).await;
    assert!(shows(&reply, 1, 30) && reason == Some(3));
    assert_eq!(world.asked().len(), asked + 1);
}

#[tokio::test(start_paused = true)]
async fn k8_a_stale_nxdomain_is_told_as_one_and_only_to_askers_with_edns() {
    let world = expired(Answer::nxdomain("."), 1).await;
    say(&world, 0, Answer::failure());
    let (reply, reason) = told(&world).await;
    assert_eq!((reply.code, reason), (ResponseCode::NXDOMAIN, Some(19)));
    let plain = QueryOptions {
        edns: false,
        ..QueryOptions::default()
    };
    let packet = encode_query(7, &name(SERVICE), RecordType::A, plain);
    let reply = answers(&world.raw(&packet, &pod()).await).unwrap();
    assert_eq!((reply.code, reply.edns), (ResponseCode::NXDOMAIN, None));
}

#[tokio::test(start_paused = true)]
async fn k8_nothing_is_given_longer_than_allowed_after_its_own_time() {
    let world = expired(aged(1, 30), 1).await;
    say(&world, 0, Answer::failure());
    // Given again and again: the half minutes do not add up to a longer time.
    for _ in 0..119 {
        assert!(shows(&told(&world).await.0, 1, 30));
        tokio::time::advance(Duration::from_secs(30)).await;
    }
    assert!(shows(&told(&world).await.0, 1, 30));
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(told(&world).await.0.code, ResponseCode::SERVFAIL);
}

#[tokio::test(start_paused = true)]
async fn k8_what_was_purged_is_not_given_again() {
    for while_asking in [false, true] {
        for flush in [false, true] {
            let world = expired(aged(1, 30), 1).await;
            say(&world, 0, Answer::failure().after(ms(100)));
            let forget = || match flush {
                true => world.resolver.flush(),
                false => world.resolver.purge(&name(SERVICE)),
            };
            let purging = async {
                if while_asking {
                    tokio::time::sleep(ms(50)).await;
                }
                forget();
            };
            let ((), (reply, _)) = tokio::join!(biased; purging, told(&world));
            assert_eq!(reply.code, ResponseCode::SERVFAIL);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn k8_a_stale_answer_is_purged_like_any_other() {
    let world = expired(aged(1, 30), 1).await;
    say(&world, 0, Answer::failure());
    assert!(shows(&told(&world).await.0, 1, 30));
    world.resolver.purge(&name(SERVICE));
    assert_eq!(told(&world).await.0.code, ResponseCode::SERVFAIL);
}

#[tokio::test(start_paused = true)]
async fn k8_a_query_that_was_shed_gets_no_stale_answer() {
    let script = upstream().with(SERVICE, RecordType::A, aged(1, 30));
    let world = World::with([script], Table::default(), |config| {
        config.stale = Some(StaleSettings { longest: HOUR });
        config.in_flight_limit = 1;
    });
    world.ask(SERVICE, RecordType::A).await;
    tokio::time::advance(Duration::from_secs(30)).await;
    world.upstreams[0].set_otherwise(Answer::silence());
    let occupying = world.ask("other.default.svc.cluster.local", RecordType::A);
    let shed = async {
        tokio::time::sleep(ms(1)).await;
        told(&world).await.0
    };
    let (_, shed) = tokio::join!(occupying, shed);
    assert_eq!(shed.code, ResponseCode::SERVFAIL);
    assert_eq!(world.resolver.stats().shed, 1);
}
