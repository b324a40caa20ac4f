//! `data-connections` and `flows`: how the data plane does, and what became of flows so far.

use crate::doctor::{Check, Finding};
use crate::flows::{ConnectionStatus, FlowsStatus};
use crate::netstack::PacketsStatus;

/// A flow is slow over a connection that is slower than this.
const SLOW_MICROS: u64 = 500_000;
/// Older than this no echo of a connection that works is: there is one each 4 s, and two that are
/// missed end it.
const OLD_MILLIS: u64 = 12_000;

/// Failures that are the session's or the manager's own, and not the destination's.
const OURS: [&str; 6] = [
    "limit",
    "too-many",
    "session",
    "gone",
    "no-connection",
    "internal",
];
/// Packets that were dropped because something of ours was full or broken.
const FULL: [&str; 6] = [
    "half-open",
    "flow-limit",
    "transmit-queue",
    "dns-limit",
    "device",
    "fragment",
];

/// Judges the connections; there is nothing to say before the session is that far.
pub(super) fn connections(status: Option<&FlowsStatus>) -> Option<Finding> {
    let check = Check::DataConnections;
    let status = status?;
    let seen = status.connections.iter().map(words);
    let down = status.failures.get("no-connection").copied();
    let down = down.unwrap_or_default();
    let all = &status.connections;
    let slowest = all.iter().max_by_key(|one| one.round_trip_micros);
    let oldest = all.iter().max_by_key(|one| one.echo_age_millis);
    let is_old = |one: &&ConnectionStatus| one.echo_age_millis > OLD_MILLIS;
    let is_slow = |one: &&ConnectionStatus| one.round_trip_micros > SLOW_MICROS;
    let finding = if all.is_empty() && (status.open > 0 || down > 0) {
        let why = format!(
            "there is none: {} flows wait, {down} failed for want of one",
            status.open
        );
        Finding::fail(check, "none", why)
            .help("kubectl -n kubebridge get pods; a proxy in between may allow fewer connections")
    } else if all.is_empty() {
        Finding::ok(check, "unused", "none yet: the first flow makes one")
    } else if let Some(old) = oldest.filter(is_old) {
        Finding::warn(check, "old-echo", words(old))
            .help("it is replaced when two echoes are missed")
    } else if let Some(slow) = slowest.filter(is_slow) {
        Finding::warn(check, "slow", words(slow)).help("the way to the API server is slow")
    } else {
        let millis = slowest.map_or(0, |one| one.round_trip_micros / 1000);
        let s = if all.len() == 1 { "" } else { "s" };
        let why = format!("{} connection{s}, echo {millis} ms at most", all.len());
        Finding::ok(check, "up", why)
    };
    let replaced = (status.replaced > 0).then(|| format!("{} replaced so far", status.replaced));
    Some(finding.seen(seen).seen(replaced))
}

fn words(one: &ConnectionStatus) -> String {
    let place = match one.place.as_str() {
        "" => String::new(),
        place => format!("to {place}, "),
    };
    format!(
        "{place}{} flows, the last echo took {} ms, {}.{} s ago",
        one.flows,
        one.round_trip_micros / 1000,
        one.echo_age_millis / 1000,
        one.echo_age_millis % 1000 / 100
    )
}

/// Judges what is counted of flows and packets.
pub(super) fn flows(
    status: Option<&FlowsStatus>,
    packets: Option<&PacketsStatus>,
) -> Option<Finding> {
    let check = Check::Flows;
    let status = status?;
    let seen = counts(status, packets);
    let sum = format!("{} open, {} opened", status.open, status.opened);
    let has = |word: &&&str| {
        let count = status.failures.get(**word);
        count.is_some_and(|count| *count > 0)
    };
    let dropped = |word: &&&str| {
        let count = packets.and_then(|packets| packets.dropped.get(**word));
        count.is_some_and(|count| *count > 0)
    };
    let finding = if status.lost > 0 {
        let why = format!(
            "{sum}, {} reset because the manager's pod or every way to it was gone",
            status.lost
        );
        Finding::warn(check, "lost", why).help(
            "flows live in one pod of the manager: open them again; kubectl -n kubebridge get pods",
        )
    } else if let Some(word) = OURS.iter().find(has) {
        let why = format!("{sum}, some could not be: {}", meaning(word));
        Finding::warn(check, "not-opened", why).help(help(word))
    } else if let Some(word) = FULL.iter().find(dropped) {
        let why = format!("{sum}, packets were dropped: {}", dropping(word));
        Finding::warn(check, "dropped", why).help("kubebridge status counts them")
    } else if let Some(abrupt) = status.abrupt.first() {
        let why = format!(
            "{sum}; {} resets connections before it has said anything",
            abrupt.destination
        );
        let help = format!("kubebridge doctor {} follows the way", abrupt.destination);
        Finding::note(check, "reset-at-once", why).help(help)
    } else if status.failures.values().any(|count| *count > 0) || dropped(&&"outside") {
        let why = format!("{sum}; not all destinations took them");
        Finding::note(check, "failures", why).help("kubebridge doctor HOST:PORT follows the way")
    } else {
        Finding::ok(check, "well", sum)
    };
    Some(finding.seen(seen))
}

/// What there was beside flows that went well.
fn counts(status: &FlowsStatus, packets: Option<&PacketsStatus>) -> Vec<String> {
    let failures = status.failures.iter();
    let failures = failures.map(|(word, count)| (*count, format!("{word}: {}", meaning(word))));
    let own = [
        (
            status.lost,
            "reset with the manager's pod or the ways to it",
        ),
        (status.reset_there, "reset by the far end"),
        (
            status.dropped_datagrams,
            "datagrams dropped because a queue was full",
        ),
    ];
    let own = own.map(|(count, what)| (count, what.to_owned()));
    let abrupt = status.abrupt.iter().map(|one| {
        let words = format!("reset by {} at once", one.destination);
        (one.count, words)
    });
    let dropped = packets.into_iter().flat_map(|packets| &packets.dropped);
    let dropped =
        dropped.map(|(word, count)| (*count, format!("packets dropped: {}", dropping(word))));
    failures
        .chain(own)
        .chain(abrupt)
        .chain(dropped)
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect()
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
        "gone" => "the manager's pod with the flow is gone",
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

/// Why a packet was dropped, in words.
fn dropping(word: &str) -> &'static str {
    match word {
        "outside" => "to addresses that the session does not carry",
        "protocol" => "of a protocol that is not carried",
        "no-flow" => "of connections that are over",
        "not-unicast" => "to groups",
        "malformed" => "that make no sense",
        "half-open" => "too many connections were being opened at once",
        "flow-limit" => "the session's limit of flows is reached",
        "datagram-queue" => "datagrams came faster than they could be sent",
        "transmit-queue" => "the machine did not take what came for it",
        "dns-limit" => "too many names were asked for at once",
        "device" => "the link did not take them",
        "fragment" | "fragment-timeout" => "incomplete ones",
        _ => "for a reason this version does not know",
    }
}
