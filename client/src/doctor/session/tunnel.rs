//! `session` and `tunnel`: whether it is connected, and whether the manager answers.

use crate::doctor::{Check, Finding};
use crate::failure::Exit;
use crate::status::{StatusReport, TunnelReport};

/// Older than this the last echo of an idle session should not be: two are missed by then.
const OLD_MILLIS: u64 = 10_000;
/// A session is slow to use over a way that is slower than this.
const SLOW_MICROS: u64 = 500_000;

/// Judges the session as a whole.
pub(super) fn session(report: &StatusReport) -> Finding {
    let check = Check::Session;
    let manager = report.manager_version.as_deref().unwrap_or("unknown");
    let seen = [
        format!("state {}", report.state),
        format!("manager {} at {}", manager, report.manager),
        format!("client {}", report.client_version),
    ];
    let finding = match report.state.as_str() {
        "connected" => match &report.skew {
            Some(skew) => Finding::warn(check, "skew", skew.clone())
                .help("kubebridge upgrade brings the manager to this version"),
            None => Finding::ok(check, "connected", "connected, both of one version"),
        },
        "degraded" => Finding::fail(
            check,
            "degraded",
            "the manager does not answer: names of the cluster are old or fail, no flow opens",
        )
        .exiting(Exit::Unreachable)
        .help("kubectl -n kubebridge get pods; it reconnects by itself"),
        state => {
            let doing = report.doing.as_ref();
            let doing = doing.map_or_else(String::new, |doing| format!(" ({doing})"));
            Finding::note(check, "not-connected", format!("{state}{doing}"))
        }
    };
    finding.seen(seen)
}

/// Judges the way of the control connection.
pub(super) fn tunnel(report: Option<&TunnelReport>) -> Finding {
    let check = Check::Tunnel;
    let Some(tunnel) = report else {
        return Finding::skipped(check, "it has not been connected yet");
    };
    if !tunnel.up {
        let reason = tunnel.reason.as_deref().unwrap_or("no reason is known");
        let down = tunnel.down_millis.unwrap_or_default() / 1000;
        let why = format!("the manager has not answered for {down} s: {reason}");
        return Finding::fail(check, "down", why)
            .help("kubectl -n kubebridge get pods, and whether the API server is reached");
    }
    let age = tunnel.echo_age_millis.unwrap_or_default();
    let round_trip = tunnel.round_trip_micros.unwrap_or_default();
    let words = format!(
        "the last echo took {} ms, {}.{} s ago",
        round_trip / 1000,
        age / 1000,
        age % 1000 / 100
    );
    if age > OLD_MILLIS {
        Finding::warn(check, "old-echo", words).help("kubebridge status shows whether it recovers")
    } else if round_trip > SLOW_MICROS {
        Finding::warn(check, "slow", words).help("the way to the API server is slow")
    } else {
        Finding::ok(check, "up", words)
    }
}
