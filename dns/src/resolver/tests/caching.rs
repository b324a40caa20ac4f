use super::*;
use crate::message::Edns;

fn soa_nxdomain(ttl: u32, minimum: u32) -> Answer {
    Answer::code(ResponseCode::NXDOMAIN).authority([Record::soa(".", ttl, minimum)])
}

fn aged(owner: &str, ttl: u32) -> Answer {
    Answer::records([Record::address(owner, v4(1)).ttl(ttl)])
}

/// Says for how many seconds a second question is answered without asking again, looking at these ages.
async fn kept(script: ScriptedUpstream, asked: &str, ages: &[u64]) -> Vec<bool> {
    let world = World::new([script]);
    world.ask(asked, RecordType::A).await;
    let mut hits = vec![];
    let mut age = 0;
    for at in ages {
        tokio::time::advance(Duration::from_secs(at - age)).await;
        age = *at;
        let before = world.asked().len();
        world.ask(asked, RecordType::A).await;
        hits.push(world.asked().len() == before);
    }
    hits
}

#[tokio::test(start_paused = true)]
async fn data_is_kept_for_its_shortest_ttl_and_shown_ageing() {
    let ext = "ext.default.svc.cluster.local";
    let chain = [
        Record::cname(ext, "real.example").ttl(300),
        Record::address("real.example", v4(9)).ttl(20),
    ];
    let world = World::new([upstream().with(ext, RecordType::A, Answer::records(chain))]);
    let ttls = |reply: &Parsed| {
        reply
            .answers
            .iter()
            .map(|answer| answer.ttl)
            .collect::<Vec<_>>()
    };
    assert_eq!(ttls(&world.ask("ext", RecordType::A).await), [300, 20]);
    tokio::time::advance(Duration::from_secs(19)).await;
    assert_eq!(ttls(&world.ask("ext", RecordType::A).await), [281, 1]);
    let before = world.asked().len();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(ttls(&world.ask("ext", RecordType::A).await), [300, 20]);
    assert!(world.asked().len() > before, "expired is never served");
}

#[tokio::test(start_paused = true)]
async fn data_is_kept_for_half_an_hour_at_most() {
    let script = upstream().with(SERVICE, RecordType::A, aged(SERVICE, 86_400));
    assert_eq!(kept(script, SERVICE, &[1799, 1800]).await, [true, false]);
    let world = World::new([upstream().with(SERVICE, RecordType::A, aged(SERVICE, 86_400))]);
    assert_eq!(world.ask(SERVICE, RecordType::A).await.answers[0].ttl, 1800);
}

#[tokio::test(start_paused = true)]
async fn ttl_zero_and_ttls_with_the_top_bit_are_not_kept() {
    for ttl in [0, 0x8000_0000, u32::MAX] {
        let world = World::new([upstream().with(SERVICE, RecordType::A, aged(SERVICE, ttl))]);
        for queries in [1, 2] {
            assert_eq!(world.ask(SERVICE, RecordType::A).await.answers[0].ttl, 0);
            assert_eq!(world.asked().len(), queries);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_ranked_winner_is_kept_no_longer_than_the_better_ranks_negatives() {
    let winner = "authors.cluster.local";
    let script =
        upstream()
            .otherwise(soa_nxdomain(12, 60))
            .with(winner, RecordType::A, aged(winner, 600));
    assert_eq!(kept(script, "authors", &[11, 12]).await, [true, false]);
    let unnamed = upstream()
        .otherwise(Answer::code(ResponseCode::NXDOMAIN))
        .with(winner, RecordType::A, aged(winner, 600));
    assert_eq!(
        kept(unnamed, "authors", &[4, 5]).await,
        [true, false],
        "no SOA counts five seconds"
    );
}

#[tokio::test(start_paused = true)]
async fn negatives_are_kept_for_the_smaller_of_soa_ttl_and_minimum_up_to_30_seconds() {
    for (ttl, minimum, kept_for) in [(10, 60, 10), (60, 10, 10), (900, 900, 30)] {
        let script = upstream().otherwise(soa_nxdomain(ttl, minimum));
        assert_eq!(
            kept(script, SERVICE, &[kept_for - 1, kept_for]).await,
            [true, false],
            "{ttl} {minimum}"
        );
        let expanded = upstream().otherwise(soa_nxdomain(ttl, minimum));
        assert_eq!(
            kept(expanded, "nope", &[kept_for - 1, kept_for]).await,
            [true, false],
            "{ttl} {minimum}"
        );
    }
    let nodata = Answer::records([]).authority([Record::soa(".", 10, 10)]);
    assert_eq!(
        kept(upstream().otherwise(nodata), SERVICE, &[9, 10]).await,
        [true, false]
    );
}

#[tokio::test(start_paused = true)]
async fn all_nxdomain_is_kept_for_the_shortest_of_the_ranks() {
    let script = upstream().otherwise(soa_nxdomain(25, 25)).with(
        "nope.svc.cluster.local",
        RecordType::A,
        soa_nxdomain(7, 7),
    );
    assert_eq!(kept(script, "nope", &[6, 7]).await, [true, false]);
}

#[tokio::test(start_paused = true)]
async fn negatives_without_soa_are_not_kept() {
    for code in [ResponseCode::NXDOMAIN, ResponseCode::NOERROR] {
        assert_eq!(
            kept(upstream().otherwise(Answer::code(code)), SERVICE, &[0]).await,
            [false]
        );
        assert_eq!(
            kept(upstream().otherwise(Answer::code(code)), "nope", &[0]).await,
            [false]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_remembered_for_one_second_and_never_as_negatives() {
    for code in [
        ResponseCode::SERVFAIL,
        ResponseCode::REFUSED,
        ResponseCode::FORMERR,
        ResponseCode::NOTIMP,
    ] {
        let world = World::new([upstream().otherwise(Answer::code(code))]);
        assert_eq!(
            world.ask(SERVICE, RecordType::A).await.code,
            ResponseCode::SERVFAIL
        );
        assert_eq!(
            world.ask(SERVICE, RecordType::A).await.code,
            ResponseCode::SERVFAIL
        );
        assert_eq!(world.asked().len(), 1);
        tokio::time::advance(ms(1000)).await;
        world.ask(SERVICE, RecordType::A).await;
        assert_eq!(world.asked().len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_truncated_answer_is_never_an_answer() {
    let world =
        World::new([upstream().with(SERVICE, RecordType::A, Answer::records([]).truncated())]);
    assert_eq!(
        world.ask(SERVICE, RecordType::A).await.code,
        ResponseCode::SERVFAIL
    );
}

#[tokio::test(start_paused = true)]
async fn the_key_folds_case_and_the_reply_echoes_the_askers() {
    let world = World::new([upstream().with(SERVICE, RecordType::A, aged(SERVICE, 30))]);
    assert_eq!(
        shown(&world.ask("AUTHORS", RecordType::A).await),
        ["AUTHORS A 10.96.0.1"]
    );
    let before = world.asked().len();
    let reply = world.ask("aUtHoRs", RecordType::A).await;
    assert_eq!(shown(&reply), ["aUtHoRs A 10.96.0.1"]);
    assert_eq!(
        reply.question.unwrap().0.as_wire(),
        name("aUtHoRs").as_wire()
    );
    assert_eq!(world.asked().len(), before, "one resolution");
    assert!(
        world
            .asked()
            .iter()
            .all(|asked| asked.to_lowercase() == *asked)
    );
}

#[tokio::test(start_paused = true)]
async fn do_and_cd_have_answers_of_their_own() {
    let world = World::new([upstream().with(SERVICE, RecordType::A, aged(SERVICE, 30))]);
    for (dnssec_ok, checking_disabled) in
        [(false, false), (true, false), (false, true), (true, true)]
    {
        let options = QueryOptions {
            dnssec_ok,
            checking_disabled,
            ..QueryOptions::default()
        };
        let packet = encode_query(1, &name(SERVICE), RecordType::A, options);
        let reply = answers(&world.raw(&packet, &pod()).await).unwrap();
        assert_eq!(
            reply.edns,
            Some(Edns {
                udp_size: 1232,
                dnssec_ok,
                version: 0
            })
        );
        assert_eq!(reply.flags.checking_disabled, checking_disabled);
        let sent = world.upstreams[0].asked();
        let last = sent.last().unwrap();
        assert_eq!(
            (last.dnssec_ok, last.checking_disabled),
            (dnssec_ok, checking_disabled)
        );
    }
    assert_eq!(world.asked().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn two_views_share_the_answers_of_names_that_are_never_expanded() {
    let world = World::new([upstream().with(SERVICE, RecordType::A, aged(SERVICE, 30))]);
    world.ask(SERVICE, RecordType::A).await;
    assert_eq!(
        world
            .ask_in(&session("default", 2), SERVICE, RecordType::A)
            .await
            .code,
        ResponseCode::NOERROR
    );
    assert_eq!(world.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_purge_forgets_data_negatives_and_failures_that_could_depend_on_the_name() {
    let world = World::new([upstream()]);
    let srv = format!("_http._tcp.{SERVICE}");
    for asked in [
        "authors",
        "authors.default",
        "authors.default.svc",
        SERVICE,
        &srv,
        "other",
    ] {
        world.ask(asked, RecordType::A).await;
    }
    let before = world.asked().len();
    world.upstreams[0].set(SERVICE, RecordType::A, Answer::address(SERVICE, v4(5)));
    world
        .resolver
        .purge(&name("Authors.Default.svc.cluster.local"));
    for asked in ["authors", "authors.default", "authors.default.svc", SERVICE] {
        assert_eq!(
            world.ask(asked, RecordType::A).await.addresses().next(),
            Some(v4(5)),
            "{asked}"
        );
    }
    let after_services = world.asked().len();
    assert!(after_services > before);
    world.ask("other", RecordType::A).await;
    assert_eq!(world.asked().len(), after_services, "another name is kept");
    world.ask(&srv, RecordType::A).await;
    assert_eq!(
        world.asked().len(),
        after_services + 1,
        "names below it are not"
    );
}

#[tokio::test(start_paused = true)]
async fn a_purge_forgets_what_leads_through_an_alias_to_the_name() {
    let ext = "ext.default.svc.cluster.local";
    let chain = || Answer::records([Record::cname(ext, SERVICE), Record::address(SERVICE, v4(1))]);
    let world = World::new([upstream().with(ext, RecordType::A, chain())]);
    world.ask("ext", RecordType::A).await;
    let before = world.asked().len();
    world.resolver.purge(&name(SERVICE));
    world.ask("ext", RecordType::A).await;
    assert!(world.asked().len() > before);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_a_purge_overtook_is_not_kept() {
    for flush in [false, true] {
        let world =
            World::new([upstream().with(SERVICE, RecordType::A, aged(SERVICE, 30).after(ms(20)))]);
        let resolver = Arc::clone(&world.resolver);
        let asking = world.ask("authors", RecordType::A);
        let purging = async {
            tokio::time::sleep(ms(10)).await;
            if flush {
                resolver.flush();
            } else {
                resolver.purge(&name(SERVICE));
            }
        };
        tokio::join!(asking, purging);
        let before = world.asked().len();
        world.ask("authors", RecordType::A).await;
        assert!(world.asked().len() > before);
    }
}

#[tokio::test(start_paused = true)]
async fn new_upstreams_start_with_an_empty_cache() {
    let world = World::new([upstream().with(SERVICE, RecordType::A, aged(SERVICE, 30))]);
    world.ask(SERVICE, RecordType::A).await;
    let other = ScriptedUpstream::new("10.96.0.20").with(
        SERVICE,
        RecordType::A,
        Answer::address(SERVICE, v4(20)),
    );
    world.resolver.set_upstreams(vec![Arc::new(other)]);
    assert_eq!(
        world.ask(SERVICE, RecordType::A).await.addresses().next(),
        Some(v4(20))
    );
}
