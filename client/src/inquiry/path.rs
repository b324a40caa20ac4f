//! `kubebridge trace HOST:PORT`: each step of the way to a destination, with its time and verdict.
//!
//! Asks the session's resolver and the manager, and what is known of the routes. It sends nothing by
//! the routes themselves: that would tell of the program that asks, and not of the way.

mod advice;
mod judge;
mod target;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures::future::join_all;
use kubebridge_dns::message;
use kubebridge_dns::name::{Name, RecordType, ResponseCode};
use kubebridge_proto::explain::Freshness;
use kubebridge_proto::flow::Protocol;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::report::micros;
use super::{Inquiry, resolvable};
use crate::control::calls::CallError;
use crate::inquiry::Question;
use crate::proxy::Host;
use crate::status::RoutingReport;
use crate::zones::Destination;
use judge::{overall, route, told};

pub use target::PathTarget;

/// The verdict on a way that leads there.
pub const REACHABLE: &str = "reachable";
/// The verdict on a destination that is not the cluster's.
pub const OUTSIDE: &str = "outside";
/// The verdict on a way for datagrams that nobody refused and nobody answered.
pub const UNANSWERED: &str = "unanswered";
/// The verdict on a name with addresses that are reachable and others that are not.
pub const PARTLY: &str = "partly";
/// The verdict on an address in a network of the cluster that this session does not route.
pub const LEFT_OUT: &str = "left-out";

/// The verdict on a connection that is made and ended before anything is said.
pub const RESET_AT_ONCE: &str = "reset-at-once";

/// Addresses of one name that are tried: a headless Service may have thousands.
const MOST_TRIED: usize = 8;

/// The way to a destination.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct PathReport {
    /// The session's id.
    pub session: String,
    /// The destination, `HOST:PORT`, with `/udp` for datagrams.
    pub target: String,
    /// `reachable`, `outside` (this machine connects by itself), `unanswered` (datagrams: neither
    /// refused nor answered), `partly` (some of its addresses are reachable), or the first thing in
    /// the way: `no-such-name`, `not-resolved`, `no-route`, `left-out`, `denied`,
    /// `no-ready-endpoints`, `refused`, `timeout`, `host-unreachable`, `network-unreachable`, `reset-at-once`,
    /// `limit`, `session`, `gone`, `internal`, `manager-unreachable` or `not-told`.
    pub verdict: String,
    /// What helps, where something is in the way.
    pub help: Option<String>,
    /// The steps, in order: the name's, and those of the first address.
    pub steps: Vec<PathStep>,
    /// Each address that was tried, in the order programs get them in.
    #[serde(default)]
    pub addresses: Vec<AddressReport>,
    /// How long it took in all.
    pub took_micros: u64,
}

/// The way to one address of a destination.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct AddressReport {
    /// The address.
    pub address: IpAddr,
    /// What it comes to, in the words of the whole verdict.
    pub verdict: String,
    /// What helps, where something is in the way.
    pub help: Option<String>,
    /// The steps from the route on.
    pub steps: Vec<PathStep>,
}

/// One step.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct PathStep {
    /// `name`, `route`, `egress`, `dial` or `endpoints`.
    pub step: String,
    /// `ok`, `unknown`, or what is in the way, in the words of the whole verdict.
    pub verdict: String,
    /// What was found.
    pub detail: String,
    /// How long it took, where it took any time.
    pub took_micros: Option<u64>,
}

/// What a step comes to.
const OK: &str = "ok";
const UNKNOWN: &str = "unknown";

/// Whether nothing is known to be in the way.
#[must_use]
pub fn is_well(verdict: &str) -> bool {
    [REACHABLE, OUTSIDE, UNANSWERED].contains(&verdict)
}

impl PathStep {
    fn new(step: &str, verdict: &str, detail: impl Into<String>, took: Option<Duration>) -> Self {
        Self {
            step: step.to_owned(),
            verdict: verdict.to_owned(),
            detail: detail.into(),
            took_micros: took.map(micros),
        }
    }

    fn is_in_the_way(&self) -> bool {
        ![OK, UNKNOWN].contains(&self.verdict.as_str())
    }
}

/// Where a name leads.
struct Found {
    step: PathStep,
    addresses: Vec<IpAddr>,
    destination: Destination,
}

impl Inquiry {
    /// Follows the way to a destination.
    pub async fn path(
        &self,
        session: &str,
        asked: &PathTarget,
        routing: &RoutingReport,
    ) -> PathReport {
        let begun = Instant::now();
        let PathTarget { target, protocol } = asked;
        let mut steps = Vec::new();
        let (addresses, destination) = match &target.host {
            Host::Address(address) => (vec![*address], Destination::Cluster),
            Host::Name(name) => {
                let found = self.name(name).await;
                steps.push(found.step);
                (found.addresses, found.destination)
            }
        };
        let is_by_name = matches!(target.host, Host::Name(_));
        let ways = addresses.iter().take(MOST_TRIED).map(|address| async move {
            let route = route(routing, *address, destination, is_by_name);
            let to = SocketAddr::new(*address, target.port);
            self.address(*protocol, to, route).await
        });
        let mut addresses = join_all(ways).await;
        for one in &mut addresses {
            let own = advice::help_for(&one.verdict, &target.host);
            one.help = one.help.take().or(own);
        }
        let (verdict, help) = match addresses.as_slice() {
            [] => {
                let verdict = judge::verdict(&steps);
                let help = advice::help_for(&verdict, &target.host);
                (verdict, help)
            }
            some => overall(some),
        };
        steps.extend(addresses.iter().take(1).flat_map(|one| one.steps.clone()));
        PathReport {
            session: session.to_owned(),
            target: asked.to_string(),
            verdict,
            help,
            steps,
            addresses,
            took_micros: micros(begun.elapsed()),
        }
    }

    /// Follows the way to one address, whose route is known.
    async fn address(&self, protocol: Protocol, to: SocketAddr, route: PathStep) -> AddressReport {
        let is_ours = ![OUTSIDE, LEFT_OUT].contains(&route.verdict.as_str());
        let mut steps = vec![route];
        let help = match is_ours {
            true => self.probe(protocol, to, &mut steps).await,
            false => None,
        };
        let verdict = judge::verdict(&steps);
        AddressReport {
            address: to.ip(),
            help: help.filter(|_| verdict != REACHABLE),
            verdict,
            steps,
        }
    }

    /// Resolves a name as programs do: its IPv4 addresses, then the others.
    async fn name(&self, name: &Name) -> Found {
        let begun = Instant::now();
        let mut destination = Destination::NoSuchName;
        let (mut words, mut code) = (String::new(), None);
        let mut addresses: Vec<IpAddr> = Vec::new();
        for rtype in [RecordType::A, RecordType::AAAA] {
            let question = Question {
                name: name.clone(),
                rtype,
            };
            let Ok(packet) = resolvable(&question) else {
                break;
            };
            let explained = self.local.explain(packet, &self.calls, Freshness::Cached);
            let Some(explained) = explained.await else {
                break;
            };
            destination = explained.rule.destination();
            explained.rule.words().clone_into(&mut words);
            let parsed = explained.reply.as_deref().map(message::answers);
            if let Some(Ok(parsed)) = parsed {
                code = Some(parsed.code);
                addresses.extend(parsed.addresses());
            }
            if code != Some(ResponseCode::NOERROR) {
                break;
            }
        }
        let mut texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        if texts.len() > MOST_TRIED {
            let more = texts.split_off(MOST_TRIED).len();
            texts.push(format!("{more} more that are not tried"));
        }
        let (verdict, detail) = match code {
            _ if !texts.is_empty() => (OK, format!("{} ({words})", texts.join(", "))),
            Some(ResponseCode::NOERROR | ResponseCode::NXDOMAIN) => {
                ("no-such-name", format!("it has no address ({words})"))
            }
            Some(code) => ("not-resolved", format!("{code} ({words})")),
            None => ("not-resolved", format!("no answer ({words})")),
        };
        Found {
            step: PathStep::new("name", verdict, detail, Some(begun.elapsed())),
            addresses,
            destination,
        }
    }

    /// Has the manager judge and dial; returns what helps.
    async fn probe(
        &self,
        protocol: Protocol,
        to: SocketAddr,
        steps: &mut Vec<PathStep>,
    ) -> Option<String> {
        let begun = Instant::now();
        match self.calls.probe(protocol, to).await {
            Ok(probed) => {
                let (told, help) = told(protocol, to, &probed, begun.elapsed());
                steps.extend(told);
                help
            }
            Err(error) => {
                let verdict = match error {
                    CallError::TunnelDown | CallError::Timeout => "manager-unreachable",
                    CallError::NotBuilt | CallError::Refused(_) => "not-told",
                };
                let took = Some(begun.elapsed());
                steps.push(PathStep::new("egress", verdict, error.to_string(), took));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
