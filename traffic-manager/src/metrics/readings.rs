//! Gauges that are read where the numbers live, at the moment somebody asks.

use std::fmt;
use std::sync::Arc;

use kubebridge_dns::resolver::Resolver;
use kubebridge_proto::flow::Budget;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::kubernetes::index::Index;
use crate::sessions::Sessions;

/// Where the numbers live.
pub(super) struct Readings {
    pub(super) resolver: Arc<Resolver>,
    pub(super) index: Arc<Index>,
    pub(super) sessions: Arc<Sessions>,
    pub(super) memory: Budget,
}

impl fmt::Debug for Readings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Readings").finish_non_exhaustive()
    }
}

impl Collector for Readings {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.resolver.stats();
        let counters = [
            (
                "dns_cache_hits",
                "DNS queries answered from the cache",
                stats.cache_hits,
            ),
            (
                "dns_cache_misses",
                "DNS queries the cache had no answer for",
                stats.cache_misses,
            ),
            (
                "dns_shed",
                "DNS resolutions turned away because there were too many already",
                stats.shed,
            ),
            (
                "dns_stale_answers",
                "Answers given again after their time because no upstream replied",
                stats.stale,
            ),
            (
                "dns_renewals",
                "Answers asked for again before their time was over",
                stats.renewed,
            ),
        ];
        for (name, help, value) in counters {
            let counter = ConstCounter::new(value);
            counter.encode(encoder.encode_descriptor(
                name,
                help,
                None,
                counter.metric_type(),
            )?)?;
        }
        let gauges = [
            (
                "dns_cache_entries",
                "Answers in the cache",
                stats.cache_entries,
            ),
            (
                "dns_cache_bytes",
                "Bytes of the answers in the cache",
                stats.cache_bytes,
            ),
            (
                "dns_waiting",
                "DNS queries that wait for an upstream",
                stats.waiting,
            ),
            ("sessions", "Open sessions", self.sessions.count() as u64),
            (
                "flow_memory_bytes",
                "Memory of flows beyond their least windows",
                self.memory.used() as u64,
            ),
            ("tasks", "Asynchronous tasks that have not ended", tasks()),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        self.namespaces(&mut encoder)
    }
}

/// Counts the tasks of the runtime that asks; outside of one there are none.
fn tasks() -> u64 {
    let runtime = tokio::runtime::Handle::try_current();
    runtime.map_or(0, |runtime| runtime.metrics().num_alive_tasks() as u64)
}

impl Readings {
    fn namespaces(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let totals = self.index.totals();
        let families = [
            ("namespaces", "Namespaces served or asked for, by state"),
            ("routes", "Services known, by the state of their namespace"),
        ];
        for (name, help) in families {
            let kind = ConstGauge::new(0_i64).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for (state, total) in &totals {
                let value = match name {
                    "routes" => total.routes,
                    _ => total.namespaces,
                };
                let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
                gauge.encode(family.encode_family(&[("state", *state)])?)?;
            }
        }
        Ok(())
    }
}
