//! What is counted about flows. Labels are words of short lists: no address, no Service, no session.

use kubebridge_proto::flow::{FailureKind, Meter};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// The ways flows end, as the audit log has them.
const ENDS: [&str; 10] = [
    "finished",
    "reset-by-cluster",
    "reset-by-laptop",
    "lost",
    "broken",
    "idle",
    "refused",
    "expired",
    "withdrawn",
    "shutdown",
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Protocol {
    protocol: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Direction {
    direction: &'static str,
}

/// Counts that all flows keep together.
#[derive(Debug, Clone)]
pub struct FlowCounts {
    connections: Gauge,
    open: Family<Protocol, Gauge>,
    opened: Family<Protocol, Counter>,
    refused: Family<Reason, Counter>,
    closed: Family<Reason, Counter>,
    parked: Gauge,
    resumed: Counter,
    up: Counter,
    down: Counter,
    dropped: Counter,
}

/// An open data connection; it is not counted any more when this is dropped.
#[derive(Debug)]
pub struct Connection(Gauge);

/// A flow that waits for another stream; it is not counted any more when this is dropped.
#[derive(Debug)]
pub struct Parked(Gauge);

/// An open flow.
#[derive(Debug)]
pub struct Flow<'a> {
    counts: &'a FlowCounts,
    open: Gauge,
}

impl FlowCounts {
    /// Makes all counters, and shows what can be before it is.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let counts = Self {
            connections: Gauge::default(),
            open: Family::default(),
            opened: Family::default(),
            refused: Family::default(),
            closed: Family::default(),
            parked: Gauge::default(),
            resumed: Counter::default(),
            up: Counter::default(),
            down: Counter::default(),
            dropped: Counter::default(),
        };
        let help = "Open data connections";
        registry.register("data_connections", help, counts.connections.clone());
        registry.register("flows", "Open flows, by protocol", counts.open.clone());
        let help = "Flows that were opened, by protocol";
        registry.register("flows_opened", help, counts.opened.clone());
        let help = "Flows that were not opened, by the reason told to the laptop";
        registry.register("flows_refused", help, counts.refused.clone());
        let help = "Flows that are over, by how they ended";
        registry.register("flows_closed", help, counts.closed.clone());
        let help = "Flows that lost their connection and wait for another one";
        registry.register("flows_parked", help, counts.parked.clone());
        let help = "Flows that went on over another connection";
        registry.register("flows_resumed", help, counts.resumed.clone());
        let octets = Family::<Direction, Counter>::default();
        let help = "Octets of flows that are over, by direction as seen from the laptop";
        registry.register("flow_octets", help, octets.clone());
        let help = "Datagrams dropped because a queue was full";
        registry.register("flow_datagrams_dropped", help, counts.dropped.clone());
        for kind in FailureKind::ALL {
            let label = Reason {
                reason: kind.word(),
            };
            drop(counts.refused.get_or_create_owned(&label));
        }
        for reason in ENDS {
            drop(counts.closed.get_or_create_owned(&Reason { reason }));
        }
        for protocol in ["tcp", "udp", "icmp"] {
            let label = Protocol { protocol };
            drop(counts.open.get_or_create_owned(&label));
            drop(counts.opened.get_or_create_owned(&label));
        }
        let of = |direction| octets.get_or_create_owned(&Direction { direction });
        Self {
            up: of("up"),
            down: of("down"),
            ..counts
        }
    }

    /// Counts a data connection.
    #[must_use]
    pub fn connection(&self) -> Connection {
        self.connections.inc();
        Connection(self.connections.clone())
    }

    /// Counts a flow that waits for another stream.
    #[must_use]
    pub fn parked(&self) -> Parked {
        self.parked.inc();
        Parked(self.parked.clone())
    }

    /// Returns how many flows wait for another stream.
    #[must_use]
    pub fn parked_now(&self) -> i64 {
        self.parked.get()
    }

    /// Counts the end of such a wait.
    pub fn resumed(&self, goes_on: bool) {
        self.resumed.inc_by(u64::from(goes_on));
    }

    /// Counts a flow that was not opened.
    pub fn refused(&self, reason: &'static str) {
        self.refused.get_or_create_owned(&Reason { reason }).inc();
    }

    /// Counts a flow that is open.
    #[must_use]
    pub fn flow(&self, protocol: &'static str) -> Flow<'_> {
        let label = Protocol { protocol };
        self.opened.get_or_create_owned(&label).inc();
        let open = self.open.get_or_create_owned(&label);
        open.inc();
        Flow { counts: self, open }
    }
}

impl Connection {
    /// Returns how many there are, with this one.
    #[must_use]
    pub fn open(&self) -> i64 {
        self.0.get()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Flow<'_> {
    /// Counts the end, and what was carried.
    pub fn closed(self, reason: &'static str, meter: &Meter) {
        let counts = self.counts;
        counts.closed.get_or_create_owned(&Reason { reason }).inc();
        counts.up.inc_by(meter.received());
        counts.down.inc_by(meter.sent());
        counts.dropped.inc_by(meter.dropped());
    }
}

impl Drop for Flow<'_> {
    fn drop(&mut self) {
        self.open.dec();
    }
}
