//! What a session tells about its answers.

use kubebridge_proto::explain::Freshness;
use kubebridge_proto::v1;

use super::*;
use crate::inquiry::report::TraceReport;
use crate::inquiry::{Inquiry, Question};
use crate::zones::{Destination, Rule};

impl World {
    fn inquiry(&self) -> Inquiry {
        Inquiry::new(Arc::clone(&self.resolver), self.control.calls())
    }

    async fn trace(&self, name: &str) -> TraceReport {
        let question = Question::read(name, "A").unwrap();
        let inquiry = self.inquiry();
        let traced = inquiry.trace("s", &question, Freshness::Cached);
        traced.await.unwrap()
    }

    /// The manager tells this story of every answer.
    fn tell(&self, steps: Vec<v1::ExplainStep>) {
        *self.script.story.lock() = Some(steps);
    }

    async fn lose_the_manager(&mut self) -> std::net::TcpListener {
        let socket = self.manager.take().unwrap().die();
        let mut tunnel = self.control.tunnel();
        tunnel
            .wait_for(|tunnel| tunnel.health() == Health::Degraded)
            .await
            .unwrap();
        socket
    }
}

fn step(stage: &str, outcome: &str, decides: bool) -> v1::ExplainStep {
    v1::ExplainStep {
        stage: stage.to_owned(),
        name: "authors.default.svc.cluster.local".to_owned(),
        outcome: outcome.to_owned(),
        decides,
        ..v1::ExplainStep::default()
    }
}

fn records(report: &TraceReport) -> Vec<String> {
    let record = |one: &crate::inquiry::report::RecordReport| {
        format!("{} {} {} {}", one.name, one.ttl, one.rtype, one.data)
    };
    report.answer.records.iter().map(record).collect()
}

#[tokio::test]
async fn lc12_a_cluster_name_is_told_with_the_managers_steps_and_the_answer_of_any_query() {
    let world = World::new(authors()).await;
    world.tell(vec![
        step("rule", "search list first", false),
        step("settle", "wins: the first in order with data", true),
        step("store", "kept for 5 s", false),
    ]);

    let report = world.trace("authors.default").await;

    assert_eq!(records(&report), ["authors.default 0 A 10.96.0.7"]);
    assert_eq!(report.rule.rule, Rule::Suffix);
    assert_eq!(report.rule.suffix.as_deref(), Some("default"));
    assert_eq!(report.source, "manager");
    assert_eq!(report.manager_silent, None);
    let stages: Vec<&str> = report
        .steps
        .iter()
        .map(|step| step.stage.as_str())
        .collect();
    assert_eq!(stages, ["rule", "settle", "store"]);
    assert!(report.steps.iter().all(|step| step.side == "manager"));
    assert_eq!(
        report.why,
        "authors.default.svc.cluster.local wins: the first in order with data"
    );
    let plain = world.ask("authors.default").await;
    let addresses: Vec<_> = plain.addresses().map(|one| one.to_string()).collect();
    assert_eq!(addresses, ["10.96.0.7"]);
    assert!(world.originals.received().is_empty());
}

#[tokio::test]
async fn a_manager_that_cannot_explain_still_answers() {
    let world = World::new(authors()).await;

    let report = world.trace("authors.default").await;

    assert_eq!(records(&report), ["authors.default 0 A 10.96.0.7"]);
    assert_eq!(
        report.manager_silent.as_deref(),
        Some("the manager is too old to do this")
    );
    assert!(report.steps.is_empty());
    assert_eq!(report.why, "the manager says so");
}

#[tokio::test]
async fn lc12_an_outside_name_is_told_with_what_the_original_server_said() {
    let world = World::new(authors()).await;

    let report = world.trace("www.example.com").await;

    assert_eq!(records(&report), ["www.example.com 30 A 192.0.2.1"]);
    assert_eq!(report.rule.rule, Rule::Outside);
    assert_eq!(report.rule.destination, Destination::Originals);
    assert_eq!(report.source, "originals");
    let server = world.originals.address();
    let asked: Vec<_> = report
        .steps
        .iter()
        .filter(|step| step.stage == "upstream")
        .collect();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].rcode.as_deref(), Some("NOERROR"));
    assert!(asked[0].took_micros.is_some());
    assert_eq!(
        report.why,
        format!("{server} was the first in order to answer")
    );
    assert_eq!(*world.asked.lock(), Vec::<String>::new());
    assert_eq!(world.originals.received().len(), 1);
}

#[tokio::test]
async fn names_that_go_nowhere_are_told_with_the_rule() {
    let world = World::new(authors()).await;

    let report = world.trace("printer").await;

    assert_eq!(report.rule.rule, Rule::NoService);
    assert_eq!(report.answer.rcode.as_deref(), Some("NXDOMAIN"));
    assert_eq!(report.source, "session");
    assert_eq!(report.why, Rule::NoService.words());
    assert!(world.asked.lock().is_empty() && world.originals.received().is_empty());
}

#[tokio::test]
async fn k8_a_stale_answer_is_told_with_its_age_and_a_missing_one_with_the_reason() {
    let mut world = World::new(authors()).await;
    let (clock, sleeper) = Clock::fake();
    Arc::get_mut(&mut world.resolver).unwrap().clock = clock;
    world.ask("authors.default").await;
    let socket = world.lose_the_manager().await;
    sleeper.sleep(Duration::from_secs(30));

    let known = world.trace("authors.default").await;
    assert_eq!(records(&known), ["authors.default 0 A 10.96.0.7"]);
    assert_eq!(known.source, "stale");
    assert!(known.stale_millis >= Some(30_000), "{known:?}");
    assert_eq!(
        known.why,
        "the manager is out of reach, and this is what it said last"
    );

    let unknown = world.trace("books.default").await;
    assert_eq!(unknown.answer.rcode.as_deref(), Some("SERVFAIL"));
    assert_eq!(unknown.source, "session");
    assert_eq!(
        unknown.why,
        "the manager is out of reach, and nothing the manager said before may stand in"
    );
    drop(socket);
}

#[tokio::test]
async fn flushing_forgets_what_could_be_answered_without_the_manager() {
    let mut world = World::new(authors()).await;
    world.ask("authors.default").await;

    assert_eq!(world.inquiry().flush("s").forgotten, 1);
    assert_eq!(world.inquiry().flush("s").forgotten, 0);

    let socket = world.lose_the_manager().await;
    assert_eq!(
        world.ask("authors.default").await.code,
        ResponseCode::SERVFAIL
    );
    drop(socket);
}

#[tokio::test]
async fn the_upstreams_of_both_ends_are_told_while_the_manager_is_there() {
    let mut world = World::new(authors()).await;
    *world.script.upstreams.lock() = vec![v1::UpstreamStatus {
        spec: "10.96.0.10".to_owned(),
        state: v1::upstream_status::State::Healthy.into(),
        rtt_micros: 900,
        ..v1::UpstreamStatus::default()
    }];
    world.ask("www.example.com").await;

    let report = world.inquiry().upstreams("s").await;
    assert_eq!(report.manager_error, None);
    assert_eq!(report.manager[0].spec, "10.96.0.10");
    assert_eq!(report.manager[0].state, "healthy");
    assert_eq!(report.manager[0].rtt_micros, Some(900));
    assert_eq!(
        report.originals[0].spec,
        world.originals.address().to_string()
    );
    assert_eq!(report.originals[0].state, "healthy");
    assert!(report.originals[0].last_ok_millis.is_some());

    let socket = world.lose_the_manager().await;
    let report = world.inquiry().upstreams("s").await;
    assert_eq!(
        report.manager_error.as_deref(),
        Some("the manager is out of reach")
    );
    assert_eq!(report.originals.len(), 1);
    drop(socket);
}

#[tokio::test]
async fn a_query_is_answered_as_the_session_answers_it() {
    let world = World::new(authors()).await;
    let question = Question::read("authors.default", "A").unwrap();

    let report = world.inquiry().query("s", &question).await.unwrap();

    assert_eq!(report.answer.rcode.as_deref(), Some("NOERROR"));
    assert_eq!(report.answer.records[0].data, "10.96.0.7");
}

#[tokio::test]
async fn questions_that_are_none_are_refused_in_words() {
    let world = World::new(authors()).await;
    let too_long = "a".repeat(64);
    for (name, rtype, words) in [
        (too_long.as_str(), "A", "is no domain name"),
        ("authors", "NOPE", "`NOPE` is no record type"),
    ] {
        let refused = Question::read(name, rtype).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
    for rtype in ["AXFR", "OPT"] {
        let question = Question::read("authors", rtype).unwrap();
        let refused = world
            .inquiry()
            .trace("s", &question, Freshness::Cached)
            .await;
        let words = format!("questions of type {rtype} are never resolved");
        assert_eq!(refused.unwrap_err(), words);
    }
}
