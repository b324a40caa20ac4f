//! Which upstreams are asked, and what the cache makes of their coming and going.

use UpstreamState::{Healthy, Looped, Unhealthy};

use super::*;

fn good() -> Answer {
    Answer::address(SERVICE, v4(1))
}

fn upstreams(answers: impl IntoIterator<Item = Answer>) -> Vec<ScriptedUpstream> {
    let upstream = |(index, answer)| {
        ScriptedUpstream::new(&format!("10.96.0.{}", index + 10)).otherwise(answer)
    };
    answers.into_iter().enumerate().map(upstream).collect()
}

async fn timed(world: &World, text: &str) -> (ResponseCode, Duration) {
    let start = Instant::now();
    let reply = world.ask(text, RecordType::A).await;
    (reply.code, start.elapsed())
}

/// D14
#[tokio::test(start_paused = true)]
async fn a_dead_upstream_delays_negatives_by_300_ms_until_it_is_down_and_then_nothing() {
    let world = World::new(upstreams([Answer::nxdomain("."), Answer::nxdomain(".")]));
    let _watched = world.watched().await;
    world.upstreams[1].set_otherwise(Answer::silence());
    let died = Instant::now();
    let mut number = 0;
    while world.states()[1] != Unhealthy {
        number += 1;
        // The bare name is a stage of its own.
        let (code, took) = timed(&world, &format!("missing{number}")).await;
        assert_eq!(code, ResponseCode::NXDOMAIN);
        assert!(took <= 2 * ms(300), "{took:?}");
        assert!(died.elapsed() <= ms(3000), "still not down");
        tokio::time::sleep(ms(50)).await;
    }
    let asked = world.questions()[1];
    assert_eq!(
        timed(&world, "missing").await,
        (ResponseCode::NXDOMAIN, Duration::ZERO)
    );
    assert_eq!(world.questions()[1], asked);
}

#[tokio::test(start_paused = true)]
async fn a_dead_upstream_does_not_delay_data_and_is_found_out_by_losing() {
    let world = World::new(upstreams([good().after(ms(5)), good().after(ms(5))]));
    let _watched = world.watched().await;
    world.upstreams[1].set_otherwise(Answer::silence());
    let died = Instant::now();
    while world.states()[1] != Unhealthy {
        let (code, took) = timed(&world, SERVICE).await;
        assert_eq!(code, ResponseCode::NOERROR);
        assert!(took <= ms(5), "{took:?}");
        world.resolver.flush();
        assert!(died.elapsed() <= ms(4000), "still not down");
        tokio::time::sleep(ms(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn when_all_upstreams_are_down_all_are_asked_and_the_first_to_answer_is_back() {
    let world = World::new(upstreams([Answer::failure(), Answer::failure()]));
    let _watched = world.watched().await;
    while world.states() != [Unhealthy; 2] {
        tokio::time::sleep(ms(100)).await;
    }
    world.upstreams[1].set(SERVICE, RecordType::A, good());
    let (code, _) = timed(&world, SERVICE).await;
    assert_eq!(code, ResponseCode::NOERROR);
    assert_eq!(world.questions(), [1, 1]);
    assert_eq!(world.states(), [Unhealthy, Healthy]);
}

#[tokio::test(start_paused = true)]
async fn k6_a_kept_failure_is_forgotten_when_an_upstream_is_back() {
    let world = World::new(upstreams([Answer::failure()]));
    let _watched = world.watched().await;
    while world.states() != [Unhealthy] {
        tokio::time::sleep(ms(100)).await;
    }
    let failed = timed(&world, SERVICE).await;
    assert_eq!(failed, (ResponseCode::SERVFAIL, Duration::ZERO));
    assert_eq!(timed(&world, SERVICE).await, failed);
    assert_eq!(world.questions(), [1]);

    world.upstreams[0].set_otherwise(good());
    let mut watch = world.resolver.upstreams().watch();
    watch.wait_for(|all| all[0].state == Healthy).await.unwrap();

    assert_eq!(timed(&world, SERVICE).await.0, ResponseCode::NOERROR);
    assert_eq!(world.questions(), [2]);
}

#[tokio::test(start_paused = true)]
async fn k6_a_failure_from_before_a_recovery_is_not_kept_after_it() {
    let world = World::new(upstreams([Answer::failure()]));
    let _watched = world.watched().await;
    while world.states() != [Unhealthy] {
        tokio::time::sleep(ms(100)).await;
    }
    let slow = Answer::code(ResponseCode::SERVFAIL).after(ms(1500));
    world.upstreams[0].set(SERVICE, RecordType::A, slow);
    world.upstreams[0].set_otherwise(good());
    assert_eq!(timed(&world, SERVICE).await.0, ResponseCode::SERVFAIL);
    assert_eq!(world.states(), [Healthy]);
    world.upstreams[0].set(SERVICE, RecordType::A, good());
    assert_eq!(timed(&world, SERVICE).await.0, ResponseCode::NOERROR);
}

#[tokio::test(start_paused = true)]
async fn k6_k12_another_set_of_upstreams_makes_everything_kept_forgotten() {
    let world = World::new(upstreams([Answer::failure().after(ms(1))]));
    assert_eq!(timed(&world, SERVICE).await.0, ResponseCode::SERVFAIL);
    let next = |last| {
        let answer = Answer::address(SERVICE, v4(last));
        vec![Arc::new(ScriptedUpstream::new("10.96.0.99").otherwise(answer)) as Arc<dyn Upstream>]
    };
    for last in [7, 8] {
        // By whoever shares the set, not through the resolver.
        world.resolver.upstreams().replace(next(last));
        let reply = world.ask(SERVICE, RecordType::A).await;
        assert_eq!(reply.addresses().collect::<Vec<_>>(), [v4(last)]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstream_looped_for_a_zone_is_asked_only_about_other_names() {
    let world = World::new(upstreams([Answer::nxdomain("."), good()]));
    let set = world.resolver.upstreams();
    let ids: Vec<u32> = set.status().iter().map(|status| status.id).collect();
    set.mark_looped(ids[0], &name("cluster.local"));
    assert_eq!(world.states()[0], Looped);
    assert_eq!(timed(&world, SERVICE).await.0, ResponseCode::NOERROR);
    assert_eq!(world.questions(), [0, 1]);
    timed(&world, "a.b.c.d.e.example").await;
    assert_eq!(world.upstreams[0].asked_names()[0], "a.b.c.d.e.example");
}

#[tokio::test(start_paused = true)]
async fn where_every_upstream_is_looped_the_answer_is_servfail_at_once_and_not_kept() {
    let world = World::new(upstreams([good(), good()]));
    let set = world.resolver.upstreams();
    for status in set.status().iter() {
        set.mark_looped(status.id, &name("."));
    }
    let failed = (ResponseCode::SERVFAIL, Duration::ZERO);
    assert_eq!(timed(&world, SERVICE).await, failed);
    assert_eq!(world.questions(), [0, 0]);
    let id = set.status()[0].id;
    set.clear_looped(id, &name("."));
    assert_eq!(timed(&world, SERVICE).await.0, ResponseCode::NOERROR);
}
