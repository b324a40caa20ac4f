//! The engine from packet to packet, with scripted upstreams and the clock paused.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::*;
use crate::message::{Parsed, QueryOptions, answers, encode_query};
use crate::name::RecordType;
use crate::records::Local;
use crate::test_util::{Answer, Record, ScriptedUpstream, name};
use crate::upstreams::UpstreamState;
use crate::view::{BarePolicy, PlainView};

mod at_hand;
mod caching;
mod explaining;
mod flights;
mod health;
mod hedged;
mod local;
mod loops;
mod overload;
mod protocol;
mod renewing;
mod searching;
mod sessions;
mod sockets;
mod stale;
mod stats;

const SERVICE: &str = "authors.default.svc.cluster.local";

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// The view of a pod in `default`.
fn pod() -> Arc<View> {
    let search = [
        "default.svc.cluster.local",
        "svc.cluster.local",
        "cluster.local",
    ];
    Arc::new(View::plain(PlainView {
        search: search.map(name).to_vec(),
        ndots: None,
        cluster_domain: None,
        absolute_zones: vec![],
        bare: BarePolicy::LastToUpstreams,
    }))
}

fn session(namespace: &str, id: u64) -> Arc<View> {
    Arc::new(pod().session(&[namespace.to_owned()], &[], id).unwrap())
}

fn upstream() -> ScriptedUpstream {
    ScriptedUpstream::new("10.96.0.10").otherwise(Answer::nxdomain("."))
}

/// Our own records, as a table; what is not in it is not ours.
#[derive(Default)]
struct Table(Mutex<BTreeMap<(Name, RecordType), Local>>);

impl Table {
    fn with(self, owner: &str, rtype: RecordType, verdict: Local) -> Self {
        self.0.lock().insert((name(owner), rtype), verdict);
        self
    }
}

impl LocalRecords for Table {
    fn lookup(&self, name: &Name, rtype: RecordType) -> Local {
        self.0
            .lock()
            .get(&(name.clone(), rtype))
            .cloned()
            .unwrap_or(Local::NotMine)
    }
}

struct World {
    resolver: Arc<Resolver>,
    upstreams: Vec<Arc<ScriptedUpstream>>,
    local: Arc<Table>,
}

impl World {
    fn new(upstreams: impl IntoIterator<Item = ScriptedUpstream>) -> Self {
        Self::with(upstreams, Table::default(), |_| {})
    }

    fn with(
        upstreams: impl IntoIterator<Item = ScriptedUpstream>,
        local: Table,
        adjust: impl FnOnce(&mut ResolverConfig),
    ) -> Self {
        let upstreams: Vec<Arc<ScriptedUpstream>> = upstreams.into_iter().map(Arc::new).collect();
        let dynamic = upstreams
            .iter()
            .map(|upstream| Arc::clone(upstream) as Arc<dyn Upstream>)
            .collect();
        let mut config = ResolverConfig::new(dynamic);
        adjust(&mut config);
        let local = Arc::new(local);
        let resolver = Resolver::new(config, Arc::clone(&local) as Arc<dyn LocalRecords>);
        Self {
            resolver,
            upstreams,
            local,
        }
    }

    async fn raw(&self, packet: &[u8], view: &Arc<View>) -> Vec<u8> {
        let asker = Asker::new(Arc::clone(view));
        self.resolver.answer(packet, &asker).await.expect("a reply")
    }

    async fn ask_in(&self, view: &Arc<View>, text: &str, rtype: RecordType) -> Parsed {
        let packet = encode_query(77, &name(text), rtype, QueryOptions::default());
        answers(&self.raw(&packet, view).await).unwrap()
    }

    async fn ask(&self, text: &str, rtype: RecordType) -> Parsed {
        self.ask_in(&pod(), text, rtype).await
    }

    /// Watches the upstreams until the guard is dropped, and waits until each was heard of or is down.
    async fn watched(&self) -> DropGuard {
        let (set, stop) = (
            Arc::clone(self.resolver.upstreams()),
            CancellationToken::new(),
        );
        let token = stop.clone();
        tokio::spawn(async move { set.run(token).await });
        let mut watch = self.resolver.upstreams().watch();
        let known = watch.wait_for(|all| all.iter().all(|s| s.state != UpstreamState::Unknown));
        known.await.unwrap();
        stop.drop_guard()
    }

    fn states(&self) -> Vec<UpstreamState> {
        let status = self.resolver.upstreams().status();
        status.iter().map(|status| status.state).collect()
    }

    /// Counts the questions each upstream was asked, probes apart.
    fn questions(&self) -> Vec<usize> {
        let asked = |upstream: &Arc<ScriptedUpstream>| {
            let names = upstream.asked_names();
            names.iter().filter(|name| *name != ".").count()
        };
        self.upstreams.iter().map(asked).collect()
    }

    fn asked(&self) -> Vec<String> {
        self.upstreams[0].asked_names()
    }
}

/// Shows the answer section as `owner TYPE data`.
fn shown(reply: &Parsed) -> Vec<String> {
    reply
        .answers
        .iter()
        .map(|answer| format!("{} {} {}", answer.owner, answer.rtype, answer.data))
        .collect()
}

fn v4(last: u8) -> IpAddr {
    IpAddr::from([10, 96, 0, last])
}
