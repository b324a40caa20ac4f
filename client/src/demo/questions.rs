//! What the demo asks, what it expects, and how it shows both.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use kubebridge_dns::name::RecordType;
use serde::Serialize;

use super::services::{AUTHORS, AUTHORS_AGAIN, DOMAIN, SHOP_AUTHORS};
use crate::probe::{Finding, ask};
use crate::status::text;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// A question and its answer.
#[derive(Clone, Debug)]
pub(super) struct Question {
    name: String,
    rtype: RecordType,
    expected: Finding,
}

/// A question, asked of the manager's DNS and of the session's resolver.
#[derive(Clone, Debug)]
pub(super) struct Answered {
    question: Question,
    manager: Result<Finding, String>,
    session: Result<Finding, String>,
}

/// The questions of the start.
pub(super) fn before() -> Vec<Question> {
    let full = format!("authors.default.svc.{DOMAIN}");
    let absent = format!("nothere.default.svc.{DOMAIN}");
    vec![
        address("authors", AUTHORS),
        address("authors.default", AUTHORS),
        address("authors.default.svc", AUTHORS),
        address(&full, AUTHORS),
        address("authors.shop", SHOP_AUTHORS),
        question("authors", RecordType::AAAA, Finding::NoData),
        question("db", RecordType::A, Finding::NoData),
        address("docs", SHOP_AUTHORS),
        question(&absent, RecordType::A, Finding::NoSuchName),
    ]
}

/// The questions once `authors` has another address.
pub(super) fn after() -> Vec<Question> {
    vec![
        address("authors", AUTHORS_AGAIN),
        address("authors.default", AUTHORS_AGAIN),
        address("authors.shop", SHOP_AUTHORS),
    ]
}

fn address(name: &str, address: IpAddr) -> Question {
    question(name, RecordType::A, Finding::Addresses(vec![address]))
}

fn question(name: &str, rtype: RecordType, expected: Finding) -> Question {
    Question {
        name: name.to_owned(),
        rtype,
        expected,
    }
}

impl Question {
    /// Asks both.
    pub(super) async fn ask(&self, manager: SocketAddr, session: SocketAddr) -> Answered {
        Answered {
            manager: self.ask_one(manager).await,
            session: self.ask_one(session).await,
            question: self.clone(),
        }
    }

    async fn ask_one(&self, resolver: SocketAddr) -> Result<Finding, String> {
        let name = self.name.parse().map_err(|error| format!("{error}"))?;
        ask(resolver, &name, self.rtype, PATIENCE)
            .await
            .map_err(|error| format!("{error:#}"))
    }
}

impl Answered {
    /// Whether both answers are the expected one.
    pub(super) fn is_right(&self) -> bool {
        [&self.manager, &self.session]
            .into_iter()
            .all(|answer| answer.as_ref() == Ok(&self.question.expected))
    }
}

fn words(answer: &Result<Finding, String>) -> String {
    match answer {
        Ok(finding) => finding.to_string(),
        Err(error) => error.clone(),
    }
}

/// Shows answers as a table.
pub(super) fn table(answers: &[Answered]) -> String {
    let mut rows = vec![["NAME", "TYPE", "MANAGER", "SESSION", ""].map(str::to_owned)];
    for one in answers {
        let verdict = if one.is_right() {
            "as expected".to_owned()
        } else {
            format!("expected {}", one.question.expected)
        };
        rows.push([
            one.question.name.clone(),
            one.question.rtype.to_string(),
            words(&one.manager),
            words(&one.session),
            verdict,
        ]);
    }
    text::table(&rows)
}

#[derive(Serialize)]
struct Document {
    schema: &'static str,
    answers: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    #[serde(rename = "type")]
    rtype: String,
    manager: String,
    session: String,
    expected: String,
}

/// Shows answers as one JSON object.
pub(super) fn json(answers: &[Answered]) -> String {
    let row = |one: &Answered| Row {
        name: one.question.name.clone(),
        rtype: one.question.rtype.to_string(),
        manager: words(&one.manager),
        session: words(&one.session),
        expected: one.question.expected.to_string(),
    };
    let document = Document {
        schema: "kubebridge.demo/v1",
        answers: answers.iter().map(row).collect(),
    };
    serde_json::to_string(&document).unwrap_or_default()
}

/// Says what the user may try.
pub(super) fn try_it(resolver: SocketAddr) -> String {
    let dig = format!(
        "dig +noall +answer @{} -p {}",
        resolver.ip(),
        resolver.port()
    );
    format!(
        "\ntry, from another terminal:
  {dig} authors
  {dig} authors.shop
  {dig} docs
  {dig} +tcp authors.default.svc.{DOMAIN}
Ctrl-C ends the demo.
"
    )
}
