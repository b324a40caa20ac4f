//! Gauges of the upstreams, by their place in the configuration and their protocol.
//!
//! The written form of an upstream is a label of one gauge only, for joining: it is configuration,
//! and no name that anybody asked for.

use std::fmt;
use std::sync::Arc;

use kubebridge_dns::upstreams::{UpstreamState, UpstreamStatus, Upstreams};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::time::Instant;

use crate::upstreams::report;

/// The set whose members are told.
#[derive(Debug)]
pub(super) struct UpstreamReadings(pub(super) Arc<Upstreams>);

const STATES: [UpstreamState; 4] = [
    UpstreamState::Unknown,
    UpstreamState::Healthy,
    UpstreamState::Unhealthy,
    UpstreamState::Looped,
];

/// One upstream with what its labels are made of.
struct Labelled<'a> {
    index: String,
    protocol: &'static str,
    status: &'a UpstreamStatus,
}

impl<'a> From<(usize, &'a UpstreamStatus)> for Labelled<'a> {
    fn from((index, status): (usize, &'a UpstreamStatus)) -> Self {
        Self {
            index: index.to_string(),
            protocol: report::protocol(status.spec.protocol),
            status,
        }
    }
}

/// A gauge: its name, its help, and what it reads.
type Reading = (
    &'static str,
    &'static str,
    fn(&UpstreamStatus, Instant) -> Option<f64>,
);

/// The gauges with one number for each upstream.
const READINGS: [Reading; 3] = [
    (
        "upstream_failures",
        "Failures of an upstream since it last replied",
        |status, _| Some(f64::from(status.fails)),
    ),
    (
        "upstream_rtt_seconds",
        "Smoothed round trip to an upstream",
        |status, _| status.rtt.map(|rtt| rtt.as_secs_f64()),
    ),
    (
        "upstream_last_reply_seconds",
        "Time since the last reply of an upstream",
        |status, now| {
            let last = status.last_ok?;
            Some(now.saturating_duration_since(last).as_secs_f64())
        },
    ),
];

impl Collector for UpstreamReadings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let statuses = self.0.status();
        let upstreams: Vec<_> = statuses.iter().enumerate().map(Labelled::from).collect();
        info(&mut encoder, &upstreams)?;
        states(&mut encoder, &upstreams)?;
        let now = Instant::now();
        for (name, help, read) in READINGS {
            let kind = ConstGauge::new(0.0).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for one in &upstreams {
                let labels = [("index", one.index.as_str()), ("protocol", one.protocol)];
                if let Some(value) = read(one.status, now) {
                    ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        Ok(())
    }
}

fn info(encoder: &mut DescriptorEncoder<'_>, upstreams: &[Labelled<'_>]) -> fmt::Result {
    let help = "An upstream as it is configured; always 1";
    let one = ConstGauge::new(1_i64);
    let mut family = encoder.encode_descriptor("upstream_info", help, None, one.metric_type())?;
    for upstream in upstreams {
        let spec = upstream.status.spec.to_string();
        let labels = [
            ("index", upstream.index.as_str()),
            ("protocol", upstream.protocol),
            ("upstream", &spec),
        ];
        one.encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn states(encoder: &mut DescriptorEncoder<'_>, upstreams: &[Labelled<'_>]) -> fmt::Result {
    let help = "1 for the state that an upstream is in, 0 for the others";
    let kind = ConstGauge::new(0_i64).metric_type();
    let mut family = encoder.encode_descriptor("upstream_state", help, None, kind)?;
    for upstream in upstreams {
        for state in STATES {
            let labels = [
                ("index", upstream.index.as_str()),
                ("protocol", upstream.protocol),
                ("state", report::state(state)),
            ];
            let value = ConstGauge::new(i64::from(upstream.status.state == state));
            value.encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}
