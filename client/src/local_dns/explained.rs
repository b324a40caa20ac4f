//! One query of the session's resolver told step by step: it goes the way of any other.
//!
//! A name of the cluster is asked by `Explain` instead of the query stream, which gives the same
//! reply and the manager's steps; what the laptop does with the reply is shared with all queries.

use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::explain::Step;
use kubebridge_dns::message::{self, Checked};
use kubebridge_dns::name::{Name, ResponseCode};
use kubebridge_proto::explain::{ExplainStep, Freshness};

use super::LocalDns;
use crate::control::calls::{CallError, Calls};
use crate::control::exchange::AskError;
use crate::zones::{Destination, Rule};

/// Where an answer comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The manager.
    Manager,
    /// What the manager last said, since it is out of reach.
    Stale {
        /// How long ago it said so.
        age: Duration,
    },
    /// One of the servers the machine used before.
    Originals,
    /// The session itself.
    Session,
}

/// What the manager told about an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagerSide {
    /// Its steps.
    pub steps: Vec<ExplainStep>,
    /// How many more there were.
    pub left_out: u32,
    /// Why it told nothing.
    pub silent: Option<String>,
}

/// An answer, and how it came about.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The rule that says where the name goes.
    pub rule: Rule,
    /// The suffix that the rule goes by.
    pub suffix: Option<Name>,
    /// Where the answer comes from.
    pub source: Source,
    /// The answer; `None` when none was given.
    pub reply: Option<Vec<u8>>,
    /// What the manager told, if the name goes there.
    pub manager: Option<ManagerSide>,
    /// What the original servers said, if the name goes there.
    pub originals: Vec<Step>,
}

impl LocalDns {
    /// Answers a query as [`answer`](Self::answer) does, and tells how; `None` for what is no query.
    pub async fn explain(
        self: &Arc<Self>,
        packet: Vec<u8>,
        calls: &Calls,
        freshness: Freshness,
    ) -> Option<Explained> {
        let Checked::Query(query) = message::check(&packet) else {
            return None;
        };
        let zones = Arc::clone(&self.zones.borrow());
        let rule = zones.rule(&query.name, &self.routes.borrow());
        let mut explained = Explained {
            rule,
            suffix: zones.suffix(&query.name).cloned(),
            source: Source::Session,
            reply: None,
            manager: None,
            originals: Vec::new(),
        };
        match rule.destination() {
            Destination::Cluster => {
                let (side, outcome) = self.ask_explained(packet, calls, freshness).await;
                explained.manager = Some(side);
                if let Some((reply, source)) = self.take(outcome, &query) {
                    explained.reply = Some(reply);
                    explained.source = source;
                }
            }
            Destination::Originals => {
                let (reply, trace) = self.originals.explain(&packet).await;
                explained.reply = reply;
                explained.source = Source::Originals;
                explained.originals = trace.steps;
            }
            Destination::NoSuchName => {
                explained.reply = Some(message::error_reply(&query, ResponseCode::NXDOMAIN));
            }
            Destination::NoData => {
                explained.reply = Some(message::error_reply(&query, ResponseCode::NOERROR));
            }
        }
        Some(explained)
    }

    /// Asks the manager for an answer with its story, or for the answer alone if it tells no story.
    async fn ask_explained(
        &self,
        packet: Vec<u8>,
        calls: &Calls,
        freshness: Freshness,
    ) -> (ManagerSide, Result<Vec<u8>, AskError>) {
        let untold = |reason: &CallError| ManagerSide {
            steps: Vec::new(),
            left_out: 0,
            silent: Some(reason.to_string()),
        };
        match calls.explain(packet.clone(), freshness).await {
            Ok(explanation) => {
                let side = ManagerSide {
                    steps: explanation.steps,
                    left_out: explanation.left_out,
                    silent: None,
                };
                (side, Ok(explanation.reply))
            }
            Err(error @ (CallError::NotBuilt | CallError::Refused(_))) => {
                (untold(&error), self.exchange.ask(packet).await)
            }
            Err(error @ CallError::TunnelDown) => (untold(&error), Err(AskError::TunnelDown)),
            Err(error @ CallError::Timeout) => (untold(&error), Err(AskError::Timeout)),
        }
    }
}
