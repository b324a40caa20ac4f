use super::*;

#[tokio::test(start_paused = true)]
async fn a_short_name_is_answered_under_its_own_name_in_the_askers_case() {
    let world =
        World::new([upstream().with(SERVICE, RecordType::A, Answer::address(SERVICE, v4(1)))]);
    let reply = world.ask("AuThOrs", RecordType::A).await;
    assert_eq!(shown(&reply), ["AuThOrs A 10.96.0.1"]);
    assert_eq!(reply.code, ResponseCode::NOERROR);
    assert!(
        reply.flags.recursion_available
            && reply.flags.recursion_desired
            && !reply.flags.authoritative
    );
}

#[tokio::test(start_paused = true)]
async fn a_cname_chain_keeps_its_owners_and_only_the_head_is_renamed() {
    let ext = "ext.default.svc.cluster.local";
    let chain = [
        Record::cname(ext, "Real.Example"),
        Record::address("Real.Example", v4(9)),
    ];
    let world = World::new([upstream().with(ext, RecordType::A, Answer::records(chain))]);
    assert_eq!(
        shown(&world.ask("ext", RecordType::A).await),
        ["ext CNAME Real.Example", "Real.Example A 10.96.0.9"]
    );
    assert_eq!(
        shown(&world.ask("EXT", RecordType::A).await),
        ["EXT CNAME Real.Example", "Real.Example A 10.96.0.9"]
    );
}

#[tokio::test(start_paused = true)]
async fn an_absent_type_of_an_existing_name_is_nodata_whatever_the_timing() {
    for (right, others) in [(50, 0), (0, 50)] {
        let world = World::new([upstream()
            .with(
                SERVICE,
                RecordType::AAAA,
                Answer::nodata("cluster.local").after(ms(right)),
            )
            .otherwise(Answer::nxdomain(".").after(ms(others)))]);
        for asked in ["authors", SERVICE] {
            let reply = world.ask(asked, RecordType::AAAA).await;
            assert_eq!(
                (reply.code, reply.answers.len()),
                (ResponseCode::NOERROR, 0),
                "{asked}"
            );
            assert!(reply.flags.recursion_available);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_expanded_negative_carries_an_soa_of_the_asked_name() {
    let world = World::new([upstream()]);
    let reply = world.ask("nope", RecordType::A).await;
    assert_eq!(reply.code, ResponseCode::NXDOMAIN);
    assert_eq!(reply.authority.len(), 1);
    assert_eq!(
        (
            reply.authority[0].owner.to_string().as_str(),
            reply.authority[0].ttl
        ),
        ("nope", 30)
    );
    assert!(reply.flags.recursion_available && reply.flags.recursion_desired);
}

#[tokio::test(start_paused = true)]
async fn names_of_the_cluster_and_reverse_names_cost_one_query_per_upstream() {
    for asked in [SERVICE, "1.0.96.10.in-addr.arpa"] {
        let world = World::new([upstream()]);
        world.ask(asked, RecordType::PTR).await;
        assert_eq!(world.asked(), [asked]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_with_enough_dots_is_expanded_only_after_nxdomain() {
    let long = "a.b.c.d.e.example";
    let world = World::new([upstream().with(long, RecordType::A, Answer::address(long, v4(3)))]);
    assert_eq!(
        shown(&world.ask(long, RecordType::A).await),
        ["a.b.c.d.e.example A 10.96.0.3"]
    );
    assert_eq!(world.asked(), [long]);
    let missing = World::new([upstream()]);
    assert_eq!(
        missing.ask(long, RecordType::A).await.code,
        ResponseCode::NXDOMAIN
    );
    assert_eq!(missing.asked().len(), 4);
    assert_eq!(missing.asked()[0], long);
}

#[tokio::test(start_paused = true)]
async fn a_bare_single_label_is_sent_only_after_every_candidate_was_negative() {
    let found = World::new([upstream().with(
        "web.default.svc.cluster.local",
        RecordType::A,
        Answer::address("web.default.svc.cluster.local", v4(1)),
    )]);
    found.ask("web", RecordType::A).await;
    assert!(!found.asked().contains(&"web".to_owned()));
    let missing = World::new([upstream()]);
    missing.ask("web", RecordType::A).await;
    assert_eq!(missing.asked().last().unwrap(), "web");
    let dotted = World::new([upstream().otherwise(Answer::silence())]);
    dotted.ask("authors.default", RecordType::A).await;
    assert!(!dotted.asked().contains(&"authors.default".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_public_name_is_raced_and_costs_one_round_trip() {
    let public = "www.google.com";
    let world = World::new([upstream()
        .with(
            public,
            RecordType::A,
            Answer::address(public, v4(7)).after(ms(20)),
        )
        .otherwise(Answer::nxdomain(".").after(ms(5)))]);
    let begun = Instant::now();
    assert_eq!(
        shown(&world.ask(public, RecordType::A).await),
        ["www.google.com A 10.96.0.7"]
    );
    assert_eq!(begun.elapsed(), ms(20));
}

#[tokio::test(start_paused = true)]
async fn a_wildcard_that_answers_first_never_wins_over_the_service() {
    let wildcard = "authors.cluster.local";
    for _ in 0..1000 {
        let delay = |range| Duration::from_micros(rand::random_range(range));
        let world = World::new([upstream()
            .with(
                SERVICE,
                RecordType::A,
                Answer::address(SERVICE, v4(1)).after(delay(0..90_000)),
            )
            .with(
                wildcard,
                RecordType::A,
                Answer::address(wildcard, v4(66)).after(delay(0..90_000)),
            )
            .otherwise(Answer::nxdomain(".").after(delay(0..90_000)))]);
        assert_eq!(
            shown(&world.ask("authors", RecordType::A).await),
            ["authors A 10.96.0.1"]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn first_order_takes_the_fastest_answer() {
    let wildcard = "authors.cluster.local";
    let scripted = upstream()
        .with(
            SERVICE,
            RecordType::A,
            Answer::address(SERVICE, v4(1)).after(ms(50)),
        )
        .with(wildcard, RecordType::A, Answer::address(wildcard, v4(66)));
    let world = World::with([scripted], Table::default(), |config| {
        config.answer_order = AnswerOrder::First;
    });
    assert_eq!(
        shown(&world.ask("authors", RecordType::A).await),
        ["authors A 10.96.0.66"]
    );
    assert_eq!(world.upstreams[0].in_flight(), 0, "the rest is cancelled");
}

#[tokio::test(start_paused = true)]
async fn what_is_under_way_is_cancelled_when_the_answer_is_settled() {
    let world = World::new([upstream()
        .with(
            SERVICE,
            RecordType::A,
            Answer::address(SERVICE, v4(1)).after(ms(5)),
        )
        .otherwise(Answer::silence())]);
    let begun = Instant::now();
    world.ask("authors", RecordType::A).await;
    assert!(begun.elapsed() <= ms(15));
    assert_eq!(
        (
            world.upstreams[0].in_flight(),
            world.upstreams[0].cancelled()
        ),
        (0, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn one_dead_upstream_does_not_delay_data_and_a_negative_by_little() {
    let dead = || ScriptedUpstream::new("10.96.0.11").otherwise(Answer::silence());
    let alive = upstream().with(
        SERVICE,
        RecordType::A,
        Answer::address(SERVICE, v4(1)).after(ms(4)),
    );
    let world = World::new([alive, dead()]);
    let begun = Instant::now();
    assert_eq!(
        world.ask("authors", RecordType::A).await.code,
        ResponseCode::NOERROR
    );
    assert!(begun.elapsed() <= ms(10), "{:?}", begun.elapsed());
    let begun = Instant::now();
    assert_eq!(
        world.ask("nope", RecordType::A).await.code,
        ResponseCode::NXDOMAIN
    );
    assert!(
        begun.elapsed() <= ms(620),
        "one window for each of two stages: {:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn data_of_the_slower_upstream_beats_the_nxdomain_of_the_faster() {
    let late = ScriptedUpstream::new("10.96.0.11").with(
        SERVICE,
        RecordType::A,
        Answer::address(SERVICE, v4(1)).after(ms(80)),
    );
    let world = World::new([upstream(), late]);
    assert_eq!(
        shown(&world.ask(SERVICE, RecordType::A).await),
        [format!("{SERVICE} A 10.96.0.1")]
    );
}

#[tokio::test(start_paused = true)]
async fn a_failing_candidate_inside_the_cluster_domain_is_servfail_not_nxdomain() {
    for failure in [
        Answer::code(ResponseCode::SERVFAIL),
        Answer::code(ResponseCode::REFUSED),
        Answer::silence(),
        Answer::failure(),
    ] {
        let world = World::new([upstream().with(SERVICE, RecordType::A, failure)]);
        let begun = Instant::now();
        assert_eq!(
            world.ask("authors", RecordType::A).await.code,
            ResponseCode::SERVFAIL
        );
        assert!(begun.elapsed() <= ms(2001));
        world.upstreams[0].set(SERVICE, RecordType::A, Answer::address(SERVICE, v4(1)));
        tokio::time::advance(ms(1000)).await;
        assert_eq!(
            world.ask("authors", RecordType::A).await.code,
            ResponseCode::NOERROR,
            "kept for one second only"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_candidate_outside_the_cluster_domain_is_passed_over_and_nothing_is_kept() {
    let mut view = View::clone(&pod());
    view.search.insert(0, name("ec2.internal"));
    let view = Arc::new(view);
    let world = World::new([upstream()
        .with(
            "authors.ec2.internal",
            RecordType::A,
            Answer::code(ResponseCode::SERVFAIL),
        )
        .with(SERVICE, RecordType::A, Answer::address(SERVICE, v4(1)))]);
    for _ in 0..2 {
        let before = world.asked().len();
        assert_eq!(
            shown(&world.ask_in(&view, "authors", RecordType::A).await),
            ["authors A 10.96.0.1"]
        );
        assert!(world.asked().len() > before);
    }
}

#[tokio::test(start_paused = true)]
async fn no_query_takes_longer_than_the_total() {
    let world = World::with(
        [upstream().otherwise(Answer::silence())],
        Table::default(),
        |config| {
            config.total = Duration::from_secs(60);
        },
    );
    let begun = Instant::now();
    assert_eq!(
        world.ask("authors", RecordType::A).await.code,
        ResponseCode::SERVFAIL
    );
    assert_eq!(begun.elapsed(), LONGEST_TOTAL);
}

#[tokio::test(start_paused = true)]
async fn a_query_costs_at_most_64_upstream_queries() {
    let mut view = View::clone(&pod());
    view.search = (0..30)
        .map(|index| name(&format!("d{index}.cluster.local")))
        .collect();
    let upstreams = (1..=4).map(|last| ScriptedUpstream::new(&format!("10.0.0.{last}")));
    let world = World::new(upstreams);
    assert_eq!(
        world.ask_in(&Arc::new(view), "x", RecordType::A).await.code,
        ResponseCode::NXDOMAIN
    );
    let total: usize = world
        .upstreams
        .iter()
        .map(|upstream| upstream.asked().len())
        .sum();
    assert!(total <= 64, "{total}");
}

#[tokio::test(start_paused = true)]
async fn without_upstreams_every_query_is_a_failure() {
    let world = World::new([]);
    assert_eq!(
        world.ask("authors", RecordType::A).await.code,
        ResponseCode::SERVFAIL
    );
}

#[tokio::test(start_paused = true)]
async fn escaped_dots_and_long_names_survive() {
    let escaped = r"a\.b.default.svc.cluster.local";
    let world =
        World::new([upstream().with(escaped, RecordType::A, Answer::address(escaped, v4(2)))]);
    assert_eq!(
        shown(&world.ask(r"a\.b", RecordType::A).await),
        [r"a\.b A 10.96.0.2"]
    );
    let long = [63, 63, 63, 60].map(|length| "a".repeat(length)).join(".");
    assert_eq!(
        world.ask(&long, RecordType::A).await.code,
        ResponseCode::NXDOMAIN
    );
    assert_eq!(
        world.asked().last(),
        Some(&long),
        "no candidate fits, so the bare name alone was asked"
    );
}
