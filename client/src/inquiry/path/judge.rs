//! What is known of a way, as steps and verdicts. Pure.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use kubebridge_platform::net::IpNet;
use kubebridge_proto::flow::{FailureKind, Protocol};
use kubebridge_proto::probe::{Dial, Endpoints, Heard, Probed, Service, Verdict};

use super::advice::{denied, failed};
use super::{
    AddressReport, LEFT_OUT, OK, OUTSIDE, PARTLY, PathStep, REACHABLE, RESET_AT_ONCE, UNANSWERED,
    UNKNOWN, is_well,
};
use crate::status::RoutingReport;
use crate::status::routing::HostRouteReport;
use crate::zones::Destination;

/// The verdict on a Service that nobody is ready behind.
const NO_READY: &str = "no-ready-endpoints";

/// What is first in the way; whoever was connected needs no endpoint that is ready.
pub(super) fn verdict(steps: &[PathStep]) -> String {
    let is_connected = |step: &&PathStep| step.step == "dial" && step.verdict == OK;
    let mut before = steps.iter().take_while(|step| !is_connected(step));
    let first = before.find(|step| step.is_in_the_way());
    first.map_or_else(|| REACHABLE.to_owned(), |step| step.verdict.clone())
}

/// Whether this machine sends packets for an address to the session.
pub(super) fn route(
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
    } else if let Some(net) = routing.left_out.iter().find(|one| has(&one.network)) {
        (LEFT_OUT, format!("{}: {}", net.network, net.reason))
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
pub(super) fn told(
    protocol: Protocol,
    to: SocketAddr,
    probed: &Probed,
    took: Duration,
) -> (Vec<PathStep>, Option<String>) {
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
    let mut help = None;
    match dialled {
        None => steps.push(PathStep::new("dial", UNKNOWN, "not dialled", None)),
        Some(dial) => {
            let (verdict, detail) = dial_words(protocol, to, dial, probed.service.as_ref());
            let is_open = verdict == OK || verdict == UNANSWERED;
            help = (!is_open).then(|| failed(verdict, probed.service.as_ref()));
            steps.push(PathStep::new("dial", verdict, detail, Some(dial.took)));
        }
    }
    steps.extend(probed.service.as_ref().map(endpoints));
    (steps, help)
}

/// What a dial came to.
fn dial_words(
    protocol: Protocol,
    to: SocketAddr,
    dial: &Dial,
    service: Option<&Service>,
) -> (&'static str, String) {
    let none_ready = service.is_some_and(has_none_ready);
    if let Some(failure) = &dial.failure {
        // Nodes refuse or drop what goes to a Service that has nobody behind it.
        let verdict = match failure.kind {
            FailureKind::Refused | FailureKind::Timeout | FailureKind::HostUnreachable
                if none_ready =>
            {
                NO_READY
            }
            kind => kind.word(),
        };
        return (verdict, format!("{to}: {failure}"));
    }
    match (protocol, dial.heard) {
        (Protocol::Tcp, Some(Heard::Reset)) => {
            (RESET_AT_ONCE, format!("{to}: connected, and reset at once"))
        }
        (Protocol::Tcp, Some(Heard::Closed)) => (
            RESET_AT_ONCE,
            format!("{to}: connected, and closed at once"),
        ),
        (Protocol::Tcp, Some(Heard::Answered)) => (OK, format!("{to}, which speaks first")),
        (Protocol::Tcp, Some(Heard::Nothing) | None) | (Protocol::Icmp, _) => (OK, to.to_string()),
        // No connection, nothing to close.
        (Protocol::Udp, Some(Heard::Closed | Heard::Reset)) => (OK, format!("{to} answered")),
        (Protocol::Udp, Some(Heard::Answered)) => (OK, format!("{to} answered")),
        (Protocol::Udp, Some(Heard::Nothing)) if none_ready => {
            (NO_READY, format!("{to}: no answer to an empty datagram"))
        }
        (Protocol::Udp, Some(Heard::Nothing)) => {
            let words = "neither refused nor answered an empty datagram, as most servers";
            (UNANSWERED, format!("{to}: {words}"))
        }
        (Protocol::Udp, None) => (
            UNANSWERED,
            format!("{to}: an older manager, which sends no datagram"),
        ),
    }
}

fn has_none_ready(service: &Service) -> bool {
    matches!(service.endpoints, Endpoints::Known { ready: 0, .. })
}

fn endpoints(service: &Service) -> PathStep {
    let (verdict, detail) = match &service.endpoints {
        Endpoints::Known { ready: 0, total } => (NO_READY, format!("0 of {total} ready")),
        Endpoints::Known { ready, total } => {
            let addresses: Vec<_> = service.ready.iter().map(ToString::to_string).collect();
            let listed = match (addresses.len(), *ready as usize) {
                (0, _) => String::new(),
                (some, all) if some < all => format!(": {}, …", addresses.join(", ")),
                (_, _) => format!(": {}", addresses.join(", ")),
            };
            (OK, format!("{ready} of {total} ready{listed}"))
        }
        Endpoints::Unknown(why) => (UNKNOWN, why.clone()),
    };
    PathStep::new("endpoints", verdict, detail, None)
}

/// What all addresses of a destination come to, and what helps.
///
/// Programs try one address after the other, and pass over an IPv6 address that this machine does
/// not route; one that is routed and leads nowhere costs them time at least.
pub(super) fn overall(addresses: &[AddressReport]) -> (String, Option<String>) {
    let passed_over = |one: &&AddressReport| one.verdict == LEFT_OUT && one.address.is_ipv6();
    let tried = addresses.iter().filter(|one| !passed_over(one));
    let tried: Vec<_> = tried.collect();
    let counting = match tried.as_slice() {
        [] => addresses.iter().collect(),
        _ => tried,
    };
    let well = counting.iter().find(|one| is_well(&one.verdict));
    let ill = counting.iter().find(|one| !is_well(&one.verdict));
    match (well, ill) {
        (Some(_), Some(ill)) => {
            let help = ill.help.as_ref().map(|help| format!(": {help}"));
            let help = format!(
                "{} is {}{}",
                ill.address,
                ill.verdict,
                help.unwrap_or_default()
            );
            (PARTLY.to_owned(), Some(help))
        }
        (Some(one), None) | (None, Some(one)) => (one.verdict.clone(), one.help.clone()),
        (None, None) => (UNKNOWN.to_owned(), None),
    }
}
