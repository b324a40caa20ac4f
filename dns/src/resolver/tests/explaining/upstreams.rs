//! What a trace tells of upstreams that are dead, silent, wrong or lead back.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_dead_upstream_is_told_with_the_time_it_cost() {
    let dead = ScriptedUpstream::new("10.96.0.11").otherwise(Answer::silence());
    let world = World::new([upstream(), dead]);

    let story = world.explain(SERVICE, RecordType::A).await;

    assert_eq!(
        story[5..],
        [
            format!("0 upstream {SERVICE} @10.96.0.10 0 ms: NXDOMAIN, for 30 s"),
            "100 settle: a negative has waited long enough for silent upstreams".to_owned(),
            format!("100 upstream {SERVICE} @10.96.0.11 100 ms: cancelled: no longer needed"),
            format!("100 settle {SERVICE}: does not exist"),
            "100 settle: none of them exists".to_owned(),
            "100 store: kept for 30 s".to_owned(),
            "100 answer: NXDOMAIN, no records".to_owned(),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn upstreams_that_say_nothing_until_the_end_are_told_as_silent() {
    let world = World::new([upstream().otherwise(Answer::silence())]);

    let story = world.explain(SERVICE, RecordType::A).await;

    must_tell(
        &story,
        &format!(
            "settle {SERVICE}: failed: in the cluster domain no later one may stand in for it"
        ),
    );
    must_tell(&story, "store: the failure is remembered for 1 s");
    assert!(
        story
            .iter()
            .any(|line| line.contains("@10.96.0.10 2000 ms: no reply before the")),
        "{story:#?}"
    );
}

#[tokio::test(start_paused = true)]
async fn errors_of_upstreams_are_told_in_words() {
    let refused =
        ScriptedUpstream::new("10.96.0.11").otherwise(Answer::code(ResponseCode::REFUSED));
    let closed = ScriptedUpstream::new("10.96.0.12").otherwise(Answer::failure());
    let world = World::new([
        at(SERVICE, Answer::address(SERVICE, v4(1)).after(ms(10))),
        refused,
        closed,
    ]);

    let story = world.explain(SERVICE, RecordType::A).await;

    must_tell(
        &story,
        &format!("upstream {SERVICE} @10.96.0.11 0 ms: REFUSED, of no use"),
    );
    must_tell(
        &story,
        &format!(
            "upstream {SERVICE} @10.96.0.12 0 ms: \
             cannot exchange packets with the upstream: connection refused"
        ),
    );
    must_tell(
        &story,
        &format!("upstream {SERVICE} @10.96.0.10 10 ms: 1 record"),
    );
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_leads_back_is_told_as_not_asked_once() {
    let other = ScriptedUpstream::new("10.96.0.11").otherwise(Answer::nxdomain("."));
    let world = World::new([upstream(), other]);
    let looped = world.resolver.upstreams().status()[0].id;
    assert!(
        world
            .resolver
            .upstreams()
            .mark_looped(looped, &Name::root())
    );

    let story = world.explain("authors", RecordType::A).await;

    let told = |line: &&String| line.contains("@10.96.0.10");
    let about_it: Vec<_> = story.iter().filter(told).collect();
    assert_eq!(
        about_it,
        ["0 upstream @10.96.0.10: not asked: it leads back here"]
    );
    must_tell(&story, "settle authors: does not exist");
}
