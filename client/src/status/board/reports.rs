//! What is on the board as `status` and `routes` tell it. Pure.

use std::error::Error;
use std::fmt::Write;
use std::time::SystemTime;

use kubebridge_platform::HostError;
use kubebridge_proto::routes::{NamespaceState, PortProtocol, ServicePort, ServiceRoute};
use tokio::time::Instant;

use super::{Facts, Phase, Repairs};
use crate::cluster::{Authorisation, timestamp};
use crate::control::{Opened, Tunnel};
use crate::routes::{NamespaceRoutes, RouteTable, kind_label};
use crate::session::{Health, State};
use crate::status::routing::{HostRouteReport, RoutingReport};
use crate::status::{
    CredentialsReport, NamespaceReport, RepairReport, RepairsReport, ServiceReport, TokensReport,
    TunnelReport,
};

pub(super) fn phase_words(phase: &Phase) -> (&'static str, Option<&'static str>) {
    match phase {
        Phase::Running(State::Ready) => ("connecting", None),
        Phase::Running(State::Connecting(step, _)) => ("connecting", Some(step.label())),
        Phase::Running(State::Connected(Health::Good)) => ("connected", None),
        Phase::Running(State::Connected(Health::Degraded)) => ("degraded", None),
        Phase::Running(State::Undoing(undo, _)) => ("ending", Some(undo.label())),
        Phase::Running(State::Ended(_)) | Phase::Over(_) => ("ending", None),
    }
}

/// Counts the tasks of the runtime that asks; outside of one there are none.
pub(super) fn tasks() -> usize {
    let runtime = tokio::runtime::Handle::try_current();
    runtime.map_or(0, |runtime| runtime.metrics().num_alive_tasks())
}

pub(super) fn repairs(repairs: &Repairs, now: Instant) -> RepairsReport {
    let last = repairs.last.iter().map(|repair| RepairReport {
        what: repair.what.clone(),
        unix_seconds: repair.unix_seconds,
        ago_seconds: now.saturating_duration_since(repair.at).as_secs(),
    });
    RepairsReport {
        count: repairs.count,
        last: last.collect(),
        troubles: repairs.troubles.clone(),
    }
}

pub(super) fn trouble_words(trouble: &HostError) -> String {
    let mut words = trouble.to_string();
    let mut cause: Option<&dyn Error> = trouble.source();
    while let Some(error) = cause {
        // Writing to a String cannot fail.
        let _ = write!(words, ": {error}");
        cause = error.source();
    }
    words
}

pub(super) fn tunnel_report(tunnel: &Tunnel, now: Instant) -> TunnelReport {
    let millis = |since: &Instant| {
        let age = now.saturating_duration_since(*since);
        u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
    };
    match tunnel {
        Tunnel::Up { seen, round_trip } => TunnelReport {
            up: true,
            echo_age_millis: Some(millis(seen)),
            round_trip_micros: round_trip.and_then(|time| u64::try_from(time.as_micros()).ok()),
            down_millis: None,
            reason: None,
        },
        Tunnel::Down { since, reason } => TunnelReport {
            up: false,
            echo_age_millis: None,
            round_trip_micros: None,
            down_millis: Some(millis(since)),
            reason: Some(reason.clone()),
        },
    }
}

pub(super) fn credentials_report(authorisation: &Authorisation) -> CredentialsReport {
    let Authorisation {
        user,
        until,
        trouble,
        renew,
    } = authorisation.clone();
    CredentialsReport {
        user,
        until,
        trouble,
        renew,
    }
}

pub(super) fn tokens_report(opened: Opened, now: Instant) -> Option<TokensReport> {
    let (expiry, renewal) = opened.life()?;
    let left = expiry.saturating_duration_since(now);
    Some(TokensReport {
        until: timestamp(SystemTime::now() + left),
        seconds_left: left.as_secs(),
        renewal_seconds: renewal.saturating_duration_since(now).as_secs(),
    })
}

pub(super) fn namespaces(table: &RouteTable) -> Vec<NamespaceReport> {
    table
        .namespaces()
        .map(|(namespace, routes)| NamespaceReport {
            namespace: namespace.to_owned(),
            state: state_words(routes),
            help: routes.lost().and_then(|lost| lost.help.clone()),
            services: routes.len(),
        })
        .collect()
}

fn state_words(routes: &NamespaceRoutes) -> String {
    if let Some(lost) = routes.lost() {
        return format!("no token: {}", lost.why);
    }
    match routes.state() {
        None => "unknown".to_owned(),
        Some(NamespaceState::Synced) => "synced".to_owned(),
        Some(NamespaceState::Waiting) => "waiting".to_owned(),
        Some(NamespaceState::Forbidden { verb, resource }) => {
            format!("forbidden: {verb} {resource}")
        }
        Some(NamespaceState::NoSource) => "no source".to_owned(),
    }
}

pub(super) fn service(route: &ServiceRoute) -> ServiceReport {
    ServiceReport {
        namespace: route.namespace.clone(),
        name: route.name.clone(),
        kind: kind_label(route.kind).to_owned(),
        cluster_ips: route.cluster_ips.iter().map(ToString::to_string).collect(),
        ports: route.ports.iter().map(port).collect(),
        external_name: route.external_name.clone(),
    }
}

fn port(port: &ServicePort) -> String {
    let protocol = match port.protocol {
        PortProtocol::Tcp => "TCP",
        PortProtocol::Udp => "UDP",
        PortProtocol::Sctp => "SCTP",
    };
    match port.name.as_str() {
        "" => format!("{}/{protocol}", port.port),
        name => format!("{name}:{}/{protocol}", port.port),
    }
}

/// The IP routes, with the hosts among them by the time of now.
pub(super) fn routing(facts: &Facts, now: Instant) -> RoutingReport {
    let hosts = facts.host_routes.iter();
    let hosts = hosts.map(|(address, name, until)| HostRouteReport {
        address: address.to_string(),
        name: name.clone(),
        seconds: until.saturating_duration_since(now).as_secs(),
    });
    RoutingReport {
        hosts: hosts.collect(),
        ..facts.routing.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn tokens_are_told_with_their_end_and_their_renewal() {
        let at = Instant::now();
        let seconds = Duration::from_secs;
        let opened = Opened {
            at,
            expires_in: Some(seconds(3600)),
        };
        for (passed, left, renewal) in [(0, 3600, 2880), (3000, 600, 0), (4000, 0, 0)] {
            let report = tokens_report(opened, at + seconds(passed)).unwrap();
            let told = (report.seconds_left, report.renewal_seconds);
            assert_eq!(told, (left, renewal), "after {passed} s");
            assert!(report.until.ends_with('Z'), "{}", report.until);
        }
        let none = Opened {
            at,
            expires_in: None,
        };
        assert_eq!(tokens_report(none, at), None);
    }
}
