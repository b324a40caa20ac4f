//! What a trace keeps to itself: names of namespaces that are not granted.

use super::*;

#[tokio::test(start_paused = true)]
async fn r2_a_namespace_that_is_not_granted_is_told_as_refused_and_nothing_else() {
    let world = World::new([at(
        "authors.shop.svc.cluster.local",
        Answer::address("x", v4(2)),
    )]);

    let (reply, story) = world
        .explain_in(
            &session("default", 7),
            "authors.shop.svc.cluster.local",
            RecordType::A,
            CacheUse::Normal,
        )
        .await;

    assert_eq!(reply.code, ResponseCode::REFUSED);
    assert_eq!(
        story[1..],
        [
            "0 rule authors.shop.svc.cluster.local: refused: in a namespace that is not granted",
            "0 answer: REFUSED, no records",
        ]
    );
    assert!(world.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn r2_an_alias_into_a_namespace_that_is_not_granted_is_not_told() {
    let (alias, secret) = (
        "docs.default.svc.cluster.local",
        "secret.shop.svc.cluster.local",
    );
    let table = Table::default().with(alias, RecordType::A, Local::Alias(name(secret)));
    let secret_address = at(secret, Answer::address(secret, v4(9)));
    let world = World::with([secret_address], table, |_| {});
    let view = session("default", 7);

    for cache_use in [CacheUse::Normal, CacheUse::Normal, CacheUse::Bypass] {
        let (reply, story) = world
            .explain_in(&view, "docs", RecordType::A, cache_use)
            .await;

        assert_eq!(reply.code, ResponseCode::REFUSED);
        must_tell(
            &story,
            "access: the answer leads into a namespace that is not granted: refused",
        );
        for told in [
            "secret",
            "10.96.0.9",
            "upstream",
            "records",
            "cache",
            "settle",
            "store",
        ] {
            must_not_tell(&story[..story.len() - 2], told);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r2_names_of_a_losing_candidate_that_are_not_granted_are_not_told() {
    let alias = "docs.default.svc.cluster.local";
    let secret = "secret.shop.svc.cluster.local";
    let winner = "docs.cluster.local";
    let table = Table::default().with(alias, RecordType::A, Local::Alias(name(secret)));
    let world = World::with([at(winner, Answer::address(winner, v4(4)))], table, |_| {});

    let (reply, story) = world
        .explain_in(
            &session("default", 7),
            "docs",
            RecordType::A,
            CacheUse::Normal,
        )
        .await;

    assert_eq!(shown(&reply), ["docs A 10.96.0.4"]);
    must_tell(&story, &format!("settle {alias}: does not exist"));
    must_not_tell(&story, "secret");
}

#[tokio::test(start_paused = true)]
async fn a_session_is_told_which_names_are_not_tried_for_it() {
    let world = World::new([upstream()]);

    let (_, story) = world
        .explain_in(
            &session("default", 7),
            "authors.shop",
            RecordType::A,
            CacheUse::Normal,
        )
        .await;

    must_tell(
        &story,
        "skipped authors.shop.svc.cluster.local: in a namespace that is not granted",
    );
    must_tell(
        &story,
        "skipped authors.shop: bare names outside the cluster are not sent from here",
    );
}
