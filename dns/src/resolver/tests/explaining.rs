//! What a trace tells, beside the answer it tells of.

use super::*;
use crate::explain::{CacheUse, Trace};

mod cached;
mod granted;
mod upstreams;

/// A world whose trace of one question is wanted.
impl World {
    async fn explain_in(
        &self,
        view: &Arc<View>,
        text: &str,
        rtype: RecordType,
        cache_use: CacheUse,
    ) -> (Parsed, Vec<String>) {
        let packet = encode_query(77, &name(text), rtype, QueryOptions::default());
        let asker = Asker::new(Arc::clone(view));
        let (reply, trace) = self.resolver.explain(&packet, &asker, cache_use).await;
        (answers(&reply.expect("a reply")).unwrap(), story(&trace))
    }

    async fn explain(&self, text: &str, rtype: RecordType) -> Vec<String> {
        self.explain_in(&pod(), text, rtype, CacheUse::Normal)
            .await
            .1
    }
}

/// The steps as `MILLISECONDS STAGE NAME @UPSTREAM TOOK: OUTCOME`, what is not there left out.
fn story(trace: &Trace) -> Vec<String> {
    assert_eq!(trace.left_out, 0);
    let line = |step: &crate::explain::Step| {
        let event = &step.event;
        let name = event.name().map(|name| format!(" {name}"));
        let upstream = event.upstream().map(|upstream| format!(" @{upstream}"));
        let took = event.took().map(|took| format!(" {} ms", took.as_millis()));
        format!(
            "{} {}{}{}{}: {}",
            step.at.as_millis(),
            event.stage(),
            name.unwrap_or_default(),
            upstream.unwrap_or_default(),
            took.unwrap_or_default(),
            event.outcome()
        )
    };
    trace.steps.iter().map(line).collect()
}

/// Whether the steps have this one, at any time.
#[track_caller]
fn must_tell(story: &[String], step: &str) {
    let untimed = |line: &String| line.split_once(' ').is_some_and(|(_, rest)| rest == step);
    assert!(story.iter().any(untimed), "{step:?} is not in {story:#?}");
}

#[track_caller]
fn must_not_tell(story: &[String], words: &str) {
    assert!(
        !story.iter().any(|line| line.contains(words)),
        "{words:?} is in {story:#?}"
    );
}

fn at(owner: &str, answer: Answer) -> ScriptedUpstream {
    upstream().with(owner, RecordType::A, answer)
}

#[tokio::test(start_paused = true)]
async fn a_wildcard_of_a_later_candidate_is_told_as_not_needed() {
    let wildcard = "authors.cluster.local";
    let world = World::new([
        at(SERVICE, Answer::address(SERVICE, v4(1)).after(ms(50))).with(
            wildcard,
            RecordType::A,
            Answer::address(wildcard, v4(6)),
        ),
    ]);

    assert_eq!(
        world.explain("authors", RecordType::A).await,
        [
            "0 question authors: A",
            "0 rule authors: search list first: fewer dots (0) than ndots (5)",
            "0 candidate authors.default.svc.cluster.local: asked at once; a failure here ends the search",
            "0 candidate authors.svc.cluster.local: asked at once; a failure here ends the search",
            "0 candidate authors.cluster.local: asked at once; a failure here ends the search",
            "0 candidate authors: asked when all others were negative",
            "0 cache: miss",
            "0 flight: led: resolved for this query",
            "0 upstream authors.svc.cluster.local @10.96.0.10 0 ms: NXDOMAIN, for 30 s",
            "0 upstream authors.cluster.local @10.96.0.10 0 ms: 1 record",
            "50 upstream authors.default.svc.cluster.local @10.96.0.10 50 ms: 1 record",
            "50 settle authors.default.svc.cluster.local: wins: the first in order with data",
            "50 settle authors.svc.cluster.local: not needed: one before it decided",
            "50 settle authors.cluster.local: not needed: one before it decided",
            "50 settle authors: not needed: one before it decided",
            "50 rewrite authors.default.svc.cluster.local: given under the asked name authors",
            "50 store: kept for 30 s",
            "50 answer: NOERROR: authors 30 A 10.96.0.1",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn no_data_is_told_as_the_end_of_the_search() {
    let later = "authors.svc.cluster.local";
    let world = World::new([upstream()
        .with(SERVICE, RecordType::AAAA, Answer::nodata("cluster.local"))
        .with(
            later,
            RecordType::AAAA,
            Answer::address(later, [0xfd00, 0, 0, 0, 0, 0, 0, 1]),
        )]);

    let story = world.explain("authors", RecordType::AAAA).await;

    must_tell(
        &story,
        &format!("settle {SERVICE}: wins: it exists without this type, which ends the search"),
    );
    must_tell(
        &story,
        &format!("settle {later}: not needed: one before it decided"),
    );
    must_tell(&story, "answer: NOERROR, no records");
}

#[tokio::test(start_paused = true)]
async fn no_data_of_the_zones_structure_is_told_as_not_existing() {
    let namespace = "shop.svc.cluster.local";
    let world =
        World::new([upstream().with(namespace, RecordType::A, Answer::nodata("cluster.local"))]);

    let story = world.explain("shop", RecordType::A).await;

    must_tell(
        &story,
        &format!("settle {namespace}: has names below it only: counts as not existing"),
    );
    must_tell(
        &story,
        "settle: all were negative: the bare name is asked last",
    );
    must_tell(&story, "settle shop: does not exist");
    must_tell(&story, "answer: NXDOMAIN, no records");
}

#[tokio::test(start_paused = true)]
async fn a_failure_outside_the_cluster_domain_is_told_as_passed_over() {
    let plain = PlainView {
        search: vec![name("corp.example"), name("default.svc.cluster.local")],
        ndots: None,
        cluster_domain: None,
        absolute_zones: vec![],
        bare: BarePolicy::Never,
    };
    let view = Arc::new(View::plain(plain));
    let outside = "authors.corp.example";
    let world = World::new([at(SERVICE, Answer::address(SERVICE, v4(1))).with(
        outside,
        RecordType::A,
        Answer::code(ResponseCode::SERVFAIL),
    )]);

    let (_, story) = world
        .explain_in(&view, "authors", RecordType::A, CacheUse::Normal)
        .await;

    must_tell(
        &story,
        "skipped authors: bare names are not sent (--bare-single-label never)",
    );
    must_tell(
        &story,
        &format!("settle {outside}: failed: passed over, being outside the cluster domain"),
    );
    must_tell(
        &story,
        &format!("settle {SERVICE}: wins: the first in order with data"),
    );
    must_tell(
        &story,
        "store: not kept: a candidate failed and was passed over",
    );
}

#[tokio::test(start_paused = true)]
async fn our_own_records_are_told_and_no_upstream_is() {
    let table = Table::default().with(SERVICE, RecordType::A, Local::Addresses(vec![v4(3)]));
    let world = World::with([upstream()], table, |_| {});

    let story = world.explain("authors", RecordType::A).await;

    must_tell(
        &story,
        &format!("records {SERVICE}: 1 record, from the Services"),
    );
    must_tell(
        &story,
        &format!("settle {SERVICE}: wins: the first in order with data"),
    );
    must_not_tell(&story, "upstream");
    assert!(world.asked().is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_name_of_the_search_is_told_once() {
    for asked in [
        "authors",
        "authors.shop",
        "www.google.com",
        "a.b.c.d.e.example",
    ] {
        for view in [pod(), session("default", 7)] {
            let world = World::new([upstream()]);
            let (_, story) = world
                .explain_in(&view, asked, RecordType::A, CacheUse::Normal)
                .await;
            let told = |line: &&String| line.contains(" candidate ") || line.contains(" skipped ");
            assert_eq!(story.iter().filter(told).count(), 4, "{asked}: {story:#?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_explained_query_gets_the_reply_of_any_other() {
    let ext = "ext.default.svc.cluster.local";
    let chain = [
        Record::cname(ext, "real.example"),
        Record::address("real.example", v4(9)),
    ];
    let world = || {
        World::new([at(SERVICE, Answer::address(SERVICE, v4(1)))
            .with(ext, RecordType::A, Answer::records(chain.clone()))
            .with(
                "dead.default.svc.cluster.local",
                RecordType::A,
                Answer::silence(),
            )])
    };
    let view = session("default", 7);
    for asked in [
        "authors",
        "AUTHORS.default",
        SERVICE,
        "ext",
        "dead",
        "nope",
        "www.example.com",
        "localhost",
        "authors.shop.svc.cluster.local",
        "1.0.96.10.in-addr.arpa",
    ] {
        for rtype in [RecordType::A, RecordType::AAAA, RecordType::ANY] {
            let packet = encode_query(77, &name(asked), rtype, QueryOptions::default());
            let asker = Asker::new(Arc::clone(&view));
            let plain = world().resolver.answer(&packet, &asker).await;
            for cache_use in [CacheUse::Normal, CacheUse::Bypass] {
                let (explained, trace) = world().resolver.explain(&packet, &asker, cache_use).await;

                assert_eq!(explained, plain, "{asked} {rtype}");
                let last = trace.steps.last().map(|step| step.event.stage());
                assert_eq!(last, Some("answer"), "{asked} {rtype}");
                let decides = trace.steps.iter().any(|step| step.event.decides());
                assert!(decides, "{asked} {rtype}: {trace:#?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_question_is_told_and_answered_as_ever() {
    let world = World::new([upstream()]);
    let asker = Asker::new(pod());

    let (reply, trace) = world
        .resolver
        .explain(&[1, 2, 3], &asker, CacheUse::Normal)
        .await;
    assert_eq!((reply, story(&trace).len()), (None, 1));

    let mut two_questions = encode_query(7, &name("a"), RecordType::A, QueryOptions::default());
    two_questions[5] = 2;
    let (reply, trace) = world
        .resolver
        .explain(&two_questions, &asker, CacheUse::Normal)
        .await;
    assert_eq!(reply, world.resolver.answer(&two_questions, &asker).await);
    assert_eq!(story(&trace)[1], "0 answer: FORMERR, no records");
}

#[tokio::test(start_paused = true)]
async fn a_trace_is_bounded_and_ends_with_the_answer() {
    let search: Vec<Name> = (0..63).map(|n| name(&format!("s{n}.example"))).collect();
    let plain = PlainView {
        search,
        ndots: None,
        cluster_domain: None,
        absolute_zones: vec![],
        bare: BarePolicy::LastToUpstreams,
    };
    let asker = Asker::new(Arc::new(View::plain(plain)));
    let chain: Vec<Record> = (0..40)
        .map(|last| Record::address("web.s62.example", v4(last)))
        .collect();
    let upstreams = (1..=8).map(|last| {
        let spec = format!("10.96.0.{last}");
        ScriptedUpstream::new(&spec)
            .otherwise(Answer::nxdomain("."))
            .with(
                "web.s62.example",
                RecordType::A,
                Answer::records(chain.clone()).after(ms(1)),
            )
    });
    let world = World::new(upstreams);
    let packet = encode_query(77, &name("web"), RecordType::A, QueryOptions::default());

    let (_, trace) = world
        .resolver
        .explain(&packet, &asker, CacheUse::Normal)
        .await;

    assert!(trace.steps.len() <= 257, "{}", trace.steps.len());
    let last = &trace.steps.last().unwrap().event;
    assert_eq!(last.stage(), "answer");
    assert!(
        last.outcome().ends_with("and 24 more"),
        "{}",
        last.outcome()
    );
}
