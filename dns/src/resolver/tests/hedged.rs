//! Upstreams asked one after the other: hedged by their round trips, or in the order of the configuration.

use super::*;

fn found(last: u8, milliseconds: u64) -> Answer {
    Answer::address(SERVICE, v4(last)).after(ms(milliseconds))
}

/// Upstreams that answer everything after these many milliseconds.
fn world(policy: FanoutPolicy, delays: &[u64]) -> World {
    let upstream = |(index, delay): (usize, &u64)| {
        let last = u8::try_from(index).unwrap() + 1;
        ScriptedUpstream::new(&format!("10.96.0.{last}")).otherwise(found(last, *delay))
    };
    let upstreams: Vec<_> = delays.iter().enumerate().map(upstream).collect();
    World::with(upstreams, Table::default(), |config| config.fanout = policy)
}

/// Asks for the Service; who answered, and after how long.
async fn ask(world: &World) -> (Option<IpAddr>, Duration) {
    let start = Instant::now();
    let reply = world.ask(SERVICE, RecordType::A).await;
    world.resolver.flush();
    (reply.addresses().next(), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn hedged_the_upstream_with_the_shortest_round_trip_is_asked_alone() {
    let world = world(FanoutPolicy::Hedged, &[80, 30, 5]);
    let _watched = world.watched().await;
    for _ in 0..10 {
        assert_eq!(ask(&world).await, (Some(v4(3)), ms(5)));
    }
    assert_eq!(world.questions(), [0, 0, 10]);
}

#[tokio::test(start_paused = true)]
async fn hedged_a_miss_with_four_candidates_and_three_upstreams_is_four_queries() {
    let world = world(FanoutPolicy::Hedged, &[5, 5, 5]);
    for upstream in &world.upstreams {
        upstream.set_otherwise(Answer::nxdomain(".").after(ms(5)));
    }
    let _watched = world.watched().await;
    let reply = world.ask("www.example.com", RecordType::A).await;
    assert_eq!(reply.code, ResponseCode::NXDOMAIN);
    assert_eq!(world.questions(), [4, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn hedged_the_next_is_asked_after_20_ms_or_two_round_trips() {
    for (round_trip, patience) in [(5, 20), (40, 80)] {
        let world = world(FanoutPolicy::Hedged, &[round_trip, 100]);
        let _watched = world.watched().await;
        world.upstreams[0].set_otherwise(Answer::silence());
        let (by, took) = ask(&world).await;
        assert_eq!((by, took), (Some(v4(2)), ms(patience + 100)));
        assert_eq!(world.upstreams[0].in_flight(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn hedged_the_next_is_asked_at_once_after_an_error() {
    let servfail = Answer::code(ResponseCode::SERVFAIL);
    let refused = Answer::code(ResponseCode::REFUSED);
    for failure in [Answer::failure(), servfail, refused] {
        let world = world(FanoutPolicy::Hedged, &[5, 30]);
        let _watched = world.watched().await;
        world.upstreams[0].set_otherwise(failure);
        assert_eq!(ask(&world).await, (Some(v4(2)), ms(30)));
    }
}

#[tokio::test(start_paused = true)]
async fn hedged_a_negative_of_the_only_one_asked_needs_no_second_opinion() {
    let world = world(FanoutPolicy::Hedged, &[5, 30]);
    let _watched = world.watched().await;
    for negative in [Answer::nxdomain("."), Answer::nodata(".")] {
        world.upstreams[0].set_otherwise(negative.after(ms(5)));
        assert_eq!(ask(&world).await, (None, ms(5)));
    }
    assert_eq!(world.questions(), [2, 0]);
}

/// Settling knows no policy: of those that were asked, data wins over a negative within the window.
#[tokio::test(start_paused = true)]
async fn hedged_data_of_the_second_wins_over_a_late_negative_of_the_first() {
    let world = world(FanoutPolicy::Hedged, &[5, 30]);
    let _watched = world.watched().await;
    world.upstreams[0].set_otherwise(Answer::nxdomain(".").after(ms(25)));
    assert_eq!(ask(&world).await, (Some(v4(2)), ms(50)));
}

#[tokio::test(start_paused = true)]
async fn hedged_one_that_has_become_slow_is_the_best_no_more() {
    let world = world(FanoutPolicy::Hedged, &[5, 10]);
    let _watched = world.watched().await;
    world.upstreams[0].set_otherwise(found(1, 400));
    let mut last = ms(0);
    for _ in 0..20 {
        let (by, took) = ask(&world).await;
        assert_eq!(by, Some(v4(2)));
        assert!(took <= ms(20 + 10), "{took:?}");
        last = took;
        tokio::time::sleep(ms(50)).await;
    }
    assert_eq!(last, ms(10));
}

#[tokio::test(start_paused = true)]
async fn hedged_when_all_fail_each_was_asked_once() {
    let world = world(FanoutPolicy::Hedged, &[5, 5, 5]);
    for upstream in &world.upstreams {
        upstream.set_otherwise(Answer::code(ResponseCode::SERVFAIL));
    }
    let reply = world.ask(SERVICE, RecordType::A).await;
    assert_eq!(reply.code, ResponseCode::SERVFAIL);
    assert_eq!(world.questions(), [1, 1, 1]);
}

#[tokio::test(start_paused = true)]
async fn ordered_the_order_is_that_of_the_configuration_whatever_the_round_trips() {
    let world = world(FanoutPolicy::Ordered, &[80, 5]);
    let _watched = world.watched().await;
    for _ in 0..10 {
        assert_eq!(ask(&world).await, (Some(v4(1)), ms(80)));
    }
    assert_eq!(world.questions(), [10, 0]);
    world.upstreams[0].set_otherwise(Answer::silence());
    assert_eq!(ask(&world).await, (Some(v4(2)), ms(305)));
    world.upstreams[0].set_otherwise(Answer::code(ResponseCode::REFUSED));
    assert_eq!(ask(&world).await, (Some(v4(2)), ms(5)));
}
