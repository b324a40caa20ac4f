//! What the program counts about itself, in the Prometheus text format.
//!
//! Labels are words from short fixed lists, and the upstreams as they are configured: no name of a
//! Service, namespace, client or query is ever one. Counters are handed to those who count; gauges are read when somebody asks.

use std::sync::Arc;

use kubebridge_dns::resolver::Resolver;
use kubebridge_dns::server::Transport;
use kubebridge_proto::flow::Budget;
use kubebridge_proto::routes::RouteUpdate;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use self::flows::FlowCounts;
use self::readings::Readings;
use self::upstreams::UpstreamReadings;
use crate::kubernetes::index::Index;
use crate::sessions::Sessions;

pub mod flows;
mod readings;
mod upstreams;

/// What every name begins with.
const PREFIX: &str = "kubebridge";

/// The response codes told apart, by number (RFC 1035 §4.1.1); all others are `other`.
const RCODES: [&str; 6] = [
    "NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED",
];

/// The label of other codes.
const OTHER: &str = "other";

/// The label of packets that get no reply.
const SILENT: &str = "none";

/// Where a query came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Plain DNS over UDP.
    Udp,
    /// Plain DNS over TCP.
    Tcp,
    /// `ExchangeDns`.
    Grpc,
}

impl From<Transport> for Way {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Udp => Self::Udp,
            Transport::Tcp => Self::Tcp,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    transport: &'static str,
    rcode: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Watched {
    resource: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Sent {
    kind: &'static str,
}

/// Counts that one followed resource keeps.
#[derive(Debug, Clone, Default)]
pub struct WatchCounts {
    /// Failures after which a list or watch was begun again.
    pub restarts: Counter,
    /// Complete lists after the first.
    pub relists: Counter,
}

/// Counts that all route streams keep together.
#[derive(Debug, Clone)]
pub struct RouteCounts {
    /// Open streams.
    pub streams: Gauge,
    states: Counter,
    pages: Counter,
    deltas: Counter,
    /// Routes in pages and changes in deltas.
    routes: Counter,
}

/// All counters, and the registry they stand in.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// By way, then by code with the two labels at the end.
    answered: [[Counter; RCODES.len() + 2]; 3],
    in_flight: Gauge,
    watches: Family<Watched, Counter>,
    relists: Family<Watched, Counter>,
    routes: RouteCounts,
    flows: FlowCounts,
}

impl Metrics {
    /// Makes all counters; `version` is the program's own.
    #[must_use]
    pub fn new(version: &'static str) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        let build = Info::new([("version", version)]);
        registry.register("build", "The program", build);
        let queries = Family::<Answered, Counter>::default();
        let help = "DNS queries answered, by the way they came in and the response code";
        registry.register("dns_queries", help, queries.clone());
        let in_flight = Gauge::default();
        let help = "DNS queries that are being answered";
        registry.register("dns_in_flight", help, in_flight.clone());
        let watches = Family::<Watched, Counter>::default();
        let help = "Failures after which a list or watch of the API server was begun again";
        registry.register("watch_restarts", help, watches.clone());
        let relists = Family::<Watched, Counter>::default();
        let help = "Complete lists from the API server after the first";
        registry.register("watch_relists", help, relists.clone());
        Self {
            answered: ["udp", "tcp", "grpc"].map(|transport| {
                let count = |rcode| queries.get_or_create_owned(&Answered { transport, rcode });
                let [a, b, c, d, e, f] = RCODES.map(count);
                [a, b, c, d, e, f, count(OTHER), count(SILENT)]
            }),
            in_flight,
            watches,
            relists,
            routes: RouteCounts::register(&mut registry),
            flows: FlowCounts::register(&mut registry),
            registry,
        }
        .with_services()
    }

    /// Shows the counts of what is always followed before there is anything to count.
    fn with_services(self) -> Self {
        drop(self.watch("services"));
        self
    }

    /// Returns the counts of one followed resource.
    #[must_use]
    pub fn watch(&self, resource: &'static str) -> WatchCounts {
        let label = Watched { resource };
        WatchCounts {
            restarts: self.watches.get_or_create_owned(&label),
            relists: self.relists.get_or_create_owned(&label),
        }
    }

    /// Returns the counts of the route streams.
    #[must_use]
    pub fn routes(&self) -> RouteCounts {
        self.routes.clone()
    }

    /// Returns the counts of the flows.
    #[must_use]
    pub fn flows(&self) -> FlowCounts {
        self.flows.clone()
    }

    /// Counts a query from now until the returned value is told the reply or dropped.
    #[must_use]
    pub fn query(&self, way: Way) -> Query<'_> {
        self.in_flight.inc();
        Query { metrics: self, way }
    }
}

/// All counters, and the gauges that are read when somebody asks.
#[derive(Debug)]
pub struct Exposition {
    counted: Arc<Metrics>,
    read: Registry,
}

impl Exposition {
    /// Puts together what is told; gauges are read from where the numbers live.
    #[must_use]
    pub fn new(
        counted: Arc<Metrics>,
        resolver: Arc<Resolver>,
        index: Arc<Index>,
        sessions: Arc<Sessions>,
        memory: Budget,
    ) -> Self {
        let mut read = Registry::with_prefix(PREFIX);
        let upstreams = UpstreamReadings(Arc::clone(resolver.upstreams()));
        read.register_collector(Box::new(upstreams));
        read.register_collector(Box::new(Readings {
            resolver,
            index,
            sessions,
            memory,
        }));
        Self { counted, read }
    }

    /// Writes everything in the text format, version 0.0.4.
    ///
    /// # Errors
    /// Never in practice: writing to a string does not fail.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.counted.registry)?;
        prometheus_text::encode(&mut text, &self.read)?;
        Ok(text)
    }
}

/// A query in flight.
#[derive(Debug)]
pub struct Query<'a> {
    metrics: &'a Metrics,
    way: Way,
}

impl Query<'_> {
    /// Counts the reply, by its code.
    pub fn answered(self, reply: Option<&[u8]>) {
        // The low four bits of the fourth octet (RFC 1035 §4.1.1).
        let code = reply.map(|reply| usize::from(reply.get(3).map_or(15, |octet| octet & 15)));
        let at = match code {
            Some(code) => code.min(RCODES.len()),
            None => RCODES.len() + 1,
        };
        self.metrics.answered[self.way as usize][at].inc();
    }
}

impl Drop for Query<'_> {
    fn drop(&mut self) {
        self.metrics.in_flight.dec();
    }
}

impl RouteCounts {
    fn register(registry: &mut Registry) -> Self {
        let streams = Gauge::default();
        registry.register("route_streams", "Open route streams", streams.clone());
        let frames = Family::<Sent, Counter>::default();
        let help = "Frames sent to route streams, by their kind";
        registry.register("route_frames", help, frames.clone());
        let routes = Counter::default();
        let help = "Routes and removals in the frames sent to route streams";
        registry.register("route_changes_sent", help, routes.clone());
        let count = |kind| frames.get_or_create_owned(&Sent { kind });
        Self {
            streams,
            states: count("state"),
            pages: count("page"),
            deltas: count("delta"),
            routes,
        }
    }

    /// Counts a frame that goes out.
    pub fn sent(&self, update: &RouteUpdate) {
        let (frames, routes) = match update {
            RouteUpdate::State { .. } => (&self.states, 0),
            RouteUpdate::Page { routes, .. } => (&self.pages, routes.len()),
            RouteUpdate::Delta {
                upserts, deletes, ..
            } => (&self.deltas, upserts.len() + deletes.len()),
        };
        frames.inc();
        self.routes.inc_by(routes as u64);
    }
}

#[cfg(test)]
mod tests;
