//! The servers the machine used before the session, asked the way it would have asked them.
//!
//! Names outside the cluster go on being resolved by them; they also tell what resolved before.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::explain::Trace;
use kubebridge_dns::forward::Forwarder;
use kubebridge_dns::loops::Loops;
use kubebridge_dns::message::Query;
use kubebridge_dns::name::{Name, RecordType};
use kubebridge_dns::upstream::{Do53, PortPolicy, Upstream};
use kubebridge_dns::upstreams::{Settings, UpstreamStatus, Upstreams};
use kubebridge_platform::net::Ipv4Net;
use parking_lot::RwLock;
use tokio_util::sync::CancellationToken;

use crate::probe::{self, Finding};

/// How long a query may take in all: programs ask again after 5 s.
const TOTAL: Duration = Duration::from_millis(4500);
/// The networks sessions take their links from: a server there is another session's resolver.
const OWN_LINKS: &str = "198.19.248.0/21";
/// Search domains tried for what resolved before: more is a misconfiguration, and each costs a
/// query per Service.
const SEARCH_DOMAINS: usize = 6;

/// The original servers and search domains. They change when the machine moves to another network.
pub struct Originals {
    upstreams: Arc<Upstreams>,
    forwarder: Forwarder,
    loops: Arc<Loops>,
    search: Vec<Name>,
    addresses: RwLock<Vec<SocketAddr>>,
}

impl Originals {
    /// Makes them from what the machine was found to use.
    #[must_use]
    pub fn new(servers: &[SocketAddr], search: &[String]) -> Self {
        let search = search
            .iter()
            .filter_map(|domain| domain.parse().ok())
            .take(SEARCH_DOMAINS)
            .collect();
        let addresses = without_own(servers);
        let upstreams = Upstreams::new(transports(&addresses), Settings::default());
        let loops = Loops::new();
        let forwarder = Forwarder::new(Arc::clone(&upstreams), TOTAL);
        Self {
            forwarder: forwarder.guarded(Arc::clone(&loops)),
            loops,
            upstreams,
            search,
            addresses: RwLock::new(addresses),
        }
    }

    /// Takes over what the machine is found to use now, and says whether that is something else.
    /// An empty list changes nothing: a machine between two networks has no servers.
    ///
    /// The search domains stay: they tell what resolved before the session.
    pub fn replace(&self, servers: &[SocketAddr]) -> bool {
        let new = without_own(servers);
        let mut current = self.addresses.write();
        let is_other = !new.is_empty() && new != *current;
        if is_other {
            self.upstreams.replace(transports(&new));
            self.loops.look_after(&self.upstreams);
            *current = new;
        }
        is_other
    }

    /// Watches which servers are down or lead back here, until cancelled.
    pub async fn run(&self, stop: CancellationToken) {
        let loops = Arc::clone(&self.loops).run(stop.clone());
        futures::join!(self.upstreams.run(stop), loops);
    }

    /// Says whether a query that came in is one that was sent to a server and came back.
    #[must_use]
    pub fn came_back(&self, query: &Query) -> bool {
        self.loops.judge(query, None, None).is_some()
    }

    /// Returns the servers.
    #[must_use]
    pub fn servers(&self) -> Vec<SocketAddr> {
        self.addresses.read().clone()
    }

    /// Returns the health of the servers, in their order.
    #[must_use]
    pub fn status(&self) -> Arc<[UpstreamStatus]> {
        self.upstreams.status()
    }

    /// Answers a query as the first server that can.
    pub async fn forward(&self, packet: &[u8]) -> Option<Vec<u8>> {
        self.forwarder.forward(packet).await
    }

    /// Answers a query likewise, and tells what each server said.
    pub async fn explain(&self, packet: &[u8]) -> (Option<Vec<u8>>, Trace) {
        self.forwarder.explain(packet).await
    }

    /// Finds out what a full name resolves to.
    ///
    /// # Errors
    ///
    /// No server gave a usable answer.
    pub async fn find(&self, name: &Name, rtype: RecordType) -> anyhow::Result<Finding> {
        let query = probe::query(name, rtype);
        let reply = self
            .forward(&query)
            .await
            .ok_or_else(|| anyhow::anyhow!("no original server answers"))?;
        Finding::read(&reply)
    }

    /// Whether a name, as a user types it, resolves here: by itself when it has a dot, and under
    /// the search domains. Single labels are never asked for by themselves.
    pub async fn resolves(&self, name: &Name) -> bool {
        let bare = (name.label_count() > 1).then(|| name.clone());
        let searched = self.search.iter().filter_map(|domain| name.join(domain));
        for candidate in bare.into_iter().chain(searched) {
            for rtype in [RecordType::A, RecordType::AAAA] {
                match self.find(&candidate, rtype).await {
                    Ok(Finding::Addresses(_)) => return true,
                    Ok(Finding::NoSuchName) => break,
                    Ok(Finding::NoData | Finding::Failed(_)) | Err(_) => {}
                }
            }
        }
        false
    }
}

/// Leaves out the resolvers of sessions.
fn without_own(servers: &[SocketAddr]) -> Vec<SocketAddr> {
    let own: Option<Ipv4Net> = OWN_LINKS.parse().ok();
    let is_ours = |address: IpAddr| match address {
        IpAddr::V4(address) => own.is_some_and(|own| own.contains(address)),
        IpAddr::V6(_) => false,
    };
    let mut servers = servers.to_vec();
    servers.retain(|server| !is_ours(server.ip()));
    servers
}

fn transports(servers: &[SocketAddr]) -> Vec<Arc<dyn Upstream>> {
    servers
        .iter()
        .map(|server| Arc::new(Do53::new(*server, PortPolicy::FreshPort)) as Arc<dyn Upstream>)
        .collect()
}

impl std::fmt::Debug for Originals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Originals")
            .field("addresses", &self.servers())
            .field("search", &self.search)
            .finish_non_exhaustive()
    }
}
