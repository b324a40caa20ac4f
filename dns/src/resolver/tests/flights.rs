use futures::future::join_all;

use super::*;

#[tokio::test(start_paused = true)]
async fn p10_a_thousand_identical_misses_are_one_fan_out() {
    let world = World::new([upstream().with(
        SERVICE,
        RecordType::A,
        Answer::address(SERVICE, v4(1)).after(ms(20)),
    )]);
    let replies = join_all((0..1000).map(|_| world.ask("authors", RecordType::A))).await;
    assert!(
        replies
            .iter()
            .all(|reply| shown(reply) == ["authors A 10.96.0.1"])
    );
    assert_eq!(world.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn p10_a_thousand_misses_of_a_failing_name_are_one_fan_out_and_one_deadline() {
    let world = World::new([upstream().otherwise(Answer::silence())]);
    let begun = Instant::now();
    let replies = join_all((0..1000).map(|_| world.ask("authors", RecordType::A))).await;
    assert!(
        replies
            .iter()
            .all(|reply| reply.code == ResponseCode::SERVFAIL)
    );
    assert_eq!(world.asked().len(), 3);
    assert!(begun.elapsed() <= ms(2001));
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_not_kept_reach_everyone_who_waits() {
    for answer in [
        Answer::records([Record::address(SERVICE, v4(1)).ttl(0)]),
        Answer::code(ResponseCode::NXDOMAIN),
    ] {
        let world = World::new([upstream().with(SERVICE, RecordType::A, answer.after(ms(10)))]);
        let replies = join_all((0..100).map(|_| world.ask(SERVICE, RecordType::A))).await;
        assert!(replies.windows(2).all(|pair| pair[0].code == pair[1].code));
        assert_eq!(world.asked().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn p10_a_leader_that_goes_away_strands_none_of_a_thousand() {
    for silent in [false, true] {
        let answer = if silent {
            Answer::silence()
        } else {
            Answer::address(SERVICE, v4(1)).after(ms(50))
        };
        let world = World::new([upstream().with(SERVICE, RecordType::A, answer)]);
        let leader = tokio::time::timeout(ms(10), world.ask(SERVICE, RecordType::A));
        let follower = async {
            tokio::time::sleep(ms(5)).await;
            join_all((0..999).map(|_| world.ask(SERVICE, RecordType::A))).await
        };
        let begun = Instant::now();
        let (leader, followers) = tokio::join!(leader, follower);
        assert!(leader.is_err());
        let expected = if silent {
            ResponseCode::SERVFAIL
        } else {
            ResponseCode::NOERROR
        };
        assert!(followers.iter().all(|reply| reply.code == expected));
        assert_eq!(world.asked().len(), 1);
        assert!(begun.elapsed() <= ms(2001));
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_askers_flags_and_case_do_not_shape_what_others_get() {
    let world = World::new([upstream().with(
        SERVICE,
        RecordType::A,
        Answer::address(SERVICE, v4(1)).after(ms(10)),
    )]);
    let plain = QueryOptions {
        edns: false,
        ..QueryOptions::default()
    };
    let first = encode_query(1, &name("AUTHORS"), RecordType::A, QueryOptions::default());
    let second = encode_query(2, &name("authors"), RecordType::A, plain);
    let view = pod();
    let (first, second) = tokio::join!(world.raw(&first, &view), world.raw(&second, &view));
    let (first, second) = (answers(&first).unwrap(), answers(&second).unwrap());
    assert_eq!((first.id, second.id), (1, 2));
    assert!(first.edns.is_some() && second.edns.is_none());
    assert_eq!(
        (shown(&first), shown(&second)),
        (
            vec!["AUTHORS A 10.96.0.1".into()],
            vec!["authors A 10.96.0.1".into()]
        )
    );
    assert_eq!(world.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn two_views_get_their_own_short_names_and_share_an_upstream_query() {
    let of = |namespace: &str| format!("redis.{namespace}.svc.cluster.local");
    let answer = |namespace, last| Answer::address(&of(namespace), v4(last)).after(ms(10));
    let world = World::new([upstream()
        .with(&of("default"), RecordType::A, answer("default", 1))
        .with(&of("shop"), RecordType::A, answer("shop", 2))
        .otherwise(Answer::nxdomain(".").after(ms(10)))]);
    let (first, second) = (session("default", 2), session("shop", 3));
    let (first, second) = tokio::join!(
        world.ask_in(&first, "redis", RecordType::A),
        world.ask_in(&second, "redis", RecordType::A)
    );
    assert_eq!(
        (shown(&first), shown(&second)),
        (
            vec!["redis A 10.96.0.1".into()],
            vec!["redis A 10.96.0.2".into()]
        )
    );
    let shared = world
        .asked()
        .iter()
        .filter(|asked| *asked == "redis.cluster.local")
        .count();
    assert_eq!(shared, 1, "{:?}", world.asked());
}

#[tokio::test(start_paused = true)]
async fn resolutions_over_the_limit_are_shed_at_once_and_not_remembered() {
    let script = upstream().otherwise(Answer::silence());
    let world = World::with([script], Table::default(), |config| {
        config.in_flight_limit = 2;
    });
    let names: Vec<String> = (0..3)
        .map(|index| format!("s{index}.default.svc.cluster.local"))
        .collect();
    let occupying = join_all(
        names[..2]
            .iter()
            .map(|asked| world.ask(asked, RecordType::A)),
    );
    let shed = async {
        tokio::time::sleep(ms(1)).await;
        let begun = Instant::now();
        assert_eq!(
            world.ask(&names[2], RecordType::A).await.code,
            ResponseCode::SERVFAIL
        );
        assert_eq!(begun.elapsed(), Duration::ZERO);
    };
    tokio::join!(occupying, shed);
    world.upstreams[0].set_otherwise(Answer::nxdomain("."));
    assert_eq!(
        world.ask(&names[2], RecordType::A).await.code,
        ResponseCode::NXDOMAIN
    );
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_goes_ends_its_tasks() {
    let world = World::new([upstream().otherwise(Answer::silence())]);
    let _ = tokio::time::timeout(ms(5), world.ask("authors", RecordType::A)).await;
    assert_eq!(world.upstreams[0].in_flight(), 3);
    drop(world.resolver);
    tokio::time::sleep(ms(1)).await;
    assert_eq!(world.upstreams[0].in_flight(), 0);
}
