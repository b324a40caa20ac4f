use super::*;

#[tokio::test(start_paused = true)]
async fn names_of_namespaces_not_granted_are_refused_before_the_cache_and_never_sent() {
    let hidden = "db.prod.svc.cluster.local";
    let world =
        World::new([upstream().with(hidden, RecordType::A, Answer::address(hidden, v4(8)))]);
    assert_eq!(
        world.ask(hidden, RecordType::A).await.code,
        ResponseCode::NOERROR,
        "plain DNS sees all"
    );
    let before = world.asked().len();
    for asked in [
        hidden,
        "DB.Prod.svc.cluster.local",
        "_x._tcp.db.prod.svc.cluster.local",
        "10-0-0-1.prod.pod.cluster.local",
    ] {
        let reply = world
            .ask_in(&session("shop", 2), asked, RecordType::A)
            .await;
        assert_eq!(
            (reply.code, reply.answers.len()),
            (ResponseCode::REFUSED, 0),
            "{asked}"
        );
    }
    assert_eq!(world.asked().len(), before);
    assert_eq!(
        world.ask(hidden, RecordType::A).await.code,
        ResponseCode::NOERROR,
        "the refusal was not stored"
    );
}

#[tokio::test(start_paused = true)]
async fn candidates_in_namespaces_not_granted_are_left_out() {
    let hidden = "db.prod.svc.cluster.local";
    let world =
        World::new([upstream().with(hidden, RecordType::A, Answer::address(hidden, v4(8)))]);
    assert_eq!(
        world
            .ask_in(&session("shop", 2), "db.prod", RecordType::A)
            .await
            .code,
        ResponseCode::NXDOMAIN
    );
    assert!(
        !world.asked().contains(&hidden.to_owned()),
        "{:?}",
        world.asked()
    );
}

#[tokio::test(start_paused = true)]
async fn a_pointer_into_a_namespace_not_granted_is_refused_also_from_the_cache() {
    let reverse = "8.0.96.10.in-addr.arpa";
    let pointer = Record::new(
        reverse,
        RecordType::PTR,
        name("db.prod.svc.cluster.local").as_wire(),
    );
    let world = World::new([upstream().with(reverse, RecordType::PTR, Answer::records([pointer]))]);
    let view = session("shop", 2);
    assert_eq!(
        world.ask_in(&view, reverse, RecordType::PTR).await.code,
        ResponseCode::REFUSED
    );
    assert_eq!(
        world.ask(reverse, RecordType::PTR).await.code,
        ResponseCode::NOERROR
    );
    assert_eq!(
        world.ask_in(&view, reverse, RecordType::PTR).await.code,
        ResponseCode::REFUSED
    );
    assert_eq!(
        world
            .ask_in(&session("prod", 3), reverse, RecordType::PTR)
            .await
            .code,
        ResponseCode::NOERROR
    );
}

#[tokio::test(start_paused = true)]
async fn an_alias_into_a_namespace_not_granted_is_refused() {
    let table = Table::default()
        .with(
            "ext.shop.svc.cluster.local",
            RecordType::A,
            Local::Alias(name("db.prod.svc.cluster.local")),
        )
        .with(
            "db.prod.svc.cluster.local",
            RecordType::A,
            Local::Addresses(vec![v4(8)]),
        );
    let world = World::with([upstream()], table, |_| {});
    assert_eq!(
        world
            .ask_in(&session("shop", 2), "ext", RecordType::A)
            .await
            .code,
        ResponseCode::REFUSED
    );
}

#[tokio::test(start_paused = true)]
async fn bare_names_outside_the_cluster_domain_never_leave_a_session() {
    let world = World::new([upstream()]);
    for asked in [
        "web",
        "authors.shop",
        "www.google.com",
        "a.b.c.d.e.f.example",
    ] {
        assert_eq!(
            world
                .ask_in(&session("shop", 2), asked, RecordType::A)
                .await
                .code,
            ResponseCode::NXDOMAIN
        );
    }
    assert!(
        world
            .asked()
            .iter()
            .all(|asked| asked.ends_with(".cluster.local")),
        "{:?}",
        world.asked()
    );
}

#[tokio::test(start_paused = true)]
async fn names_under_the_sessions_own_suffixes_are_sent() {
    let view = pod()
        .session(&["shop".to_owned()], &[name("corp.example")], 2)
        .unwrap();
    let asked = "db.corp.example";
    let world = World::new([upstream().with(asked, RecordType::A, Answer::address(asked, v4(3)))]);
    assert_eq!(
        shown(&world.ask_in(&Arc::new(view), asked, RecordType::A).await),
        ["db.corp.example A 10.96.0.3"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_view_without_any_candidate_is_refused() {
    let mut view = View::clone(&session("shop", 2));
    view.search.clear();
    let world = World::new([upstream()]);
    assert_eq!(
        world
            .ask_in(&Arc::new(view), "web", RecordType::A)
            .await
            .code,
        ResponseCode::REFUSED
    );
    assert!(world.asked().is_empty());
}
