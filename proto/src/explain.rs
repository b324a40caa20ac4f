//! The story of one answer as both sides know it. What a step means is the resolver's business; here
//! it is text, bounded and fit to be printed.

use std::time::Duration;

use crate::error::InvalidMessage;
use crate::v1;

/// The longest query that is explained: one question and its options, with room.
pub const MOST_QUERY: usize = 4096;

/// The most steps taken from a peer: twice what a manager tells.
const MOST_STEPS: usize = 512;

/// The most characters of a text taken from a peer: three names of full length and some words.
const MOST_TEXT: usize = 1024;

/// A question whose answer is to be explained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainRequest {
    /// The session that asks.
    pub session_id: String,
    /// The DNS message.
    pub query: Vec<u8>,
    /// Whether the cache may answer.
    pub freshness: Freshness,
}

/// Whether the cache may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Freshness {
    /// As for any other query.
    #[default]
    Cached,
    /// It is left aside.
    Fresh,
}

/// An answer and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The DNS message.
    pub reply: Vec<u8>,
    /// What happened, in order.
    pub steps: Vec<ExplainStep>,
    /// How many steps more there were.
    pub left_out: u32,
}

/// One step of the way to an answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExplainStep {
    /// The time since the query came in.
    pub at: Duration,
    /// The stage, one word.
    pub stage: String,
    /// The name it is about.
    pub name: Option<String>,
    /// The upstream it is about.
    pub upstream: Option<String>,
    /// What came of it, for people.
    pub outcome: String,
    /// How long the upstream took.
    pub took: Option<Duration>,
    /// The response code of the reply.
    pub rcode: Option<String>,
    /// The place of the candidate it is about, from 1.
    pub rank: Option<u32>,
    /// Whether it made the answer what it is.
    pub decides: bool,
}

impl TryFrom<v1::ExplainRequest> for ExplainRequest {
    type Error = InvalidMessage;

    fn try_from(wire: v1::ExplainRequest) -> Result<Self, Self::Error> {
        if wire.session_id.is_empty() {
            return Err(InvalidMessage::Missing {
                field: "session_id",
            });
        }
        if wire.query.is_empty() {
            return Err(InvalidMessage::Missing { field: "query" });
        }
        if wire.query.len() > MOST_QUERY {
            let found = format!("{} octets", wire.query.len());
            let reason = format!("at most {MOST_QUERY} are explained");
            return Err(InvalidMessage::invalid("query", found, reason));
        }
        let freshness = if wire.fresh {
            Freshness::Fresh
        } else {
            Freshness::Cached
        };
        Ok(Self {
            session_id: wire.session_id,
            query: wire.query,
            freshness,
        })
    }
}

impl From<ExplainRequest> for v1::ExplainRequest {
    fn from(request: ExplainRequest) -> Self {
        Self {
            session_id: request.session_id,
            query: request.query,
            fresh: request.freshness == Freshness::Fresh,
        }
    }
}

impl TryFrom<v1::ExplainResponse> for Explanation {
    type Error = InvalidMessage;

    fn try_from(wire: v1::ExplainResponse) -> Result<Self, Self::Error> {
        if wire.reply.is_empty() {
            return Err(InvalidMessage::Missing { field: "reply" });
        }
        let beyond = wire.steps.len().saturating_sub(MOST_STEPS);
        let beyond = u32::try_from(beyond).unwrap_or(u32::MAX);
        Ok(Self {
            reply: wire.reply,
            steps: wire
                .steps
                .into_iter()
                .take(MOST_STEPS)
                .map(ExplainStep::from)
                .collect(),
            left_out: wire.left_out.saturating_add(beyond),
        })
    }
}

impl From<Explanation> for v1::ExplainResponse {
    fn from(explanation: Explanation) -> Self {
        Self {
            reply: explanation.reply,
            steps: explanation
                .steps
                .into_iter()
                .map(v1::ExplainStep::from)
                .collect(),
            left_out: explanation.left_out,
        }
    }
}

impl From<v1::ExplainStep> for ExplainStep {
    fn from(wire: v1::ExplainStep) -> Self {
        let present = |text: String| (!text.is_empty()).then(|| printable(&text));
        Self {
            at: Duration::from_micros(wire.at_micros),
            stage: printable(&wire.stage),
            name: present(wire.name),
            upstream: present(wire.upstream),
            outcome: printable(&wire.outcome),
            took: (wire.took_micros > 0).then(|| Duration::from_micros(wire.took_micros)),
            rcode: present(wire.rcode),
            rank: (wire.rank > 0).then_some(wire.rank),
            decides: wire.decides,
        }
    }
}

impl From<ExplainStep> for v1::ExplainStep {
    fn from(step: ExplainStep) -> Self {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            at_micros: micros(step.at),
            stage: step.stage,
            name: step.name.unwrap_or_default(),
            upstream: step.upstream.unwrap_or_default(),
            outcome: step.outcome,
            // 0 stands for "none asked", and less than a microsecond is no figure.
            took_micros: step.took.map_or(0, |took| micros(took).max(1)),
            rcode: step.rcode.unwrap_or_default(),
            rank: step.rank.unwrap_or_default(),
            decides: step.decides,
        }
    }
}

/// Cuts a text of the peer to size and takes out what a terminal would act on.
fn printable(text: &str) -> String {
    let shown = |one: char| if one.is_control() { '\u{fffd}' } else { one };
    text.chars().take(MOST_TEXT).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step() -> ExplainStep {
        ExplainStep {
            at: Duration::from_micros(1500),
            stage: "upstream".to_owned(),
            name: Some("authors.default.svc.cluster.local".to_owned()),
            upstream: Some("10.96.0.10".to_owned()),
            outcome: "1 record".to_owned(),
            took: Some(Duration::from_micros(900)),
            rcode: Some("NOERROR".to_owned()),
            rank: Some(1),
            decides: true,
        }
    }

    fn response(steps: Vec<v1::ExplainStep>) -> v1::ExplainResponse {
        v1::ExplainResponse {
            reply: vec![1],
            steps,
            left_out: 2,
        }
    }

    #[test]
    fn an_explanation_comes_through_the_wire_unchanged() {
        let explanation = Explanation {
            reply: vec![1, 2, 3],
            steps: vec![step(), ExplainStep::default()],
            left_out: 2,
        };

        let wire = v1::ExplainResponse::from(explanation.clone());

        assert_eq!(Explanation::try_from(wire), Ok(explanation));
    }

    #[test]
    fn a_request_comes_through_the_wire_unchanged() {
        for freshness in [Freshness::Cached, Freshness::Fresh] {
            let request = ExplainRequest {
                session_id: "s".to_owned(),
                query: vec![1; MOST_QUERY],
                freshness,
            };

            let wire = v1::ExplainRequest::from(request.clone());

            assert_eq!(ExplainRequest::try_from(wire), Ok(request));
        }
    }

    #[test]
    fn a_request_without_session_or_query_or_with_a_huge_one_is_refused_by_name() {
        let request = |session_id: &str, octets| v1::ExplainRequest {
            session_id: session_id.to_owned(),
            query: vec![0; octets],
            fresh: false,
        };
        for (wire, field) in [
            (request("", 12), "session_id is missing"),
            (request("s", 0), "query is missing"),
            (request("s", MOST_QUERY + 1), "query is \"4097 octets\""),
        ] {
            let error = ExplainRequest::try_from(wire).unwrap_err().to_string();
            assert!(error.starts_with(field), "{error}");
        }
    }

    #[test]
    fn what_a_peer_says_is_bounded_and_moves_no_cursor() {
        let long = v1::ExplainStep {
            outcome: "\u{1b}[2J".to_owned() + &"x".repeat(5000),
            ..v1::ExplainStep::default()
        };

        let taken = Explanation::try_from(response(vec![long; 600])).unwrap();

        assert_eq!((taken.steps.len(), taken.left_out), (512, 2 + 88));
        assert_eq!(taken.steps[0].outcome.chars().count(), 1024);
        assert!(taken.steps[0].outcome.starts_with("\u{fffd}[2J"));
    }

    #[test]
    fn a_step_of_a_newer_peer_is_taken_as_it_is() {
        let newer = v1::ExplainStep {
            stage: "telepathy".to_owned(),
            ..v1::ExplainStep::default()
        };

        let taken = Explanation::try_from(response(vec![newer])).unwrap();

        assert_eq!(taken.steps[0].stage, "telepathy");
        assert_eq!(taken.steps[0].rank, None);
    }
}
