use super::*;

fn addresses(last: u8) -> Local {
    Local::Addresses(vec![v4(last)])
}

fn table() -> Table {
    Table::default()
        .with(SERVICE, RecordType::A, addresses(1))
        .with(SERVICE, RecordType::AAAA, Local::NoData)
        .with(
            "gone.default.svc.cluster.local",
            RecordType::A,
            Local::NxDomain,
        )
        .with(
            "docs.default.svc.cluster.local",
            RecordType::A,
            Local::Alias(name("Docs.Example.net")),
        )
        .with(
            "self.default.svc.cluster.local",
            RecordType::A,
            Local::Alias(name(SERVICE)),
        )
        .with(
            "one.default.svc.cluster.local",
            RecordType::A,
            Local::Alias(name("two.default.svc.cluster.local")),
        )
        .with(
            "two.default.svc.cluster.local",
            RecordType::A,
            Local::Alias(name("ONE.default.svc.cluster.local")),
        )
        .with(
            "1.0.96.10.in-addr.arpa",
            RecordType::PTR,
            Local::Pointer(vec![name(SERVICE)]),
        )
}

fn world() -> World {
    let docs = Answer::records([Record::address("docs.example.net", v4(80)).ttl(60)]);
    World::with(
        [upstream().with("docs.example.net", RecordType::A, docs)],
        table(),
        |_| {},
    )
}

#[tokio::test(start_paused = true)]
async fn a_service_of_ours_is_answered_without_asking_any_upstream() {
    let world = world();
    for asked in ["Authors", SERVICE] {
        let reply = world.ask(asked, RecordType::A).await;
        assert_eq!(shown(&reply), [format!("{asked} A 10.96.0.1")]);
        assert_eq!(reply.answers[0].ttl, 5);
        assert!(reply.flags.authoritative);
    }
    assert!(world.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_absent_family_of_a_service_of_ours_is_nodata() {
    let world = world();
    let reply = world.ask("authors", RecordType::AAAA).await;
    assert_eq!(
        (reply.code, reply.answers.len()),
        (ResponseCode::NOERROR, 0)
    );
    assert_eq!(
        (
            reply.authority[0].owner.to_string().as_str(),
            reply.authority[0].ttl
        ),
        ("authors", 5)
    );
    assert!(world.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_verdict_of_another_family_is_nodata() {
    let table = Table::default().with(SERVICE, RecordType::AAAA, addresses(1));
    let world = World::with([upstream()], table, |_| {});
    let reply = world.ask(SERVICE, RecordType::AAAA).await;
    assert_eq!(
        (reply.code, reply.answers.len()),
        (ResponseCode::NOERROR, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_deleted_service_of_ours_is_nxdomain_at_its_rank() {
    let world = world();
    assert_eq!(
        world
            .ask("gone.default.svc.cluster.local", RecordType::A)
            .await
            .code,
        ResponseCode::NXDOMAIN
    );
    assert!(world.asked().is_empty());
    world.upstreams[0].set(
        "gone.cluster.local",
        RecordType::A,
        Answer::address("gone.cluster.local", v4(4)),
    );
    assert_eq!(
        shown(&world.ask("gone", RecordType::A).await),
        ["gone A 10.96.0.4"]
    );
    assert!(
        !world
            .asked()
            .contains(&"gone.default.svc.cluster.local".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn an_alias_of_ours_is_a_cname_with_its_target_resolved_by_the_upstreams() {
    let world = world();
    let reply = world.ask("docs", RecordType::A).await;
    assert_eq!(
        shown(&reply),
        [
            "docs CNAME Docs.Example.net",
            "docs.example.net A 10.96.0.80"
        ]
    );
    assert!(!reply.flags.authoritative);
    assert_eq!(
        world
            .asked()
            .iter()
            .filter(|asked| *asked == "docs.example.net")
            .count(),
        1
    );
    assert!(
        !world
            .asked()
            .iter()
            .any(|asked| asked.starts_with("docs.example.net.")),
        "the target is absolute"
    );
}

#[tokio::test(start_paused = true)]
async fn an_alias_to_a_service_of_ours_stays_ours() {
    let world = world();
    let reply = world
        .ask("self.default.svc.cluster.local", RecordType::A)
        .await;
    let expected = [
        format!("self.default.svc.cluster.local CNAME {SERVICE}"),
        format!("{SERVICE} A 10.96.0.1"),
    ];
    assert_eq!(shown(&reply), expected);
    assert!(reply.flags.authoritative && world.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_circle_of_aliases_is_a_failure_that_is_not_kept() {
    let world = world();
    assert_eq!(
        world
            .ask("one.default.svc.cluster.local", RecordType::A)
            .await
            .code,
        ResponseCode::SERVFAIL
    );
    let key = (name("two.default.svc.cluster.local"), RecordType::A);
    world.local.0.lock().insert(key, addresses(2));
    assert_eq!(
        world
            .ask("one.default.svc.cluster.local", RecordType::A)
            .await
            .code,
        ResponseCode::NOERROR
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_row_of_aliases_is_a_failure() {
    let row = |index: usize| format!("r{index}.default.svc.cluster.local");
    let table = (0..12).fold(Table::default(), |table, index| {
        table.with(
            &row(index),
            RecordType::A,
            Local::Alias(name(&row(index + 1))),
        )
    });
    let world = World::with(
        [upstream()],
        table.with(&row(12), RecordType::A, addresses(1)),
        |_| {},
    );
    assert_eq!(
        world.ask(&row(0), RecordType::A).await.code,
        ResponseCode::SERVFAIL
    );
    let reply = world.ask(&row(5), RecordType::A).await;
    assert_eq!(
        (reply.code, reply.answers.len()),
        (ResponseCode::NOERROR, 8)
    );
}

#[tokio::test(start_paused = true)]
async fn an_alias_to_nothing_is_nxdomain_with_its_cname() {
    let table = Table::default().with(
        SERVICE,
        RecordType::A,
        Local::Alias(name("nowhere.example")),
    );
    let world = World::with(
        [upstream().otherwise(Answer::nxdomain("example"))],
        table,
        |_| {},
    );
    let reply = world.ask(SERVICE, RecordType::A).await;
    assert_eq!(
        (reply.code, shown(&reply)),
        (
            ResponseCode::NXDOMAIN,
            vec![format!("{SERVICE} CNAME nowhere.example")]
        )
    );
    assert_eq!(reply.authority[0].owner, name("example"));
}

#[tokio::test(start_paused = true)]
async fn pointers_of_ours_name_the_service() {
    let world = world();
    let reply = world.ask("1.0.96.10.in-addr.arpa", RecordType::PTR).await;
    assert_eq!(
        shown(&reply),
        [format!("1.0.96.10.in-addr.arpa PTR {SERVICE}")]
    );
    assert!(world.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn types_that_are_not_ours_go_upstream() {
    let world = world();
    world.ask(SERVICE, RecordType::SRV).await;
    assert_eq!(world.asked(), [SERVICE]);
}

#[tokio::test(start_paused = true)]
async fn an_event_and_a_purge_show_at_once() {
    let world = world();
    world.ask("authors", RecordType::A).await;
    world
        .local
        .0
        .lock()
        .insert((name(SERVICE), RecordType::A), addresses(9));
    world.resolver.purge(&name(SERVICE));
    assert_eq!(
        shown(&world.ask("authors", RecordType::A).await),
        ["authors A 10.96.0.9"]
    );
}

#[tokio::test(start_paused = true)]
async fn no_recursion_desired_is_answered_from_our_records_or_the_cache_only() {
    let world = world();
    let ask = async |text: &str| {
        let mut packet = encode_query(5, &name(text), RecordType::A, QueryOptions::default());
        packet[2] &= !0x01;
        answers(&world.raw(&packet, &pod()).await).unwrap()
    };
    assert_eq!(shown(&ask("authors").await), ["authors A 10.96.0.1"]);
    let refused = ask("docs.example.net").await;
    assert_eq!(
        (refused.code, refused.flags.recursion_desired),
        (ResponseCode::REFUSED, false)
    );
    assert!(world.asked().is_empty());
    world.ask("docs.example.net", RecordType::A).await;
    assert_eq!(ask("docs.example.net").await.code, ResponseCode::NOERROR);
}
