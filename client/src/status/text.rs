//! Status and routes for people.

use std::fmt::Write;

use kubebridge_platform::Recovered;

use super::dataplane::dataplane_rows;
use super::routing::routing_rows;
use super::{
    CredentialsReport, HealthReport, HostsListReport, Leftovers, NamespaceReport, NamespacesReport,
    RepairsReport, RoutesReport, StaleReport, StatusReport, TokensReport, TunnelReport,
    WithheldReport,
};

/// Shows how a session stands.
#[must_use]
pub fn status_text(report: &StatusReport) -> String {
    let mut rows = vec![
        (
            "session",
            format!("{} (pid {})", report.session, report.pid),
        ),
        ("state", state(report)),
        ("manager", manager(report)),
        ("namespaces", report.namespaces.join(", ")),
    ];
    rows.extend(
        report
            .cluster_domain
            .clone()
            .map(|domain| ("cluster domain", domain)),
    );
    rows.extend(
        report
            .tunnel
            .as_ref()
            .map(|found| ("tunnel", tunnel(found))),
    );
    rows.extend(
        report
            .tokens
            .as_ref()
            .map(|found| ("tokens", tokens(found))),
    );
    rows.extend(credentials(report).map(|words| ("credentials", words)));
    rows.extend(stale(&report.stale).map(|words| ("stale answers", words)));
    rows.push(("health", health(&report.health)));
    rows.extend(dns_rows(report));
    rows.extend(routing_rows(&report.routing));
    rows.push(("hosts", hosts(report)));
    let conflicts = &report.hosts.conflicts;
    rows.extend(
        conflicts
            .iter()
            .map(|one| ("  left alone", format!("{}: {}", one.name, one.reason))),
    );
    rows.extend(report.hosts.error.clone().map(|error| ("  error", error)));
    let namespaces = report.kubernetes.iter();
    rows.extend(namespaces.map(|namespace| ("routes", of_namespace(namespace))));
    rows.extend(repair_rows(&report.repairs));
    rows.extend(
        report
            .withheld
            .as_ref()
            .map(|one| ("other session", withheld(one))),
    );
    rows.extend(dataplane_rows(report));
    rows.extend(report.log.clone().map(|log| ("log", log)));
    let mut text = String::new();
    for (label, value) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{label:<18}{value}");
    }
    text
}

fn state(report: &StatusReport) -> String {
    let doing = report.doing.as_ref().map(|doing| format!(" ({doing})"));
    format!(
        "{}{}, for {} s",
        report.state,
        doing.unwrap_or_default(),
        report.uptime_seconds
    )
}

fn manager(report: &StatusReport) -> String {
    let version = report
        .manager_version
        .as_ref()
        .map(|version| format!(" (version {version})"));
    let skew = report.skew.as_ref().map(|skew| format!("; {skew}"));
    format!(
        "{}{}{}",
        report.manager,
        version.unwrap_or_default(),
        skew.unwrap_or_default()
    )
}

fn of_namespace(report: &NamespaceReport) -> String {
    let NamespaceReport {
        namespace,
        state,
        help,
        services,
    } = report;
    match help {
        Some(help) => format!("{namespace}: {state}; {help}"),
        None => format!("{namespace}: {state}, {services} services"),
    }
}

/// Shows the namespaces of a session after a change.
#[must_use]
pub fn namespaces_text(report: &NamespacesReport) -> String {
    let mut text = format!("namespaces: {}\n", report.namespaces.join(", "));
    for namespace in &report.kubernetes {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", of_namespace(namespace));
    }
    text
}

fn tokens(tokens: &TokensReport) -> String {
    let TokensReport {
        until,
        seconds_left,
        renewal_seconds,
    } = tokens;
    match (seconds_left, renewal_seconds) {
        (0, _) => format!("expired at {until}"),
        (_, 0) => format!("until {until}, renewal is due"),
        (_, seconds) => format!("until {until}, renewed in {} min", seconds.div_ceil(60)),
    }
}

fn credentials(report: &StatusReport) -> Option<String> {
    let CredentialsReport {
        user,
        until,
        trouble,
        renew,
    } = report.credentials.as_ref()?;
    let until = match until {
        Some(until) => format!(" until {until}"),
        None => String::new(),
    };
    Some(match trouble {
        Some(trouble) => format!("{user}{until}; {trouble}; renew them by: {renew}"),
        None => format!("{user}{until}"),
    })
}

fn health(health: &HealthReport) -> String {
    let HealthReport {
        tunnel,
        kubernetes,
        routes,
        dns,
        routing,
        hosts,
    } = health;
    format!(
        "tunnel {tunnel}, kubernetes {kubernetes}, routes {routes}, DNS {dns}, IP routes {routing}, hosts {hosts}"
    )
}

/// Says what another session has.
pub(crate) fn withheld(withheld: &WithheldReport) -> String {
    let WithheldReport {
        session,
        name,
        domains,
        hosts_names,
    } = withheld;
    let domains = match domains.as_slice() {
        [] => String::new(),
        some => format!("{}, ", some.join(", ")),
    };
    format!("{session} ({name}) came first and has {domains}{hosts_names} names for the hosts file")
}

fn stale(stale: &StaleReport) -> Option<String> {
    let StaleReport {
        serving,
        kept,
        answered,
    } = stale;
    if *serving {
        return Some(format!(
            "in use: {kept} names can be answered from before, {answered} answers given"
        ));
    }
    (*answered > 0).then(|| format!("{answered} given while the manager was out of reach"))
}

fn repair_rows(repairs: &RepairsReport) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if repairs.count > 0 {
        rows.push(("repaired", format!("{} times", repairs.count)));
    }
    rows.extend(repairs.last.iter().map(|repair| {
        (
            "  put back",
            format!("{}, {} s ago", repair.what, repair.ago_seconds),
        )
    }));
    let troubles = repairs.troubles.iter();
    rows.extend(troubles.map(|trouble| ("  trouble", trouble.clone())));
    rows
}

pub(crate) fn tunnel(tunnel: &TunnelReport) -> String {
    if tunnel.up {
        let age = tunnel.echo_age_millis.unwrap_or_default();
        let trip = tunnel
            .round_trip_micros
            .map(|micros| format!(", round trip {} ms", micros as f64 / 1000.0));
        format!("up, last echo {age} ms ago{}", trip.unwrap_or_default())
    } else {
        let since = tunnel.down_millis.unwrap_or_default() / 1000;
        format!(
            "down for {since} s: {}",
            tunnel.reason.as_deref().unwrap_or("unknown")
        )
    }
}

fn dns_rows(report: &StatusReport) -> Vec<(&'static str, String)> {
    let dns = &report.dns;
    let applied = if dns.applied {
        "points at the session"
    } else {
        "not changed"
    };
    let found = dns.found.as_deref().unwrap_or("unknown");
    let mut rows = vec![("system DNS", format!("{found}, {applied}"))];
    rows.extend(dns.link.clone().map(|link| ("link", link)));
    rows.extend(dns.resolver.clone().map(|resolver| ("resolver", resolver)));
    let lists = [
        ("domains", &dns.domains),
        ("original servers", &dns.originals),
        ("shadowed outside", &dns.shadowed),
    ];
    let shown = lists.into_iter().filter(|(_, list)| !list.is_empty());
    rows.extend(shown.map(|(label, list)| (label, list.join(", "))));
    rows.extend(dns.error.clone().map(|error| ("  error", error)));
    rows.extend(
        dns.warnings
            .iter()
            .map(|warning| ("  warning", warning.clone())),
    );
    rows
}

fn hosts(report: &StatusReport) -> String {
    format!("{}, {} lines", report.hosts.form, report.hosts.lines)
}

/// Shows what is in the hosts file for a session.
#[must_use]
pub fn hosts_text(report: &HostsListReport) -> String {
    let mut text = String::new();
    for line in &report.lines {
        let _ = writeln!(text, "{} {}", line.address, line.names.join(" "));
    }
    for conflict in &report.conflicts {
        let _ = writeln!(text, "# left alone: {}: {}", conflict.name, conflict.reason);
    }
    if let Some(error) = &report.error {
        let _ = writeln!(text, "# error: {error}");
    }
    if text.is_empty() {
        let _ = writeln!(text, "# no lines (--hosts {})", report.form);
    }
    text
}

/// Shows what was put back, one line per thing.
#[must_use]
pub(crate) fn recovered_lines(recovered: &[Recovered]) -> Vec<String> {
    let mut lines = Vec::new();
    for one in recovered {
        let session = &one.session;
        if one.changes.is_empty() {
            lines.push(format!("session {session}: nothing was in force any more"));
        }
        let changes = one.changes.iter();
        lines.extend(changes.map(|change| format!("session {session}: {change}")));
    }
    lines
}

/// Shows what dead sessions left, and what repairs it.
#[must_use]
pub(crate) fn leftover_lines(left: &Leftovers) -> Vec<String> {
    let mut lines: Vec<_> = left
        .leftovers
        .iter()
        .map(|one| {
            let changes = if one.changes.is_empty() {
                "its journal".to_owned()
            } else {
                one.changes.join(", ")
            };
            format!("left over by dead session {}: {changes}", one.session)
        })
        .collect();
    lines.extend(left.leftovers_hint.map(|hint| format!("hint: {hint}")));
    let error = left.leftovers_error.as_ref();
    lines.extend(error.map(|error| format!("leftovers of dead sessions are not known: {error}")));
    lines
}

/// Shows the Services of a session as a table.
#[must_use]
pub fn routes_text(report: &RoutesReport) -> String {
    let head = ["NAMESPACE", "NAME", "TYPE", "ADDRESS", "PORTS"].map(str::to_owned);
    let mut rows = vec![head];
    for service in &report.services {
        let address = match &service.external_name {
            Some(target) => target.clone(),
            None => service.cluster_ips.join(","),
        };
        rows.push([
            service.namespace.clone(),
            service.name.clone(),
            service.kind.clone(),
            dash(address),
            dash(service.ports.join(",")),
        ]);
    }
    let mut text = table(&rows);
    for namespace in &report.namespaces {
        if namespace.state != "synced" {
            let _ = writeln!(text, "{}: {}", namespace.namespace, namespace.state);
        }
    }
    for (label, value) in routing_rows(&report.routing) {
        let _ = writeln!(text, "{label:<18}{value}");
    }
    text
}

fn dash(text: String) -> String {
    if text.is_empty() {
        "-".to_owned()
    } else {
        text
    }
}

/// Lines cells up in columns.
pub(crate) fn table<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let mut widths = [0; COLUMNS];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"))
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    text
}
