//! What an inquiry found out, as plain data: sent over the control socket, and printed with `-o json`.
//!
//! Fields may be added; one that goes or means something else needs a new version of the schema.

use std::time::Duration;

use kubebridge_dns::explain::Step;
use kubebridge_dns::message;
use kubebridge_dns::name::{Name, RecordType};
use kubebridge_dns::upstreams;
use kubebridge_proto::explain::{ExplainStep, Freshness};
use kubebridge_proto::upstreams::{UpstreamState, UpstreamStatus};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::local_dns::{Explained, Source};
use crate::status::{HostsLineReport, TunnelReport};
use crate::zones::{Destination, Rule};

/// The most records of an answer that are told: a screen full.
const MOST_RECORDS: usize = 64;

/// One answer and how it came about, across laptop and manager.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct TraceReport {
    /// The session's id.
    pub session: String,
    /// The name asked.
    pub name: String,
    /// The type asked.
    #[serde(rename = "type")]
    pub rtype: String,
    /// Whether the manager's cache was left aside.
    pub fresh: bool,
    /// The session's line in the hosts file, which programs find before they ask any DNS server.
    pub hosts: Option<HostsLineReport>,
    /// Whether the system's DNS sends names to the session.
    pub system_dns: bool,
    /// Where the session sends the name, and why.
    pub rule: RuleReport,
    /// The way to the manager, if the name goes there.
    pub tunnel: Option<TunnelReport>,
    /// Why the manager told no steps, if the name goes there and it did not.
    pub manager_silent: Option<String>,
    /// The steps, in order.
    pub steps: Vec<StepReport>,
    /// How many steps more there were.
    pub left_out: u32,
    /// The answer.
    pub answer: AnswerReport,
    /// Where the answer comes from: `manager`, `stale`, `originals` or `session`.
    pub source: String,
    /// How old a stale answer is.
    pub stale_millis: Option<u64>,
    /// Why the answer is what it is.
    pub why: String,
    /// How long it took in all.
    pub took_micros: u64,
}

/// Where a name goes.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct RuleReport {
    /// The rule.
    pub rule: Rule,
    /// The suffix it goes by.
    pub suffix: Option<String>,
    /// Where it sends the name.
    pub destination: Destination,
}

/// One step.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct StepReport {
    /// `laptop` or `manager`.
    pub side: String,
    /// Microseconds since that side began.
    pub at_micros: u64,
    /// The stage, one word.
    pub stage: String,
    /// The place of the candidate it is about, from 1.
    pub rank: Option<u32>,
    /// The name it is about.
    pub name: Option<String>,
    /// The server it is about.
    pub upstream: Option<String>,
    /// How long that server took.
    pub took_micros: Option<u64>,
    /// The response code it gave.
    pub rcode: Option<String>,
    /// What came of it.
    pub outcome: String,
    /// Whether it made the answer what it is.
    pub decides: bool,
}

/// An answer.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct AnswerReport {
    /// The response code; `None` when there was no reply.
    pub rcode: Option<String>,
    /// The records of the answer section.
    pub records: Vec<RecordReport>,
    /// How many records more there are.
    pub left_out: usize,
}

/// One record of an answer.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct RecordReport {
    /// The owner.
    pub name: String,
    /// The time to live in seconds.
    pub ttl: u32,
    /// The type.
    #[serde(rename = "type")]
    pub rtype: String,
    /// The data.
    pub data: String,
}

/// One answer alone.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct QueryReport {
    /// The session's id.
    pub session: String,
    /// The name asked.
    pub name: String,
    /// The type asked.
    #[serde(rename = "type")]
    pub rtype: String,
    /// How long it took.
    pub took_micros: u64,
    /// The answer.
    pub answer: AnswerReport,
}

/// What was forgotten.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct FlushReport {
    /// The session's id.
    pub session: String,
    /// How many answers.
    pub forgotten: usize,
}

/// The upstreams of both ends.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct UpstreamsReport {
    /// The session's id.
    pub session: String,
    /// The manager's upstreams, in its order.
    pub manager: Vec<UpstreamReport>,
    /// Why those are not known.
    pub manager_error: Option<String>,
    /// The servers the machine used before, in their order.
    pub originals: Vec<UpstreamReport>,
}

/// One upstream.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct UpstreamReport {
    /// The upstream as it was configured.
    pub spec: String,
    /// `healthy`, `unhealthy`, `looped` or `unknown`.
    pub state: String,
    /// Its failures since it last replied.
    pub fails: u32,
    /// Its last failure.
    pub last_error: Option<String>,
    /// Its smoothed round trip.
    pub rtt_micros: Option<u64>,
    /// How long ago it last replied.
    pub last_ok_millis: Option<u64>,
    /// The zones for which it leads back to where it is asked from.
    pub looped_zones: Vec<String>,
}

impl UpstreamReport {
    /// Reads what the manager says of one of its upstreams.
    #[must_use]
    pub fn of_manager(status: UpstreamStatus) -> Self {
        let state = match status.state {
            UpstreamState::Unknown => "unknown",
            UpstreamState::Healthy => "healthy",
            UpstreamState::Unhealthy => "unhealthy",
            UpstreamState::Looped => "looped",
        };
        Self {
            spec: status.spec,
            state: state.to_owned(),
            fails: status.fails,
            last_error: status.last_error,
            rtt_micros: status.rtt.map(micros),
            last_ok_millis: status.last_ok.map(millis),
            looped_zones: status.looped_zones,
        }
    }

    /// Reads what is known here of a server the machine used before.
    #[must_use]
    pub fn of_laptop(status: &upstreams::UpstreamStatus, now: Instant) -> Self {
        let state = match status.state {
            upstreams::UpstreamState::Unknown => "unknown",
            upstreams::UpstreamState::Healthy => "healthy",
            upstreams::UpstreamState::Unhealthy => "unhealthy",
            upstreams::UpstreamState::Looped => "looped",
        };
        let ago = |time: Instant| millis(now.saturating_duration_since(time));
        Self {
            spec: status.spec.to_string(),
            state: state.to_owned(),
            fails: status.fails,
            last_error: status.last_error.clone(),
            rtt_micros: status.rtt.map(micros),
            last_ok_millis: status.last_ok.map(ago),
            looped_zones: status
                .looped_zones
                .iter()
                .map(ToString::to_string)
                .collect(),
        }
    }
}

impl TraceReport {
    /// Makes the report of an answer; what the board knows is added by whoever has it.
    #[must_use]
    pub fn new(
        session: &str,
        name: &Name,
        rtype: RecordType,
        freshness: Freshness,
        explained: &Explained,
        took: Duration,
    ) -> Self {
        let originals = explained.originals.iter().map(StepReport::of_laptop);
        let manager = explained.manager.iter().flat_map(|side| &side.steps);
        let steps: Vec<_> = originals
            .chain(manager.map(StepReport::of_manager))
            .collect();
        let (source, stale_millis) = source(&explained.source);
        Self {
            session: session.to_owned(),
            name: name.to_string(),
            rtype: rtype.to_string(),
            fresh: freshness == Freshness::Fresh,
            hosts: None,
            system_dns: false,
            rule: RuleReport {
                rule: explained.rule,
                suffix: explained.suffix.as_ref().map(ToString::to_string),
                destination: explained.rule.destination(),
            },
            tunnel: None,
            manager_silent: explained
                .manager
                .as_ref()
                .and_then(|side| side.silent.clone()),
            left_out: explained.manager.as_ref().map_or(0, |side| side.left_out),
            answer: AnswerReport::read(explained.reply.as_deref()),
            source: source.to_owned(),
            stale_millis,
            why: why(explained, &steps),
            steps,
            took_micros: micros(took),
        }
    }
}

impl StepReport {
    fn of_laptop(step: &Step) -> Self {
        let event = &step.event;
        Self {
            side: "laptop".to_owned(),
            at_micros: micros(step.at),
            stage: event.stage().to_owned(),
            rank: None,
            name: event.name().map(ToString::to_string),
            upstream: event.upstream().map(ToString::to_string),
            took_micros: event.took().map(micros),
            rcode: event.code().map(|code| code.to_string()),
            outcome: event.outcome(),
            decides: event.decides(),
        }
    }

    fn of_manager(step: &ExplainStep) -> Self {
        Self {
            side: "manager".to_owned(),
            at_micros: micros(step.at),
            stage: step.stage.clone(),
            rank: step.rank,
            name: step.name.clone(),
            upstream: step.upstream.clone(),
            took_micros: step.took.map(micros),
            rcode: step.rcode.clone(),
            outcome: step.outcome.clone(),
            decides: step.decides,
        }
    }
}

impl AnswerReport {
    /// Reads a reply.
    #[must_use]
    pub fn read(reply: Option<&[u8]>) -> Self {
        let Some(Ok(parsed)) = reply.map(message::answers) else {
            return Self::default();
        };
        let records = parsed.answers.iter().take(MOST_RECORDS);
        Self {
            rcode: Some(parsed.code.to_string()),
            left_out: parsed.answers.len().saturating_sub(MOST_RECORDS),
            records: records
                .map(|record| RecordReport {
                    name: record.owner.to_string(),
                    ttl: record.ttl,
                    rtype: record.rtype.to_string(),
                    data: record.data.to_string(),
                })
                .collect(),
        }
    }
}

fn source(source: &Source) -> (&'static str, Option<u64>) {
    match source {
        Source::Manager => ("manager", None),
        Source::Stale { age } => ("stale", Some(millis(*age))),
        Source::Originals => ("originals", None),
        Source::Session => ("session", None),
    }
}

/// Says in one line why the answer is what it is.
fn why(explained: &Explained, steps: &[StepReport]) -> String {
    match &explained.source {
        Source::Manager => {
            let decisive = steps.iter().rfind(|step| step.decides);
            decisive.map_or_else(
                || "the manager says so".to_owned(),
                |step| match &step.name {
                    Some(name) => format!("{name} {}", step.outcome),
                    None => format!("{}: {}", step.stage, step.outcome),
                },
            )
        }
        Source::Stale { .. } => {
            "the manager is out of reach, and this is what it said last".to_owned()
        }
        Source::Originals => {
            let answered = |step: &&StepReport| {
                let rcode = step.rcode.as_deref();
                step.upstream.is_some()
                    && rcode.is_some_and(|rcode| !["SERVFAIL", "REFUSED"].contains(&rcode))
            };
            match steps
                .iter()
                .rfind(answered)
                .and_then(|step| step.upstream.as_ref())
            {
                Some(server) => format!("{server} was the first in order to answer"),
                None => "none of the original servers answered".to_owned(),
            }
        }
        Source::Session => match explained.rule.destination() {
            Destination::Cluster => {
                let silent = explained
                    .manager
                    .as_ref()
                    .and_then(|side| side.silent.as_ref());
                let reason = silent.map_or("the manager gave no answer", String::as_str);
                format!("{reason}, and nothing the manager said before may stand in")
            }
            Destination::Originals | Destination::NoSuchName | Destination::NoData => {
                explained.rule.words().to_owned()
            }
        },
    }
}

/// Whole microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
