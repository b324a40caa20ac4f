//! Sets with their prober, in-process upstreams and the clock paused.

use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::test_util::{Answer, ScriptedUpstream, name};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// A set whose members answer probes like everything else.
struct World {
    set: Arc<Upstreams>,
    upstreams: Vec<Arc<ScriptedUpstream>>,
    _prober: Option<(DropGuard, AbortOnDropHandle<()>)>,
}

impl World {
    fn unwatched(answers: impl IntoIterator<Item = Answer>) -> Self {
        let upstream = |(index, answer)| {
            let spec = format!("10.0.0.{}", index + 1);
            Arc::new(ScriptedUpstream::new(&spec).otherwise(answer))
        };
        let upstreams: Vec<_> = answers.into_iter().enumerate().map(upstream).collect();
        let dynamic = upstreams.iter().map(|u| Arc::clone(u) as Arc<dyn Upstream>);
        Self {
            set: Upstreams::new(dynamic.collect(), Settings::default()),
            upstreams,
            _prober: None,
        }
    }

    fn watched(answers: impl IntoIterator<Item = Answer>) -> Self {
        let world = Self::unwatched(answers);
        let (set, stop) = (Arc::clone(&world.set), CancellationToken::new());
        let token = stop.clone();
        let task = tokio::spawn(async move { set.run(token).await });
        Self {
            _prober: Some((stop.drop_guard(), AbortOnDropHandle::new(task))),
            ..world
        }
    }

    async fn until(&self, states: &[UpstreamState]) {
        let mut watch = self.set.watch();
        let reached = |now: &Arc<[UpstreamStatus]>| now.iter().map(|s| s.state).eq(states.to_vec());
        let reached = watch.wait_for(reached);
        let reached = tokio::time::timeout(Duration::from_secs(10), reached).await;
        reached.expect("the states in time").unwrap();
    }

    fn usable(&self, text: &str) -> Vec<u32> {
        let usable = usable(&self.set.members(), &name(text));
        usable.iter().map(|member| member.id()).collect()
    }
}

fn good() -> Answer {
    Answer::nodata(".").after(ms(5))
}

use UpstreamState::{Healthy, Looped, Unhealthy, Unknown};

#[tokio::test(start_paused = true)]
async fn upstreams_are_probed_once_at_first_and_left_alone_while_they_are_well() {
    let world = World::watched([good(), good()]);
    assert_eq!(world.set.status()[0].state, Unknown);
    world.until(&[Healthy, Healthy]).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    for upstream in &world.upstreams {
        assert_eq!(upstream.asked_names(), ["."]);
        assert_eq!(upstream.asked()[0].rtype, crate::name::RecordType::NS);
    }
    let status = world.set.status();
    assert_eq!((status[0].fails, status[0].rtt), (0, Some(ms(5))));
}

#[tokio::test(start_paused = true)]
async fn any_reply_to_a_probe_is_a_sign_of_life() {
    use crate::name::ResponseCode as Code;
    let answers = [Code::SERVFAIL, Code::REFUSED, Code::NXDOMAIN, Code::NOTIMP];
    let world = World::watched(answers.map(Answer::code));
    world.until(&[Healthy; 4]).await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_upstream_is_probed_every_500_ms_with_never_more_than_three_at_once() {
    let world = World::watched([Answer::silence(), good()]);
    let start = Instant::now();
    world.until(&[Unhealthy, Healthy]).await;
    assert!(start.elapsed() <= ms(2200), "{:?}", start.elapsed());
    let mut most = 0;
    while start.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(ms(10)).await;
        most = most.max(world.upstreams[0].in_flight());
    }
    let probes = world.upstreams[0].asked().len();
    assert!((109..=134).contains(&probes), "{probes}");
    assert!(most <= 3, "{most}");
    assert_eq!(world.upstreams[1].asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_returns_is_used_again_within_a_second() {
    for trial in 0..40 {
        let dead = [Answer::silence(), Answer::failure()][trial % 2].clone();
        let world = World::watched([dead, good()]);
        world.until(&[Unhealthy, Healthy]).await;
        tokio::time::sleep(ms(37 * trial as u64)).await;
        assert_eq!(world.usable("a.test"), [2]);

        world.upstreams[0].set_otherwise(good());
        let back = Instant::now();

        world.until(&[Healthy, Healthy]).await;
        assert!(back.elapsed() <= ms(600), "{:?}", back.elapsed());
        assert_eq!(world.usable("a.test"), [1, 2]);
    }
}

#[tokio::test(start_paused = true)]
async fn when_all_are_down_all_are_asked_in_order() {
    let world = World::watched([Answer::failure(), Answer::silence(), Answer::failure()]);
    world.until(&[Unhealthy; 3]).await;
    assert_eq!(world.usable("a.test"), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_avoided_while_nobody_watches_for_its_return() {
    let world = World::unwatched([Answer::failure(), good()]);
    let query = crate::upstream::OutgoingQuery::new(name("a.test"), crate::name::RecordType::A);
    for _ in 0..3 {
        let member = Arc::clone(&world.set.members()[0]);
        let end = Instant::now() + ms(100);
        assert!(member.exchange(&query, end).await.is_err());
    }
    assert_eq!(world.set.status()[0].state, Unhealthy);
    assert_eq!(world.usable("a.test"), [1, 2]);

    let stop = CancellationToken::new();
    let prober = world.set.run(stop.clone());
    tokio::pin!(prober);
    assert!(futures::poll!(&mut prober).is_pending());
    assert_eq!(world.usable("a.test"), [2]);
    stop.cancel();
    prober.await;
    assert_eq!(world.usable("a.test"), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_looped_upstream_is_left_out_for_its_zone_even_when_all_others_are_down() {
    let world = World::watched([good(), Answer::failure()]);
    world.until(&[Healthy, Unhealthy]).await;
    assert!(world.set.mark_looped(1, &name(".")));
    assert!(world.set.clear_looped(1, &name("cluster.local")));
    world.until(&[Looped, Unhealthy]).await;
    assert_eq!(world.usable("a.test"), [2]);
    assert_eq!(world.usable("a.cluster.local"), [1]);
    world.set.mark_looped(2, &name("test"));
    assert_eq!(world.usable("a.test"), [0; 0]);
    assert_eq!(world.set.status()[0].looped_zones, [Name::root()]);
    world.set.clear_looped(1, &name("."));
    world.until(&[Healthy, Unhealthy]).await;
    assert_eq!(world.usable("a.test"), [1]);
    assert!(!world.set.mark_looped(99, &name("test")));
}

#[tokio::test(start_paused = true)]
async fn a_new_set_is_probed_at_once_and_the_old_one_no_more() {
    let world = World::watched([Answer::silence()]);
    world.until(&[Unhealthy]).await;
    let old = Arc::clone(&world.set.members()[0]);
    let epoch = world.set.epoch();
    let next = Arc::new(ScriptedUpstream::new("10.0.0.9").otherwise(good()));

    world
        .set
        .replace(vec![Arc::clone(&next) as Arc<dyn Upstream>]);

    assert_ne!(world.set.epoch(), epoch);
    world.until(&[Healthy]).await;
    let probes = world.upstreams[0].asked().len();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.upstreams[0].asked().len(), probes);
    // What the old one still has to say is about nobody in the set.
    old.tell(Event::Looped(name("test")));
    let status = world.set.watch().borrow().clone();
    assert_eq!((status.len(), status[0].id), (1, 2));
    assert_eq!(status[0].spec.to_string(), "10.0.0.9");
}

#[tokio::test(start_paused = true)]
async fn the_watch_tells_of_changes_and_not_of_every_failure() {
    let world = World::watched([Answer::failure(), good()]);
    let mut watch = world.set.watch();
    world.until(&[Unhealthy, Healthy]).await;
    watch.mark_unchanged();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!watch.has_changed().unwrap());
    let down = &world.set.status()[0];
    assert!(down.fails > 100 && down.last_ok.is_none());
    assert_eq!(
        down.last_error.as_deref(),
        Some("cannot exchange packets with the upstream: connection refused")
    );
}

#[tokio::test(start_paused = true)]
async fn probes_of_many_upstreams_are_bounded() {
    let world = World::watched((0..100).map(|_| Answer::silence()));
    for _ in 0..100 {
        tokio::time::sleep(ms(50)).await;
        let under_way: usize = world.upstreams.iter().map(|u| u.in_flight()).sum();
        assert!(under_way <= 64, "{under_way}");
    }
    assert!(world.upstreams.iter().all(|u| !u.asked().is_empty()));
}
