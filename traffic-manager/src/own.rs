//! Which addresses lead to this process, and which zones it sends to upstreams, told to the engine's
//! loop detection again and again.
//!
//! Addresses come from the kernel, from the pod's environment and from the watched Service of ours; nothing
//! more is asked over the network.
//! An address that only leads here by a way nobody tells us of is found by the engine's probes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::loops::{Loops, OwnAddresses};
use kubebridge_dns::name::Name;
use kubebridge_dns::view::View;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::egress::never::Ours;
use crate::kubernetes::index::{Found, Index};
use crate::sessions::Sessions;

/// How often the addresses are read: an address that appears is known before a loop through it has
/// cost more than a few queries.
const EVERY: Duration = Duration::from_secs(5);
/// The most zones that are looked after: each is probed once a minute, one a second.
const MOST_ZONES: usize = 32;

/// The Service that leads to us where one was installed (design §9), looked for in our own namespace.
const SERVICE: &str = "traffic-manager";

/// Addresses the pod is told of through its environment, by the downward API.
const FROM_ENVIRONMENT: [&str; 3] = ["KUBEBRIDGE_POD_IP", "POD_IPS", "POD_IP"];

/// The address of the API server, told to every pod.
const API_SERVER: [&str; 1] = ["KUBERNETES_SERVICE_HOST"];

/// What is watched.
#[derive(Debug)]
pub(crate) struct Own {
    pub(crate) loops: Arc<Loops>,
    /// The DNS sockets.
    pub(crate) bound: Vec<SocketAddr>,
    pub(crate) plain: watch::Receiver<Arc<View>>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) index: Arc<Index>,
    /// The namespace of our pod, where it is known.
    pub(crate) namespace: Option<String>,
    /// The addresses of our node, where they are known.
    pub(crate) host: BTreeSet<IpAddr>,
    /// The API server's addresses.
    pub(crate) api_servers: BTreeSet<IpAddr>,
    /// Told where we are, for what nobody may dial.
    pub(crate) ours: watch::Sender<Arc<Ours>>,
}

impl Own {
    /// Tells what holds now.
    pub(crate) fn tell(&self) {
        let view = Arc::clone(&self.plain.borrow());
        self.loops.set_zones(&zones(&view, self.sessions.domains()));
        let local = local_addresses();
        let published = published(&self.index, self.namespace.as_deref());
        let ours = self.ours(&local, &published);
        self.ours.send_if_modified(|before| {
            let changed = **before != ours;
            if changed {
                *before = Arc::new(ours);
            }
            changed
        });
        self.loops.set_addresses(OwnAddresses {
            bound: self.bound.iter().copied().collect(),
            local,
            published,
        });
    }

    fn ours(&self, local: &BTreeSet<IpAddr>, published: &BTreeSet<SocketAddr>) -> Ours {
        let services = published.iter().map(SocketAddr::ip);
        let own = local.iter().copied().chain(services);
        let api_servers = self.api_servers.iter().copied().chain(told(API_SERVER));
        Ours {
            own: own.map(|address| address.to_canonical()).collect(),
            api_servers: api_servers.collect(),
            host: self.host.clone(),
        }
    }

    /// Tells what holds whenever it may have changed, until shutdown.
    pub(crate) async fn follow(mut self, shutdown: CancellationToken) {
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = ticks.tick() => {}
                Ok(()) = self.plain.changed() => {}
            }
            self.tell();
        }
    }
}

/// Returns where the Service that leads to us is reached; nothing where its namespace is not watched.
fn published(index: &Index, namespace: Option<&str>) -> BTreeSet<SocketAddr> {
    let found = namespace.map(|namespace| index.lookup(namespace, SERVICE, Instant::now()));
    match found {
        Some(Found::Route(route)) => {
            let ports = route.ports.iter().map(|port| port.port);
            ports
                .flat_map(|port| route.cluster_ips.iter().map(move |ip| (*ip, port).into()))
                .collect()
        }
        Some(Found::Gone | Found::Unknown | Found::NotSynced) | None => BTreeSet::new(),
    }
}

/// Returns the zones that may be routed in another way than everything else.
fn zones(view: &View, of_sessions: BTreeSet<Name>) -> Vec<Name> {
    let own = [&view.cluster_domain];
    let outside = view
        .search
        .iter()
        .filter(|zone| !zone.ends_with(&view.cluster_domain));
    let all = own
        .into_iter()
        .chain(&view.absolute_zones)
        .chain(outside)
        .cloned();
    let mut zones: Vec<Name> = Vec::new();
    for zone in all.chain(of_sessions).filter(|zone| !zone.is_root()) {
        if !zones.contains(&zone) && zones.len() < MOST_ZONES {
            zones.push(zone);
        }
    }
    zones
}

/// Returns the addresses of this machine or pod.
fn local_addresses() -> BTreeSet<IpAddr> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    ipv4_addresses(&read("/proc/net/fib_trie"))
        .chain(ipv6_addresses(&read("/proc/net/if_inet6")))
        .chain(told(FROM_ENVIRONMENT))
        .collect()
}

/// Returns the addresses that variables of the environment list.
fn told<const N: usize>(names: [&str; N]) -> impl Iterator<Item = IpAddr> {
    let texts = names.map(|name| std::env::var(name).unwrap_or_default());
    texts
        .into_iter()
        .flat_map(|list| listed(&list).collect::<Vec<_>>())
}

/// Reads the kernel's table of routes: an address of ours is a leaf whose prefix is a local host.
fn ipv4_addresses(table: &str) -> impl Iterator<Item = IpAddr> {
    let mut leaf = None;
    let mut addresses = Vec::new();
    for line in table.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("|-- ") {
            leaf = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL" {
            addresses.extend(leaf.map(IpAddr::V4));
        }
    }
    addresses.into_iter()
}

/// Reads the kernel's list of IPv6 addresses: 32 hex digits at the beginning of each line.
fn ipv6_addresses(table: &str) -> impl Iterator<Item = IpAddr> {
    let digits = table.lines().filter_map(|line| line.get(..32));
    let numbers = digits.filter_map(|digits| u128::from_str_radix(digits, 16).ok());
    numbers.map(|number| IpAddr::V6(Ipv6Addr::from_bits(number)))
}

fn listed(list: &str) -> impl Iterator<Item = IpAddr> {
    list.split(',').filter_map(|text| text.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use kubebridge_dns::view::{BarePolicy, PlainView};
    use kubebridge_proto::routes::{PortProtocol, ServiceKind, ServicePort, ServiceRoute};

    use super::*;
    use crate::kubernetes::index::{Scope, Served};

    fn names(texts: &[&str]) -> Vec<Name> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn loops_03_addresses_are_read_from_the_kernels_tables() {
        let table = "\
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 10.244.1.0/24 2 0 2
        |-- 10.244.1.0
           /24 link UNICAST
Local:
  +-- 0.0.0.0/0 3 0 5
     +-- 10.244.1.0/24 2 0 2
        |-- 10.244.1.11
           /32 host LOCAL
        |-- 10.244.1.255
           /32 link BROADCAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.0
           /8 host LOCAL
        |-- 127.0.0.1
           /32 host LOCAL
";
        let found: Vec<_> = ipv4_addresses(table).map(|ip| ip.to_string()).collect();
        assert_eq!(found, ["10.244.1.11", "127.0.0.1"]);
        let list = "fd000000000000000000000000000011 02 40 00 80     eth0\n\
                    00000000000000000000000000000001 01 80 10 80       lo\nnonsense\n";
        let found: Vec<_> = ipv6_addresses(list).map(|ip| ip.to_string()).collect();
        assert_eq!(found, ["fd00::11", "::1"]);
        let found: Vec<_> = listed("10.244.1.11, fd00::11,x,").collect();
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn loops_04_our_own_service_is_ours_until_it_is_made_anew_elsewhere() {
        let index = Index::new(Served::Namespaces(["kubebridge".to_owned()].into()), 1);
        let scope = Scope::Namespace("kubebridge".to_owned());
        let service = |name: &str, ip: &str| ServiceRoute {
            name: name.to_owned(),
            namespace: "kubebridge".to_owned(),
            kind: ServiceKind::ClusterIp,
            cluster_ips: vec![ip.parse().unwrap(), "fd00:96::53".parse().unwrap()],
            ports: [PortProtocol::Udp, PortProtocol::Tcp]
                .map(|protocol| ServicePort {
                    name: String::new(),
                    protocol,
                    port: 53,
                })
                .to_vec(),
            external_name: None,
        };
        let of = |index: &Index, namespace| -> Vec<String> {
            let found = published(index, namespace);
            found.iter().map(SocketAddr::to_string).collect()
        };
        let ours = Some("kubebridge");
        assert!(of(&index, ours).is_empty(), "not synced yet");

        let routes = vec![
            service(SERVICE, "10.96.0.53"),
            service("other", "10.96.0.9"),
        ];
        index.reset(&scope, routes, Instant::now());
        assert_eq!(of(&index, ours), ["10.96.0.53:53", "[fd00:96::53]:53"]);
        assert!(of(&index, None).is_empty());
        assert!(of(&index, Some("default")).is_empty());

        index.apply(service(SERVICE, "10.96.0.77"));
        assert_eq!(of(&index, ours), ["10.96.0.77:53", "[fd00:96::53]:53"]);
        index.delete("kubebridge", SERVICE, Instant::now());
        assert!(of(&index, ours).is_empty());
    }

    #[test]
    fn loopback_is_always_found_on_a_real_machine() {
        assert!(local_addresses().contains(&IpAddr::V4(Ipv4Addr::LOCALHOST)));
    }

    #[test]
    fn zones_are_the_clusters_the_configured_ones_and_those_of_sessions() {
        let view = View::plain(PlainView {
            search: names(&[
                "default.svc.cluster.local",
                "cluster.local",
                "eu.corp.example",
            ]),
            ndots: None,
            cluster_domain: None,
            absolute_zones: names(&["db.example", "."]),
            bare: BarePolicy::Never,
        });
        let of_sessions = names(&["git.example", "db.example"]).into_iter().collect();
        assert_eq!(
            zones(&view, of_sessions),
            names(&[
                "cluster.local",
                "db.example",
                "eu.corp.example",
                "git.example"
            ])
        );
        let many = (0..100).map(|n| format!("zone{n}.example").parse().unwrap());
        assert_eq!(zones(&view, many.collect()).len(), MOST_ZONES);
    }
}
