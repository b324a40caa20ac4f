//! The health of the upstreams, put into words, JSON and messages for those who ask about it.
//!
//! Which state an upstream is in, the `dns` crate decides.

use std::time::Duration;

use kubebridge_dns::upstreams::{UpstreamState, UpstreamStatus, Upstreams};
use kubebridge_proto::upstreams as told;
use tokio::time::Instant;

pub mod ask;
pub mod report;

/// Returns the statuses as laptops are told them.
#[must_use]
pub fn statuses(set: &Upstreams, now: Instant) -> Vec<told::UpstreamStatus> {
    let status = |status: &UpstreamStatus| told::UpstreamStatus {
        id: status.id,
        spec: status.spec.to_string(),
        state: match status.state {
            UpstreamState::Unknown => told::UpstreamState::Unknown,
            UpstreamState::Healthy => told::UpstreamState::Healthy,
            UpstreamState::Unhealthy => told::UpstreamState::Unhealthy,
            UpstreamState::Looped => told::UpstreamState::Looped,
        },
        fails: status.fails,
        last_error: status.last_error.clone(),
        rtt: status.rtt,
        last_ok: ago(status, now),
        looped_zones: status
            .looped_zones
            .iter()
            .map(ToString::to_string)
            .collect(),
    };
    set.status().iter().map(status).collect()
}

/// Tells whether names can be resolved through an upstream: through one that leads back to us for
/// some zones, all others can.
#[must_use]
pub fn is_good(status: &UpstreamStatus) -> bool {
    match status.state {
        UpstreamState::Healthy => true,
        UpstreamState::Looped => !status.looped_zones.iter().any(|zone| zone.is_root()),
        UpstreamState::Unknown | UpstreamState::Unhealthy => false,
    }
}

/// Says how an upstream does, in a line.
#[must_use]
pub fn words(status: &UpstreamStatus) -> String {
    match status.state {
        UpstreamState::Unknown => "not heard yet".to_owned(),
        UpstreamState::Healthy => "answers".to_owned(),
        UpstreamState::Unhealthy => match &status.last_error {
            Some(error) => format!("down: {error}"),
            None => "down".to_owned(),
        },
        UpstreamState::Looped => {
            let zones: Vec<_> = status
                .looped_zones
                .iter()
                .map(ToString::to_string)
                .collect();
            format!("leads back to us for {}", zones.join(" "))
        }
    }
}

/// Returns how long ago an upstream last replied.
fn ago(status: &UpstreamStatus, now: Instant) -> Option<Duration> {
    let last = status.last_ok?;
    Some(now.saturating_duration_since(last))
}

#[cfg(test)]
pub(crate) mod tests;
