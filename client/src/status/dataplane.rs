//! What `status` tells of connections: flows, the connections they go over, packets, the proxy.
//!
//! Plain data and its words; counting is the business of the parts themselves.

use std::fmt::Write;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::StatusReport;
use crate::flows::{ConnectionStatus, FlowsStatus};
use crate::netstack::PacketsStatus;

/// The proxy of a session. Its password is told by `env` alone.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct ProxyReport {
    /// Where it listens.
    pub address: SocketAddr,
}

/// Shows connections as rows of a label and a value.
#[must_use]
pub(super) fn dataplane_rows(report: &StatusReport) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    let proxy = report.proxy.as_ref();
    rows.extend(proxy.map(|proxy| {
        let words = format!("{}, SOCKS5 and HTTP CONNECT", proxy.address);
        ("proxy", words)
    }));
    let half_open = report.packets.as_ref().map_or(0, |one| one.half_open);
    if let Some(found) = &report.flows {
        rows.extend(flows(found, half_open).map(|words| ("flows", words)));
        let connections = found.connections.iter();
        rows.extend(connections.map(|one| ("  connection", connection(one))));
    }
    let packets = report.packets.as_ref();
    rows.extend(packets.and_then(dropped).map(|words| ("dropped", words)));
    rows
}

/// What is worth telling of the flows, once there were any.
fn flows(report: &FlowsStatus, half_open: usize) -> Option<String> {
    if report.connections.is_empty()
        && report.opened == 0
        && report.failures.is_empty()
        && half_open == 0
    {
        return None;
    }
    let mut words = format!("{} open, {} opened", report.open, report.opened);
    let counts = [
        ("half-open", half_open as u64),
        ("resumed", report.resumed),
        ("lost", report.lost),
        ("reset by programs here", report.reset_here),
        ("reset by the far end", report.reset_there),
        ("connections replaced", report.replaced),
        ("datagrams dropped", report.dropped_datagrams),
    ];
    let failures = report.failures.iter();
    let failures = failures.map(|(reason, count)| (reason.as_str(), *count));
    let all = counts.into_iter().chain(failures);
    for (what, count) in all.filter(|(_, count)| *count > 0) {
        // Writing to a String cannot fail.
        let _ = write!(words, ", {count} {what}");
    }
    Some(words)
}

fn connection(connection: &ConnectionStatus) -> String {
    let ConnectionStatus {
        place,
        flows,
        round_trip_micros,
        echo_age_millis,
        ..
    } = connection;
    let place = match place.as_str() {
        "" => String::new(),
        place => format!("{place}, "),
    };
    let trip = *round_trip_micros as f64 / 1000.0;
    format!("{place}{flows} flows, last echo {echo_age_millis} ms ago, round trip {trip} ms")
}

/// The reasons for which packets were dropped.
fn dropped(report: &PacketsStatus) -> Option<String> {
    let some = report.dropped.iter().filter(|(_, count)| **count > 0);
    let words: Vec<_> = some
        .map(|(reason, count)| format!("{count} {reason}"))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_there_was_is_told_of_flows_and_packets() {
        assert_eq!(flows(&FlowsStatus::default(), 0), None);
        let report = FlowsStatus {
            open: 1,
            opened: 9,
            reset_there: 2,
            failures: [("refused".to_owned(), 3)].into(),
            ..FlowsStatus::default()
        };
        let told = flows(&report, 4).unwrap();
        assert_eq!(
            told,
            "1 open, 9 opened, 4 half-open, 2 reset by the far end, 3 refused"
        );

        let counted = |dropped: &[(&str, u64)]| {
            let dropped = dropped.iter();
            let dropped = dropped.map(|(reason, count)| ((*reason).to_owned(), *count));
            super::dropped(&PacketsStatus {
                dropped: dropped.collect(),
                ..PacketsStatus::default()
            })
        };
        assert_eq!(counted(&[("device", 0), ("outside", 0)]), None);
        let some = counted(&[("device", 0), ("outside", 7), ("protocol", 1)]);
        assert_eq!(some.as_deref(), Some("7 outside, 1 protocol"));
    }
}
