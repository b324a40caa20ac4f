//! What a trace tells of the cache and of those who resolve the same.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_cache_hit_is_told_with_its_age_and_what_is_left() {
    let world = World::new([at(SERVICE, Answer::address(SERVICE, v4(1)))]);
    world.ask("authors", RecordType::A).await;
    tokio::time::advance(ms(12_000)).await;

    let story = world.explain("authors", RecordType::A).await;

    must_tell(&story, "cache: hit: 12 s old, kept 18 s more");
    must_tell(&story, "answer: NOERROR: authors 18 A 10.96.0.1");
    must_not_tell(&story, "upstream");
    assert_eq!(world.asked(), [SERVICE]);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_remembered_is_told_with_its_age() {
    let world = World::new([at(SERVICE, Answer::code(ResponseCode::SERVFAIL))]);
    world.ask(SERVICE, RecordType::A).await;
    tokio::time::advance(ms(400)).await;

    let story = world.explain(SERVICE, RecordType::A).await;

    must_tell(&story, "cache: a failure of 400 ms ago is remembered");
    must_tell(&story, "answer: SERVFAIL, no records");
    assert_eq!(world.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stale_answer_is_told_with_how_long_its_time_has_been_over() {
    let world = World::with(
        [at(SERVICE, Answer::address(SERVICE, v4(1)))],
        Table::default(),
        |config| {
            config.stale = Some(StaleSettings {
                longest: ms(600_000),
            });
        },
    );
    world.ask(SERVICE, RecordType::A).await;
    world.upstreams[0].set(SERVICE, RecordType::A, Answer::failure());
    tokio::time::advance(ms(90_000)).await;

    for asked in ["led", "kept"] {
        let story = world.explain(SERVICE, RecordType::A).await;

        must_tell(
            &story,
            "cache: stale: its time was over 60 s ago, and no upstream answers",
        );
        let answer = story.last().unwrap();
        assert!(answer.contains("A 10.96.0.1"), "{asked}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_query_that_waits_for_anothers_resolution_says_so() {
    let world = World::new([at(SERVICE, Answer::address(SERVICE, v4(1)).after(ms(50)))]);

    let view = pod();
    let (first, second) = tokio::join!(
        world.ask_in(&view, SERVICE, RecordType::A),
        world.explain_in(&view, SERVICE, RecordType::A, CacheUse::Normal)
    );

    assert_eq!(shown(&first), shown(&second.0));
    must_tell(&second.1, "cache: miss");
    must_tell(
        &second.1,
        "flight: joined: another query was resolving the same; its steps are not known",
    );
    assert_eq!(world.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fresh_answer_leaves_the_cache_as_it_is() {
    let world = World::new([at(SERVICE, Answer::address(SERVICE, v4(1)))]);
    world.ask(SERVICE, RecordType::A).await;
    world.upstreams[0].set(SERVICE, RecordType::A, Answer::address(SERVICE, v4(2)));

    let (fresh, story) = world
        .explain_in(&pod(), SERVICE, RecordType::A, CacheUse::Bypass)
        .await;

    assert_eq!(shown(&fresh), [format!("{SERVICE} A 10.96.0.2")]);
    must_tell(&story, "cache: not asked: a fresh answer is wanted");
    must_tell(&story, "store: not kept: the cache was bypassed");
    assert_eq!(
        shown(&world.ask(SERVICE, RecordType::A).await),
        [format!("{SERVICE} A 10.96.0.1")]
    );
    assert_eq!(world.asked().len(), 2);
}
