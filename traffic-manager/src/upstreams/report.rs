//! What `/upstreams` says and `traffic-manager upstreams` prints: a JSON object, and a table of it.
//!
//! Fields may be added under the same schema; one that goes or means something else gets a new one.
//! The golden file beside the tests is the contract.

use std::net::SocketAddr;
use std::time::Duration;

use kubebridge_dns::upstream::Protocol;
use kubebridge_dns::upstreams::{UpstreamState, UpstreamStatus};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

/// Names form and meaning of the object.
pub const SCHEMA: &str = "kubebridge.upstreams/v1";

/// The upstreams in the order of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// Each upstream.
    pub upstreams: Vec<Entry>,
}

/// One upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Tells it from all others this process has had.
    pub id: u32,
    /// As it was configured.
    pub spec: String,
    /// `do53`, `dot` or `doh`.
    pub protocol: String,
    /// The address that is dialled.
    pub address: SocketAddr,
    /// The name it has to prove.
    pub server_name: Option<String>,
    /// `unknown`, `healthy`, `unhealthy` or `looped`.
    pub state: String,
    /// Failures since it last replied.
    pub fails: u32,
    /// The last failure; it stays after a recovery.
    pub last_error: Option<String>,
    /// The smoothed round trip.
    pub rtt_micros: Option<u64>,
    /// How long ago it last replied.
    pub last_ok_millis: Option<u64>,
    /// The zones for which it leads back to this manager.
    pub looped_zones: Vec<String>,
}

impl Report {
    /// Puts the statuses into the object.
    #[must_use]
    pub fn of(statuses: &[UpstreamStatus], now: Instant) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            upstreams: statuses.iter().map(|one| Entry::of(one, now)).collect(),
        }
    }

    /// Writes the object, and a line end.
    #[must_use]
    pub fn json(&self) -> String {
        // Strings, numbers and lists of them cannot fail to be JSON.
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// Tells whether names can be resolved through at least one of them.
    #[must_use]
    pub fn has_a_good_one(&self) -> bool {
        self.upstreams
            .iter()
            .any(|entry| match entry.state.as_str() {
                "healthy" => true,
                "looped" => !entry.looped_zones.iter().any(|zone| zone == "."),
                _ => false,
            })
    }

    /// Writes a table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let heading = [
            "ID",
            "STATE",
            "PROTOCOL",
            "ADDRESS",
            "SERVER NAME",
            "FAILS",
            "RTT",
            "LAST REPLY",
            "LAST ERROR",
        ];
        let mut rows = vec![heading.map(str::to_owned)];
        rows.extend(self.upstreams.iter().map(Entry::row));
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<_> = (0..heading.len()).filter_map(width).collect();
        let mut text = String::new();
        for row in &rows {
            let cells = row.iter().zip(&widths);
            let line: Vec<_> = cells
                .map(|(cell, width)| format!("{cell:width$}"))
                .collect();
            text += line.join("  ").trim_end();
            text.push('\n');
        }
        text
    }
}

impl Entry {
    fn of(status: &UpstreamStatus, now: Instant) -> Self {
        let spec = &status.spec;
        let last_ok = super::ago(status, now);
        Self {
            id: status.id,
            spec: spec.to_string(),
            protocol: protocol(spec.protocol).to_owned(),
            address: spec.address,
            server_name: spec.server_name.clone(),
            state: state(status.state).to_owned(),
            fails: status.fails,
            last_error: status.last_error.clone(),
            rtt_micros: status.rtt.map(|rtt| whole(rtt.as_micros())),
            last_ok_millis: last_ok.map(|ago| whole(ago.as_millis())),
            looped_zones: status
                .looped_zones
                .iter()
                .map(ToString::to_string)
                .collect(),
        }
    }

    fn row(&self) -> [String; 9] {
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let state = match self.looped_zones.as_slice() {
            [] => self.state.clone(),
            zones => format!("{} ({})", self.state, zones.join(" ")),
        };
        let rtt = self.rtt_micros.map(Duration::from_micros);
        let last_ok = self.last_ok_millis.map(Duration::from_millis);
        [
            self.id.to_string(),
            state,
            self.protocol.clone(),
            self.address.to_string(),
            or_none(self.server_name.clone()),
            self.fails.to_string(),
            or_none(rtt.map(|rtt| format!("{:.1} ms", rtt.as_secs_f64() * 1000.0))),
            or_none(last_ok.map(|ago| format!("{:.1} s ago", ago.as_secs_f64()))),
            or_none(self.last_error.clone()),
        ]
    }
}

/// Returns the word for a protocol.
#[must_use]
pub fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Do53 => "do53",
        Protocol::Dot => "dot",
        Protocol::Doh => "doh",
    }
}

/// Returns the word for a state.
#[must_use]
pub fn state(state: UpstreamState) -> &'static str {
    match state {
        UpstreamState::Unknown => "unknown",
        UpstreamState::Healthy => "healthy",
        UpstreamState::Unhealthy => "unhealthy",
        UpstreamState::Looped => "looped",
    }
}

fn whole(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
