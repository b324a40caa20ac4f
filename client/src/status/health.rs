//! How the parts of a session stand, one word each, so that one can tell which is at fault.
//!
//! Pure: a summary of what the report says at length.

use super::{DnsReport, HealthReport, HostsReport, NamespaceReport, RoutingReport, TunnelReport};

/// The states of namespaces from worst to best, by the first word of [`NamespaceReport::state`].
const KUBERNETES: [&str; 5] = ["no token", "forbidden", "no source", "waiting", "synced"];

/// Sums a report up.
#[must_use]
pub fn health(
    tunnel: Option<&TunnelReport>,
    namespaces: &[NamespaceReport],
    dns: &DnsReport,
    routing: &RoutingReport,
    hosts: &HostsReport,
) -> HealthReport {
    let is_up = tunnel.is_some_and(|tunnel| tunnel.up);
    let seen = kubernetes(namespaces);
    HealthReport {
        tunnel: match tunnel {
            None => "unknown",
            Some(_) if is_up => "up",
            Some(_) => "down",
        }
        .to_owned(),
        kubernetes: if is_up { seen } else { "unknown" }.to_owned(),
        routes: match seen {
            "synced" if is_up => "current",
            "unknown" => "unknown",
            _ => "stale",
        }
        .to_owned(),
        dns: match (&dns.error, dns.applied) {
            (Some(_), _) => "in trouble",
            (None, true) => "applied",
            (None, false) => "not changed",
        }
        .to_owned(),
        routing: match (&routing.error, routing.applied) {
            (Some(_), _) => "in trouble",
            (None, true) => "set",
            (None, false) => "not set",
        }
        .to_owned(),
        hosts: match (&hosts.error, hosts.form.as_str()) {
            (Some(_), _) => "in trouble",
            (None, "" | "off") => "off",
            (None, _) => "written",
        }
        .to_owned(),
    }
}

/// The worst state of a namespace; unknown as long as one is.
fn kubernetes(namespaces: &[NamespaceReport]) -> &'static str {
    let place = |one: &NamespaceReport| {
        let is = |word: &&str| one.state.starts_with(*word);
        KUBERNETES.iter().position(is)
    };
    let places: Option<Vec<_>> = namespaces.iter().map(place).collect();
    let worst = places.and_then(|places| places.into_iter().min());
    worst.map_or("unknown", |place| KUBERNETES[place])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespaces(states: &[&str]) -> Vec<NamespaceReport> {
        let report = |state: &&str| NamespaceReport {
            namespace: "default".to_owned(),
            state: (*state).to_owned(),
            help: None,
            services: 1,
        };
        states.iter().map(report).collect()
    }

    fn tunnel(up: bool) -> TunnelReport {
        TunnelReport {
            up,
            echo_age_millis: None,
            round_trip_micros: None,
            down_millis: None,
            reason: None,
        }
    }

    #[test]
    fn tunnel_kubernetes_and_routes_are_told_apart() {
        let forbidden = "forbidden: list services";
        let table: [(Option<bool>, &[&str], [&str; 3]); 8] = [
            (None, &[], ["unknown", "unknown", "unknown"]),
            (
                Some(true),
                &["synced", "synced"],
                ["up", "synced", "current"],
            ),
            (
                Some(true),
                &["synced", forbidden],
                ["up", "forbidden", "stale"],
            ),
            (
                Some(true),
                &["synced", "waiting"],
                ["up", "waiting", "stale"],
            ),
            (Some(true), &["no source"], ["up", "no source", "stale"]),
            (
                Some(true),
                &["synced", "no token: no right", forbidden],
                ["up", "no token", "stale"],
            ),
            (
                Some(true),
                &["synced", "unknown"],
                ["up", "unknown", "unknown"],
            ),
            (Some(false), &["synced"], ["down", "unknown", "stale"]),
        ];
        for (up, states, wanted) in table {
            let tunnel = up.map(tunnel);
            let found = health(
                tunnel.as_ref(),
                &namespaces(states),
                &DnsReport::default(),
                &RoutingReport::default(),
                &HostsReport::default(),
            );
            assert_eq!([found.tunnel, found.kubernetes, found.routes], wanted);
        }
    }

    #[test]
    fn dns_routing_and_hosts_stand_for_themselves() {
        let trouble = Some("bus gone".to_owned());
        let dns = |applied, error| DnsReport {
            applied,
            error,
            ..DnsReport::default()
        };
        let hosts = |form: &str, error| HostsReport {
            form: form.to_owned(),
            error,
            ..HostsReport::default()
        };
        let routing = |applied, error| RoutingReport {
            applied,
            error,
            ..RoutingReport::default()
        };
        let table = [
            (
                dns(true, None),
                routing(true, None),
                hosts("short", None),
                ["applied", "set", "written"],
            ),
            (
                dns(false, None),
                routing(false, None),
                hosts("off", None),
                ["not changed", "not set", "off"],
            ),
            (
                dns(true, trouble.clone()),
                routing(true, trouble.clone()),
                hosts("short", trouble),
                ["in trouble", "in trouble", "in trouble"],
            ),
        ];
        for (dns, routing, hosts, wanted) in table {
            let found = health(Some(&tunnel(true)), &[], &dns, &routing, &hosts);
            assert_eq!([found.dns, found.routing, found.hosts], wanted);
        }
    }
}
