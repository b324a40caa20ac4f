//! How a session's data plane stands, as plain data for people and programs.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::abrupt::AbruptStatus;
use super::shared::Shared;

/// One data connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// Which of the managers it leads to, where there are several.
    pub place: String,
    /// Open flows.
    pub flows: usize,
    /// The last echo's time, in microseconds.
    pub round_trip_micros: u64,
    /// Milliseconds since it last echoed, or octets came in an echo's place.
    #[serde(default)]
    pub echo_age_millis: u64,
    /// Octets sent.
    pub sent: u64,
    /// Octets received.
    pub received: u64,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowsStatus {
    /// The connections that work.
    pub connections: Vec<ConnectionStatus>,
    /// Flows open now.
    pub open: usize,
    /// Flows opened so far.
    pub opened: u64,
    /// Flows that went on over another connection, each time.
    pub resumed: u64,
    /// Of these, moved to spread the load.
    pub moved: u64,
    /// Flows reset because no other connection came in time, or the manager broke the protocol.
    pub lost: u64,
    /// Flows that the laptop's programs reset.
    #[serde(default)]
    pub reset_here: u64,
    /// Flows that their far ends reset.
    #[serde(default)]
    pub reset_there: u64,
    /// Connections replaced.
    pub replaced: u64,
    /// Datagrams dropped because a queue was full.
    pub dropped_datagrams: u64,
    /// Octets of flows that are over, to the cluster.
    pub sent: u64,
    /// Octets of flows that are over, from the cluster.
    pub received: u64,
    /// Why flows were not opened, and how often.
    pub failures: BTreeMap<String, u64>,
    /// Destinations that reset connections before they had said anything.
    #[serde(default)]
    pub abrupt: Vec<AbruptStatus>,
}

impl FlowsStatus {
    pub(super) fn of(shared: &Shared) -> Self {
        let counters = &shared.counters;
        let ready = shared.ready.borrow();
        let connections = ready.iter().map(|connection| ConnectionStatus {
            place: connection.place.name().to_owned(),
            flows: connection.flows.load(Ordering::Relaxed),
            round_trip_micros: u64::try_from(connection.round_trip().as_micros())
                .unwrap_or(u64::MAX),
            echo_age_millis: u64::try_from(connection.echo_age().as_millis()).unwrap_or(u64::MAX),
            sent: connection.octets().sent(),
            received: connection.octets().received(),
        });
        let failures = counters.failures();
        Self {
            connections: connections.collect(),
            open: shared.open_flows(),
            opened: counters.opened.read(),
            resumed: counters.resumed.read(),
            moved: counters.moved.read(),
            lost: counters.lost.read(),
            reset_here: counters.reset_here.read(),
            reset_there: counters.reset_there.read(),
            replaced: counters.replaced.read(),
            dropped_datagrams: counters.dropped.read(),
            sent: counters.sent.read(),
            received: counters.received.read(),
            failures: failures
                .into_iter()
                .map(|(reason, count)| (reason.to_owned(), count))
                .collect(),
            abrupt: shared.abrupt.status(Instant::now()),
        }
    }
}
