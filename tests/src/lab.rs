//! The three machines put together, with the services every test starts from.
//!
//! ```text
//! laptop 192.0.2.10 -- internet (router, DNS 192.0.2.53) -- node 198.51.100.10
//!                                                          API :6443, CoreDNS 10.96.0.10
//! ```
//! The laptop has no route to the cluster's addresses: it sees them only by what it is told.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, thread, time::Duration};

use anyhow::{Result, anyhow, ensure};
use tempfile::TempDir;

use crate::{
    control_plane::ControlPlane,
    coredns::CoreDns,
    daemon::tail,
    distance::{Distance, Shape},
    families::{Families, NODE_V6},
    laptop::Laptop,
    lookup::Lookup,
    machine::{Machine, cable},
    outside::Outside,
    parts::Parts,
    product::LOG,
    relay::Relay,
    wait::until,
};

/// Where the cluster's DNS server listens.
pub const CLUSTER_DNS: &str = "10.96.0.10";
/// Where the laptop's own DNS server listens.
pub const OUTSIDE_DNS: &str = "192.0.2.53";
/// The ClusterIP of `authors` in the namespace `default`.
pub const AUTHORS: &str = "10.96.1.1";
/// The ClusterIP of `authors` in the namespace `shop`.
pub const SHOP_AUTHORS: &str = "10.96.1.2";
/// The addresses behind the headless Service `db`.
pub const DB: [&str; 2] = ["10.244.1.11", "10.244.1.12"];
/// The outside name that the ExternalName Service `docs` leads to; only the cluster's side knows
/// it, as it is with a database of a cloud account.
pub const DOCS_TARGET: &str = "docs.example.net";
/// The address of [`DOCS_TARGET`].
pub const DOCS: &str = "203.0.113.90";

/// The Services every test starts from.
const SERVICES: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: authors, namespace: default}
spec: {clusterIP: 10.96.1.1, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: authors, namespace: shop}
spec: {clusterIP: 10.96.1.2, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: docs, namespace: default}
spec: {type: ExternalName, externalName: docs.example.net}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: default}
spec: {clusterIP: None, ports: [{name: sql, port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: default, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: sql, port: 5432}]
endpoints:
- {addresses: [10.244.1.11], conditions: {ready: true}}
- {addresses: [10.244.1.12], conditions: {ready: true}}
";

/// The node's address towards the internet.
pub const NODE: &str = "198.51.100.10";
/// Where CoreDNS sends names outside the cluster.
const CLUSTER_OUTSIDE: &str = "198.51.100.10";

const LINK_UP: Duration = Duration::from_secs(30);

/// A running lab. Everything in it ends when it is dropped.
#[derive(Debug)]
pub struct Lab {
    /// The machine the product's client runs on.
    pub laptop: Laptop,
    /// The laptop's own DNS server.
    pub outside: Outside,
    /// The Kubernetes API.
    pub api: ControlPlane,
    /// The cluster's DNS server.
    pub coredns: CoreDns,
    /// The DNS server outside the cluster that the cluster uses.
    pub cluster_outside: Outside,
    /// From the laptop to where the manager will listen.
    pub relay: Relay,
    /// Programs that ask for names.
    pub lookup: Lookup,
    /// The machine the cluster runs on.
    pub node: Machine,
    /// What all wires go through.
    pub internet: Machine,
    /// What addresses the cluster has.
    pub families: Families,
    /// Between the laptop and the internet, if there is any.
    pub distance: Option<Distance>,
    /// What the programs under test log; all that is ours, unless a test makes it less.
    pub log: &'static str,
    pub(crate) folder: TempDir,
    finished: bool,
}

/// The laptop's address in its network.
pub const LAPTOP: &str = "192.0.2.10";

/// Where the cluster runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Somewhere else, with a DNS server of its own for outside names.
    Remote,
    /// On the laptop, as kind, k3d and minikube do it: CoreDNS sends outside names to the laptop's
    /// own resolver.
    Local,
}

impl Place {
    fn forward(self) -> &'static str {
        match self {
            Self::Remote => CLUSTER_OUTSIDE,
            Self::Local => LAPTOP,
        }
    }

    /// What systemd-resolved is told beside its server.
    fn resolved(self) -> String {
        match self {
            Self::Remote => String::new(),
            Self::Local => format!("DNSStubListenerExtra={LAPTOP}\n"),
        }
    }
}

/// The two sides, started at the same time: most of the wait is the Kubernetes API.
struct ClusterSide {
    api: ControlPlane,
    coredns: CoreDns,
    outside: Outside,
}

struct LaptopSide {
    laptop: Laptop,
    outside: Outside,
    lookup: Lookup,
}

impl Lab {
    /// Starts all parts and waits until each answers.
    pub fn start() -> Result<Self> {
        Self::start_as(Place::Remote, Families::V4, None)
    }

    /// As [`start`](Self::start), with a distance between the laptop and everything else.
    pub fn start_far(shape: Shape) -> Result<Self> {
        Self::start_as(Place::Remote, Families::V4, Some(shape))
    }

    /// As [`start`](Self::start), with a cluster whose DNS leads to the laptop's own resolver.
    pub fn start_local() -> Result<Self> {
        Self::start_as(Place::Local, Families::V4, None)
    }

    /// As [`start`](Self::start), with a cluster of these families.
    pub fn start_with(families: Families) -> Result<Self> {
        Self::start_as(Place::Remote, families, None)
    }

    fn start_as(place: Place, families: Families, distance: Option<Shape>) -> Result<Self> {
        let parts = Parts::find()?;
        let folder = open_folder()?;
        let at = folder.path();
        let internet = Machine::start("internet", "echo 1 >/proc/sys/net/ipv4/ip_forward")?;
        let node = Machine::start("node", "")?;
        let laptop = Laptop::machine(at)?;
        let distance = wire(at, &internet, &laptop, &node, families, distance)?;

        let (cluster, near) = thread::scope(|scope| {
            let cluster = scope.spawn(|| cluster_side(&parts, at, &node, place, families));
            let near = laptop_side(&parts, at, &internet, laptop, place);
            let cluster = cluster
                .join()
                .map_err(|_| anyhow!("the cluster's thread died"));
            (cluster.flatten(), near)
        });
        // Whoever failed, the other's log may say why.
        let started = cluster.and_then(|cluster| Ok((cluster, near?)));
        let (cluster, near) = started.inspect_err(|_| show_logs(at))?;
        let relay = Relay::start(near.laptop.on(), &node, "127.0.0.1:7080")?;
        Ok(Self {
            laptop: near.laptop,
            outside: near.outside,
            lookup: near.lookup,
            api: cluster.api,
            coredns: cluster.coredns,
            cluster_outside: cluster.outside,
            relay,
            node,
            internet,
            families,
            distance,
            log: LOG,
            folder,
            finished: false,
        })
    }

    /// Runs kubectl as the cluster's administrator.
    pub fn kubectl(&self, words: &[&str]) -> Result<String> {
        self.api.kubectl(&self.node, words)
    }

    /// Where all of the lab's files are.
    pub fn folder_path(&self) -> &Path {
        self.folder.path()
    }

    /// Where the logs of all parts are.
    pub fn logs(&self) -> std::path::PathBuf {
        self.folder.path().join("logs")
    }

    /// Ends a test that found all as it should be: the logs need not be shown.
    pub fn finish(mut self) {
        self.finished = true;
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !self.finished {
            show_logs(self.folder.path());
        }
    }
}

/// A folder that other users (systemd-resolved is one) may enter, with a short path: a socket
/// goes into it.
fn open_folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("kb-lab-")
        .permissions(fs::Permissions::from_mode(0o755))
        .tempdir_in("/tmp")?;
    fs::create_dir(folder.path().join("logs"))?;
    Ok(folder)
}

fn wire(
    folder: &Path,
    internet: &Machine,
    laptop: &Machine,
    node: &Machine,
    families: Families,
    shape: Option<Shape>,
) -> Result<Option<Distance>> {
    let (near, far) = ((laptop, "eth0"), (internet, "laptop"));
    let distance = match shape {
        None => cable(near, far).map(|()| None)?,
        Some(shape) => Some(Distance::start(folder, near, far, shape)?),
    };
    cable((node, "eth0"), (internet, "node"))?;
    internet.shell(&format!(
        "ip addr add 192.0.2.1/24 dev laptop
ip addr add {OUTSIDE_DNS}/32 dev laptop
ip addr add 198.51.100.1/24 dev node
ip link set laptop up
ip link set node up
ip route add unreachable 10.0.0.0/8"
    ))?;
    laptop.shell(&format!(
        "ip addr add {LAPTOP}/24 dev eth0
ip link set eth0 up
ip route add default via 192.0.2.1"
    ))?;
    node.shell(&format!(
        "ip addr add {NODE}/24 dev eth0
ip addr add {CLUSTER_DNS}/32 dev lo
ip link set eth0 up
ip route add default via 198.51.100.1"
    ))?;
    if families != Families::V4 {
        wire_v6(internet, node)?;
    }
    if families == Families::V6 {
        // The only way there is to a cluster without IPv4.
        laptop.shell(
            "ip addr add 2001:db8:2::10/64 dev eth0
ip route del default
ip route add default via 2001:db8:2::1",
        )?;
    }
    // A link's own IPv6 address comes a moment after its carrier: from then on nothing changes.
    for machine in [laptop, node] {
        until("eth0 to be up", LINK_UP, || {
            let addresses = machine.output(&["ip", "-6", "addr", "show", "dev", "eth0"])?;
            ensure!(
                addresses.contains("inet6 fe80"),
                "no address yet: {addresses}"
            );
            Ok(())
        })?;
    }
    Ok(distance)
}

/// Has the node, and the Pods behind it, reach the world by IPv6 as well.
fn wire_v6(internet: &Machine, node: &Machine) -> Result<()> {
    internet.shell(
        "ip addr add 2001:db8:2::1/64 dev laptop
ip addr add 2001:db8:51::1/64 dev node
echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
ip route add unreachable fd00::/8",
    )?;
    let dns = Families::V6.cluster_dns();
    node.shell(&format!(
        "ip addr add {NODE_V6}/64 dev eth0
ip addr add {dns}/128 dev lo
ip route add default via 2001:db8:51::1"
    ))?;
    Ok(())
}

fn cluster_side(
    parts: &Parts,
    at: &Path,
    node: &Machine,
    place: Place,
    families: Families,
) -> Result<ClusterSide> {
    let private = [(DOCS_TARGET, DOCS)];
    let logs = at.join("logs");
    let outside = Outside::start("cluster-outside", &logs, node, CLUSTER_OUTSIDE, &private)?;
    let api = ControlPlane::start(parts, at, node, families)?;
    api.apply(node, &families.translate(SERVICES))?;
    let kubeconfig = api.kubeconfig("coredns");
    let dns = families.cluster_dns();
    let coredns = CoreDns::start(parts, at, node, dns, &kubeconfig, place.forward())?;
    Ok(ClusterSide {
        api,
        coredns,
        outside,
    })
}

fn laptop_side(
    parts: &Parts,
    at: &Path,
    internet: &Machine,
    laptop: Machine,
    place: Place,
) -> Result<LaptopSide> {
    Ok(LaptopSide {
        outside: Outside::start("outside", &at.join("logs"), internet, OUTSIDE_DNS, &[])?,
        laptop: Laptop::start(parts, at, laptop, OUTSIDE_DNS, &place.resolved())?,
        lookup: Lookup::build(at)?,
    })
}

/// Prints the end of every part's log.
#[expect(clippy::print_stderr, reason = "a failed test is explained by it")]
fn show_logs(folder: &Path) {
    let Ok(logs) = fs::read_dir(folder.join("logs")) else {
        return;
    };
    let mut logs: Vec<_> = logs.flatten().map(|entry| entry.path()).collect();
    logs.sort();
    for log in logs {
        let text = fs::read(&log).unwrap_or_default();
        let name = log.file_stem().unwrap_or_default().display();
        eprintln!("--- {name}\n{}", tail(&String::from_utf8_lossy(&text)));
    }
}
