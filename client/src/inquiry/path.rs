//! `kubebridge trace HOST:PORT`: each step of the way to a destination, with its time and verdict.
//!
//! Asks the session's resolver and the manager, and what is known of the routes. It sends nothing by
//! the routes themselves: that would tell of the program that asks, and not of the way.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use kubebridge_dns::message;
use kubebridge_dns::name::{Name, RecordType, ResponseCode};
use kubebridge_platform::net::IpNet;
use kubebridge_proto::explain::Freshness;
use kubebridge_proto::flow::{FailureKind, Protocol};
use kubebridge_proto::probe::{Endpoints, Probed, Service, Verdict};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::report::micros;
use super::{Inquiry, resolvable};
use crate::control::calls::CallError;
use crate::inquiry::Question;
use crate::proxy::{Host, Target};
use crate::status::RoutingReport;
use crate::status::routing::HostRouteReport;
use crate::zones::Destination;

/// The verdict on a way that leads there.
pub const REACHABLE: &str = "reachable";
/// The verdict on a destination that is not the cluster's.
pub const OUTSIDE: &str = "outside";

/// The way to a destination.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct PathReport {
    /// The session's id.
    pub session: String,
    /// The destination, `HOST:PORT`.
    pub target: String,
    /// `reachable`, `outside` (this machine connects by itself), or the first thing in the way:
    /// `no-such-name`, `not-resolved`, `no-route`, `denied`, `no-ready-endpoints`, `refused`,
    /// `timeout`, `host-unreachable`, `network-unreachable`, `limit`, `session`, `gone`,
    /// `internal`, `manager-unreachable` or `not-told`.
    pub verdict: String,
    /// What helps, where something is in the way.
    pub help: Option<String>,
    /// The steps, in order.
    pub steps: Vec<PathStep>,
    /// How long it took in all.
    pub took_micros: u64,
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
    address: Option<IpAddr>,
    destination: Destination,
}

impl Inquiry {
    /// Follows the way to a destination.
    pub async fn path(
        &self,
        session: &str,
        target: &Target,
        routing: &RoutingReport,
    ) -> PathReport {
        let begun = Instant::now();
        let mut steps = Vec::new();
        let (address, destination) = match &target.host {
            Host::Address(address) => (Some(*address), Destination::Cluster),
            Host::Name(name) => {
                let found = self.name(name).await;
                steps.push(found.step);
                (found.address, found.destination)
            }
        };
        let mut help = None;
        if let Some(address) = address {
            let is_by_name = matches!(target.host, Host::Name(_));
            let route = route(routing, address, destination, is_by_name);
            let is_outside = route.verdict == OUTSIDE;
            steps.push(route);
            if !is_outside {
                help = self
                    .probe(SocketAddr::new(address, target.port), &mut steps)
                    .await;
            }
        }
        let verdict = verdict(&steps);
        let own = help_for(&verdict, target);
        PathReport {
            session: session.to_owned(),
            target: target.to_string(),
            help: help.filter(|_| verdict != REACHABLE).or(own),
            verdict,
            steps,
            took_micros: micros(begun.elapsed()),
        }
    }

    /// Resolves a name as programs do: its IPv4 address, or else the other one.
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
                addresses = parsed.addresses().collect();
            }
            if !addresses.is_empty() || code != Some(ResponseCode::NOERROR) {
                break;
            }
        }
        let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
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
            address: addresses.first().copied(),
            destination,
        }
    }

    /// Has the manager judge and dial; returns what helps.
    async fn probe(&self, to: SocketAddr, steps: &mut Vec<PathStep>) -> Option<String> {
        let begun = Instant::now();
        match self.calls.probe(Protocol::Tcp, to).await {
            Ok(probed) => {
                let (told, help) = told(to, &probed, begun.elapsed());
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

/// What is first in the way; whoever was connected needs no endpoint that is ready.
fn verdict(steps: &[PathStep]) -> String {
    let is_connected = |step: &&PathStep| step.step == "dial" && step.verdict == OK;
    let mut before = steps.iter().take_while(|step| !is_connected(step));
    let first = before.find(|step| step.is_in_the_way());
    first.map_or_else(|| REACHABLE.to_owned(), |step| step.verdict.clone())
}

/// Whether this machine sends packets for an address to the session.
fn route(
    routing: &RoutingReport,
    address: IpAddr,
    destination: Destination,
    is_by_name: bool,
) -> PathStep {
    let has = |network: &str| {
        let net = network.parse::<IpNet>();
        net.is_ok_and(|net| net.contains(address))
            || network.parse::<IpAddr>().is_ok_and(|one| one == address)
    };
    let (verdict, detail) = if let Some(hole) = routing.holes.iter().find(|one| has(&one.network)) {
        let detail = format!("{} is left alone: {}", hole.network, hole.reason);
        ("no-route", detail)
    } else if !routing.applied && destination != Destination::Originals {
        let detail = "no routes are set: programs get there by `kubebridge forward` or the proxy";
        (UNKNOWN, detail.to_owned())
    } else if let Some(net) = routing.networks.iter().find(|one| has(&one.network)) {
        (OK, format!("{} ({})", net.network, net.purposes.join(", ")))
    } else if let Some(host) = routing.hosts.iter().find(|one| has(&one.address)) {
        let HostRouteReport {
            address,
            name,
            seconds,
        } = host;
        (OK, format!("{address} for {name}, {seconds} s more"))
    } else if destination == Destination::Originals {
        let detail = "not the cluster's: this machine connects by itself";
        (OUTSIDE, detail.to_owned())
    } else if is_by_name {
        let detail = "in no network of the session: routed when a program asks for the name";
        (UNKNOWN, detail.to_owned())
    } else {
        let detail = format!("{address} is in no network of the session");
        ("no-route", detail)
    };
    PathStep::new("route", verdict, detail, None)
}

/// What the manager says, as steps, and what helps.
fn told(to: SocketAddr, probed: &Probed, took: Duration) -> (Vec<PathStep>, Option<String>) {
    let dialled = probed.dial.as_ref();
    let asking = took.saturating_sub(dialled.map_or(Duration::ZERO, |dial| dial.took));
    let of = probed.service.as_ref().map_or_else(String::new, |service| {
        format!(", service {}.{}", service.name, service.namespace)
    });
    let word = match &probed.verdict {
        Verdict::Denied(word) => {
            let step = PathStep::new("egress", "denied", format!("{word}{of}"), Some(asking));
            return (vec![step], Some(denied(word)));
        }
        Verdict::Allowed(word) => word,
    };
    let mut steps = vec![PathStep::new(
        "egress",
        OK,
        format!("{word}{of}"),
        Some(asking),
    )];
    let none_ready = probed.service.as_ref().is_some_and(has_none_ready);
    let mut help = None;
    match dialled.map(|dial| (dial, dial.failure.as_ref())) {
        None => steps.push(PathStep::new("dial", UNKNOWN, "not dialled", None)),
        Some((dial, None)) => {
            let step = PathStep::new("dial", OK, to.to_string(), Some(dial.took));
            steps.push(step);
        }
        Some((dial, Some(failure))) => {
            // Nodes refuse or drop what goes to a Service that has nobody behind it.
            let verdict = match failure.kind {
                FailureKind::Refused | FailureKind::Timeout | FailureKind::HostUnreachable
                    if none_ready =>
                {
                    "no-ready-endpoints"
                }
                kind => kind.word(),
            };
            help = Some(failed(verdict, probed.service.as_ref()));
            let detail = format!("{to}: {failure}");
            steps.push(PathStep::new("dial", verdict, detail, Some(dial.took)));
        }
    }
    if let Some(service) = &probed.service {
        steps.push(endpoints(service));
    }
    (steps, help)
}

fn has_none_ready(service: &Service) -> bool {
    matches!(service.endpoints, Endpoints::Known { ready: 0, .. })
}

fn endpoints(service: &Service) -> PathStep {
    let (verdict, detail) = match &service.endpoints {
        Endpoints::Known { ready: 0, total } => {
            ("no-ready-endpoints", format!("0 of {total} ready"))
        }
        Endpoints::Known { ready, total } => (OK, format!("{ready} of {total} ready")),
        Endpoints::Unknown(why) => (UNKNOWN, why.clone()),
    };
    PathStep::new("endpoints", verdict, detail, None)
}

/// What helps against a denial.
fn denied(word: &str) -> String {
    match word {
        "namespace-not-granted" => {
            "the session has no right to that namespace: kubebridge namespace add NAMESPACE"
        }
        "no-such-port" => "the service has no such port: kubectl get service shows those it has",
        _ => {
            "the manager's --egress does not allow it: reach it by a service, or ask whoever runs the manager"
        }
    }
    .to_owned()
}

/// What helps against a dial that failed.
fn failed(verdict: &str, service: Option<&Service>) -> String {
    let (namespace, name) = service.map_or(("NAMESPACE", "SERVICE"), |service| {
        (service.namespace.as_str(), service.name.as_str())
    });
    match verdict {
        "no-ready-endpoints" => format!(
            "no pod of the service is ready: kubectl -n {namespace} get endpointslices -l kubernetes.io/service-name={name}"
        ),
        "refused" => {
            "nothing listens there: compare the service's targetPort with what the container listens on; a mesh may refuse what has no certificate of its own".to_owned()
        }
        "timeout" => format!(
            "packets are dropped: a NetworkPolicy of {namespace} has to admit the traffic-manager's pod, and a service mesh with strict mTLS has to except the port"
        ),
        "host-unreachable" | "network-unreachable" => {
            "the manager's pod has no way there: see the cluster's network".to_owned()
        }
        "limit" => "too many connections of this session: close some, or try again".to_owned(),
        "session" | "gone" => "the session is being renewed: try again".to_owned(),
        _ => "the manager's log tells more".to_owned(),
    }
}

/// What helps where the laptop's side says what is wrong.
fn help_for(verdict: &str, target: &Target) -> Option<String> {
    Some(match verdict {
        "no-such-name" => "kubebridge routes shows the services of the session".to_owned(),
        "not-resolved" => format!(
            "kubebridge dns trace {} tells how it was asked",
            target.host
        ),
        "no-route" => "connect with --include-cidr to reach it, or by another name".to_owned(),
        "manager-unreachable" => "kubebridge status tells why".to_owned(),
        "not-told" => "upgrade the traffic-manager: kubebridge upgrade".to_owned(),
        "no-ready-endpoints" => "kubectl get endpointslices shows who is not ready".to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
