//! `Explain` over the wire: the answer of an exchange, and its story.

use kubebridge_proto::explain::{ExplainStep, Explanation};
use tonic::Code;

use super::dns::Exchange;
use super::*;

fn request(session: &str, query: Vec<u8>) -> v1::ExplainRequest {
    v1::ExplainRequest {
        session_id: session.to_owned(),
        query,
        fresh: false,
    }
}

async fn explain(world: &mut World, session: &str, name: &str) -> (String, Vec<ExplainStep>) {
    let asked = request(session, query(name, RecordType::A));
    let response = world.client.explain(asked).await.unwrap().into_inner();
    let explanation = Explanation::try_from(response).unwrap();
    assert_eq!(explanation.left_out, 0);
    (text(&explanation.reply), explanation.steps)
}

fn lines(steps: &[ExplainStep]) -> Vec<String> {
    let line = |step: &ExplainStep| {
        let name = step.name.as_deref().unwrap_or("-");
        format!("{} {name} {}", step.stage, step.outcome)
    };
    steps.iter().map(line).collect()
}

#[tokio::test]
async fn a_session_is_told_how_the_answer_of_an_exchange_comes_about() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let mut exchange = Exchange::open(&mut world.client, &session).await;

    let (explained, steps) = explain(&mut world, &session, "authors").await;

    assert_eq!(explained, exchange.ask("authors", RecordType::A).await);
    let lines = lines(&steps);
    for told in [
        "question authors A",
        "records authors.default.svc.cluster.local 1 record, from the Services",
        "settle authors.default.svc.cluster.local wins: the first in order with data",
        "rewrite authors.default.svc.cluster.local given under the asked name authors",
        "answer - NOERROR: authors 5 A 10.96.0.20",
    ] {
        assert!(
            lines.iter().any(|line| line == told),
            "{told:?} is not in {lines:#?}"
        );
    }
    let candidate = steps.iter().find(|step| step.stage == "candidate");
    assert_eq!(candidate.unwrap().rank, Some(1));
    assert_eq!(steps.last().unwrap().rcode.as_deref(), Some("NOERROR"));

    let (_, again) = explain(&mut world, &session, "authors").await;
    assert!(
        again
            .iter()
            .any(|step| step.stage == "cache" && step.outcome.starts_with("hit"))
    );
}

#[tokio::test]
async fn r2_names_outside_the_grant_are_refused_and_not_explained() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;

    for name in [
        "authors.shop.svc.cluster.local",
        "nobody.shop.svc.cluster.local",
    ] {
        let (reply, steps) = explain(&mut world, &session, name).await;

        assert!(reply.starts_with("REFUSED"), "{reply}");
        let stages: Vec<&str> = steps.iter().map(|step| step.stage.as_str()).collect();
        assert_eq!(stages, ["question", "rule", "answer"]);
    }
}

#[tokio::test]
async fn what_cannot_be_explained_is_refused_with_the_reason() {
    let mut world = World::start().await;
    let session = world.open(&["default"]).await.id;
    let authors = query("authors", RecordType::A);
    let mut response = authors.clone();
    response[2] |= 0x80;
    for (asked, code, reason) in [
        (
            request("nope", authors.clone()),
            Code::FailedPrecondition,
            "unknown or expired session",
        ),
        (
            request("", authors),
            Code::InvalidArgument,
            "session_id is missing",
        ),
        (
            request(&session, vec![]),
            Code::InvalidArgument,
            "query is missing",
        ),
        (
            request(&session, vec![0; 5000]),
            Code::InvalidArgument,
            "query is \"5000 octets\"",
        ),
        (
            request(&session, response),
            Code::InvalidArgument,
            "query is not a DNS query",
        ),
    ] {
        let status = world.client.explain(asked).await.unwrap_err();

        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().starts_with(reason), "{status}");
    }
}
