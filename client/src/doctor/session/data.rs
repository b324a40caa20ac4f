//! `data-connections` and `flows`: how the data plane does, and what became of flows so far.

use crate::doctor::{Check, Finding};
use crate::flows::{ConnectionStatus, FlowsStatus};

/// A flow is slow over a connection that is slower than this.
const SLOW_MICROS: u64 = 500_000;

/// Judges the connections; there is nothing to say before the session is that far.
pub(super) fn connections(status: Option<&FlowsStatus>) -> Option<Finding> {
    let check = Check::DataConnections;
    let status = status?;
    let seen = status.connections.iter().map(words);
    let down = status
        .failures
        .get("no-connection")
        .copied()
        .unwrap_or_default();
    let finding = if status.connections.is_empty() && (status.open > 0 || down > 0) {
        let why = format!(
            "there is none, {} flows wait, {down} failed for want of one",
            status.open
        );
        Finding::fail(check, "none", why)
            .help("kubebridge status; kubectl -n kubebridge get pods; a proxy in between may limit connections")
    } else if status.connections.is_empty() {
        Finding::ok(check, "unused", "none yet: the first flow makes one")
    } else if let Some(slow) = slowest(status).filter(|one| one.round_trip_micros > SLOW_MICROS) {
        Finding::warn(check, "slow", words(slow)).help("the way to the API server is slow")
    } else {
        let count = status.connections.len();
        let millis = slowest(status).map_or(0, |one| one.round_trip_micros / 1000);
        let s = if count == 1 { "" } else { "s" };
        Finding::ok(
            check,
            "up",
            format!("{count} connection{s}, echo {millis} ms at most"),
        )
    };
    let replaced = (status.replaced > 0).then(|| format!("{} replaced so far", status.replaced));
    Some(finding.seen(seen).seen(replaced))
}

fn slowest(status: &FlowsStatus) -> Option<&ConnectionStatus> {
    let all = status.connections.iter();
    all.max_by_key(|one| one.round_trip_micros)
}

fn words(one: &ConnectionStatus) -> String {
    format!(
        "to {}: {} flows, echo {} ms",
        one.place,
        one.flows,
        one.round_trip_micros / 1000
    )
}

/// Judges what is counted.
pub(super) fn flows(status: Option<&FlowsStatus>) -> Option<Finding> {
    let check = Check::Flows;
    let status = status?;
    let failures = status.failures.iter();
    let mut seen: Vec<_> = failures
        .map(|(word, count)| format!("{count} {word}: {}", meaning(word)))
        .collect();
    for (count, what) in [
        (
            status.lost,
            "reset because the pod of the manager they were in is gone, or nothing came in time",
        ),
        (
            status.resumed.saturating_sub(status.moved),
            "went on over another connection",
        ),
        (
            status.dropped_datagrams,
            "datagrams dropped because a queue was full",
        ),
    ] {
        if count > 0 {
            seen.push(format!("{count} {what}"));
        }
    }
    let is_ours = |word: &str| {
        [
            "limit",
            "too-many",
            "session",
            "gone",
            "no-connection",
            "internal",
        ]
        .contains(&word)
    };
    let ours: Vec<_> = status
        .failures
        .keys()
        .filter(|word| is_ours(word))
        .collect();
    let sum = format!("{} open, {} opened", status.open, status.opened);
    let finding = if status.lost > 0 {
        let why = format!(
            "{sum}, {} reset with the manager's pod or its connections",
            status.lost
        );
        Finding::warn(check, "lost", why).help(
            "flows end with the manager's pod: open them again; kubectl -n kubebridge get pods",
        )
    } else if let Some(word) = ours.first() {
        let why = format!("{sum}, some were not: {}", meaning(word));
        Finding::warn(check, "not-opened", why).help(help(word))
    } else if !seen.is_empty() {
        Finding::note(check, "failures", format!("{sum}, and what else there was"))
    } else {
        Finding::ok(check, "well", sum)
    };
    Some(finding.seen(seen))
}

/// What a failure of a flow means, in words.
fn meaning(word: &str) -> &'static str {
    match word {
        "refused" => "nothing listens there",
        "timeout" => "the far end is silent",
        "host-unreachable" | "network-unreachable" => "the cluster has no way there",
        "denied" => "the manager does not allow it",
        "limit" => "the manager's limit of flows or dials is reached",
        "too-many" => "the session's limit of flows is reached",
        "session" => "the session or its tokens had expired",
        "gone" => "the flow's pod is gone",
        "no-connection" => "no data connection could be had",
        _ => "the manager's log tells",
    }
}

fn help(word: &str) -> &'static str {
    match word {
        "limit" | "too-many" => "close some flows; --flows-per-session of the manager allows more",
        "session" => "kubebridge status shows until when tokens are good",
        "no-connection" => "kubectl -n kubebridge get pods",
        _ => "kubectl -n kubebridge logs deploy/traffic-manager",
    }
}
