//! Clusters of IPv4, of IPv6 and of both, and a laptop without IPv6: F8 and lifecycle 17.

use std::time::Duration;

use anyhow::{Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    daemon::Daemon,
    dig::{Transport, dig},
    families::Families,
    lab::Lab,
    laptop::Hosts,
    lookup::Family,
    machine::Machine,
    parts::program,
    pods::{Exposed, PodNetwork, assign_ranges, hold, serve},
    product::{Attempt, Manager, Session, kubebridge_output, must_be_as},
    snapshot::Snapshot,
    wait::until,
};

use super::ways::by_api_server;
use super::{peer, says};

const START: Duration = Duration::from_secs(60);

/// What of the cluster is in one family.
struct Side {
    /// What `peer` and `ip` take for it.
    flag: &'static str,
    record: &'static str,
    family: Family,
    cluster_ip: &'static str,
    closed: &'static str,
    gone: &'static str,
    nobody: &'static str,
    pod: &'static str,
    /// What a connection that nobody may make ends with: the two kernels' tables differ.
    denied: &'static str,
    routes: &'static [&'static str],
}

const FOUR: Side = Side {
    flag: "-4",
    record: "A",
    family: Family::V4,
    cluster_ip: "10.96.3.1",
    closed: "10.96.3.2",
    gone: "10.96.3.3",
    nobody: "10.96.77.77:80",
    pod: "10.244.1.21",
    denied: "EHOSTUNREACH",
    routes: &["10.96.0.0/16", "10.244.1.0/24"],
};

const SIX: Side = Side {
    flag: "-6",
    record: "AAAA",
    family: Family::V6,
    cluster_ip: "fd00:96::3:1",
    closed: "fd00:96::3:2",
    gone: "fd00:96::3:3",
    nobody: "[fd00:96::7:77]:80",
    pod: "fd00:244:1::21",
    denied: "EACCES",
    routes: &["fd00:96::/108", "fd00:244:1::/64"],
};

/// The addresses that no Pod has.
const NO_PODS: [&str; 2] = ["10.244.1.99", "fd00:244:1::99"];

const ANSWERING: [(&str, &str, u16, u16); 2] = [("tcp", "TCP", 80, 9000), ("udp", "UDP", 80, 9000)];

/// Which networks the cluster has, where the manager may know.
const SEES_NETWORKS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: sees-networks}
rules:
- {apiGroups: [networking.k8s.io], resources: [servicecidrs], verbs: [list, watch]}
- {apiGroups: [''], resources: [nodes], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: sees-networks}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: sees-networks}
subjects: [{kind: ServiceAccount, name: traffic-manager, namespace: default}]
";

/// Has the manager that is started next know the networks of the cluster.
pub(super) fn tell_networks(lab: &Lab) -> Result<()> {
    assign_ranges(lab)?;
    lab.api.apply(&lab.node, SEES_NETWORKS)
}

/// A cluster of some families, with the peer in a Pod and Services in front of it.
struct Cluster {
    lab: Lab,
    network: PodNetwork,
    _pod: Machine,
    _serving: Daemon,
}

impl Cluster {
    fn start(families: Families) -> Result<Self> {
        let lab = Lab::start_with(families)?;
        let network = PodNetwork::start(&lab)?;
        let pod = network.pod(&lab, "peer", FOUR.pod)?;
        let program = program("peer")?.display().to_string();
        let serving = serve(&lab, &pod, 9000, &[&program, "serve", "9000"])?;
        lab.node
            .shell("echo 0 2147483647 >/proc/sys/net/ipv4/ping_group_range")?;
        let cluster = Self {
            lab,
            network,
            _pod: pod,
            _serving: serving,
        };
        let closed = [("main", "TCP", 80, 9001), ("udp", "UDP", 80, 9001)];
        let pods = [FOUR.pod, SIX.pod];
        let of = |side: fn(&Side) -> &'static str| [side(&FOUR), side(&SIX)];
        cluster.expose("peer", of(|side| side.cluster_ip), &ANSWERING, pods)?;
        cluster.expose("closed", of(|side| side.closed), &closed, pods)?;
        cluster.expose("gone", of(|side| side.gone), &ANSWERING, NO_PODS)?;
        cluster.expose("pods", ["None", "None"], &ANSWERING, pods)?;
        Ok(cluster)
    }

    /// What the cluster has.
    fn sides(&self) -> &'static [Side] {
        match self.lab.families {
            Families::V4 => &[FOUR],
            Families::Both => &[FOUR, SIX],
            Families::V6 => &[SIX],
        }
    }

    /// Makes a Service in the cluster's families, of what there is in both.
    fn expose(
        &self,
        name: &str,
        cluster_ips: [&str; 2],
        ports: &[(&str, &str, u16, u16)],
        endpoints: [&str; 2],
    ) -> Result<()> {
        let had = match self.lab.families {
            Families::V4 => 0..1,
            Families::Both => 0..2,
            Families::V6 => 1..2,
        };
        let cluster_ip = match cluster_ips[0] {
            "None" => "None".to_owned(),
            _ => cluster_ips[had.clone()].join(","),
        };
        let service = Exposed {
            name,
            namespace: "default",
            cluster_ip: &cluster_ip,
            ports,
            endpoints: &endpoints[had],
        };
        self.network.expose(&self.lab, &service)
    }

    fn laptop(&self) -> &Machine {
        self.lab.laptop.on()
    }
}

#[test]
fn f8_a_cluster_of_ipv4_is_reached_and_the_link_has_no_ipv6() -> Result<()> {
    a_cluster_of(Families::V4)
}

#[test]
fn f8_a_cluster_of_both_families_is_reached_by_both() -> Result<()> {
    a_cluster_of(Families::Both)
}

#[test]
fn f8_a_cluster_of_ipv6_is_reached_by_its_api_server_where_the_laptop_has_no_other_way()
-> Result<()> {
    a_cluster_of(Families::V6)
}

fn a_cluster_of(families: Families) -> Result<()> {
    let cluster = Cluster::start(families)?;
    let lab = &cluster.lab;
    tell_networks(lab)?;
    let _manager = Manager::start(lab)?;
    // The way of a cluster without IPv4 is the real one; elsewhere that is shown by others.
    let kubelet = match families {
        Families::V6 => Some(by_api_server(lab)?),
        Families::V4 | Families::Both => None,
    };
    let before = Snapshot::take(cluster.laptop())?;
    let session = match &kubelet {
        Some(_) => {
            let kubeconfig = lab.api.kubeconfig("dev");
            Attempt::start_by_kubeconfig(lab, &kubeconfig, &[], &[])?.connected()?
        }
        None => Session::connect(lab, &[])?,
    };
    let resolver = session.resolver()?;
    let mut checks = Checks::new();
    checks.that("the link", has_link(&cluster));
    checks.that("the answers", has_answers(&cluster, &resolver));
    for side in cluster.sides() {
        use_side(&mut checks, &cluster, side);
    }
    checks.that("the end", session.end_at_once());
    checks.that("after it", must_be_as(lab, &before));
    checks.finish()?;
    cluster.lab.finish();
    Ok(())
}

/// Addresses and routes of the cluster's families, and of no other but the link's own IPv4.
fn has_link(cluster: &Cluster) -> Result<()> {
    for side in [FOUR, SIX] {
        let is_had = cluster.sides().iter().any(|one| one.flag == side.flag);
        let wanted = if is_had { side.routes } else { &[] };
        let said = routes(cluster.laptop(), side.flag)?;
        let all = wanted.iter().all(|route| said.contains(route));
        ensure!(all && is_had != said.is_empty(), "{}: {said}", side.flag);
    }
    has_own_v6(cluster.laptop(), cluster.lab.families != Families::V4)
}

fn routes(laptop: &Machine, flag: &str) -> Result<String> {
    laptop.output(&["ip", flag, "route", "show", "proto", "107"])
}

/// Whether the link has an IPv6 address beside the kernel's own.
fn has_own_v6(laptop: &Machine, wanted: bool) -> Result<()> {
    let words = ["ip", "-6", "addr", "show", "dev", "kb0", "scope", "global"];
    let said = laptop.output(&words)?;
    ensure!(said.contains("inet6 fd") == wanted, "the link has {said:?}");
    Ok(())
}

/// Each name has the addresses of the cluster's families and no others, by both transports and the
/// C library.
fn has_answers(cluster: &Cluster, resolver: &str) -> Result<()> {
    let name = "peer.default.svc.cluster.local";
    for side in [FOUR, SIX] {
        let is_had = cluster.sides().iter().any(|one| one.flag == side.flag);
        let wanted = match is_had {
            true => format!("NOERROR {name}. {} {}", side.record, side.cluster_ip),
            false => "NOERROR".to_owned(),
        };
        for transport in [Transport::Udp, Transport::Tcp] {
            let got = dig(cluster.laptop(), resolver, transport, name, side.record)?;
            ensure!(got.to_string() == wanted, "{got} instead of {wanted}");
        }
        let lookup = &cluster.lab.lookup;
        let (laptop, names) = (&cluster.lab.laptop, ["peer.default", "pods.default"]);
        let found = lookup.glibc(laptop, Hosts::Resolve, side.family, &names)?;
        for (name, address) in [(names[0], side.cluster_ip), (names[1], side.pod)] {
            let got = found.of(name)?;
            let right = match is_had {
                true => got == format!("= {address}"),
                false => got.starts_with('!'),
            };
            ensure!(right, "{name} has {got}");
        }
    }
    Ok(())
}

/// Flows by name in one family: to a ClusterIP and to a Pod, and where nobody is.
fn use_side(checks: &mut Checks, cluster: &Cluster, side: &Side) {
    let laptop = cluster.laptop();
    let flag = side.flag;
    for to in ["peer.default:80", "pods.default:9000"] {
        let at = |what: &str| format!("{flag} {what} {to}");
        for (what, wanted) in [
            ("connect", "connected"),
            ("half", "both ways"),
            ("reset", "ECONNRESET"),
            ("tiny", "2000 writes"),
        ] {
            checks.that(at(what), says(laptop, &[flag, what, to], wanted));
        }
        for way in ["down", "up"] {
            let moved = peer(laptop, &[flag, way, to, "2000000", "2"]);
            checks.that(at(way), moved.map(drop));
        }
        for size in ["1", "1472", "65507"] {
            let udp = peer(laptop, &[flag, "udp", to, size, "3"]);
            checks.that(at(&format!("datagrams of {size}")), udp.map(drop));
        }
    }
    for (to, wanted) in [
        ("closed.default:80", "ECONNREFUSED"),
        ("gone.default:80", "EHOSTUNREACH"),
        (side.nobody, side.denied),
    ] {
        checks.that(to, says(laptop, &[flag, "connect", to], wanted));
    }
    let udp = |what, to, wanted| says(laptop, &[flag, what, to], wanted);
    let refused = udp("udp-connect", "closed.default:80", "ECONNREFUSED");
    checks.that(format!("{flag} datagrams for nobody"), refused);
    let left =
        udp("udp-leave", "peer.default:80", "left").and_then(|()| nobody_speaks(cluster, side));
    checks.that(format!("{flag} datagrams for a program that is gone"), left);
    let ping = ["ping", flag, "-n", "-c", "1", "-W", "10", side.pod];
    checks.that(format!("{flag} ping"), laptop.output(&ping).map(drop));
}

/// Waits until the manager has no socket for the peer's datagrams any more: as long as they come, no
/// flow is idle.
fn nobody_speaks(cluster: &Cluster, side: &Side) -> Result<()> {
    until("the manager's socket to be closed", START, || {
        let sockets = ["ss", side.flag, "-Hun", "dst", side.cluster_ip];
        let sockets = cluster.lab.node.output(&sockets)?;
        ensure!(sockets.is_empty(), "{sockets}");
        Ok(())
    })
}

#[test]
fn lifecycle_17_f8_ipv6_that_is_off_or_comes_and_goes_leaves_ipv4_alone() -> Result<()> {
    let cluster = Cluster::start(Families::Both)?;
    let (lab, laptop) = (&cluster.lab, cluster.laptop());
    let _manager = Manager::start(lab)?;
    switch_v6(laptop, false)?;
    let before = Snapshot::take(laptop)?;
    let session = Session::connect(lab, &["--include-cidr", "fd00:244::/32"])?;
    let mut checks = Checks::new();
    let warned = "fd00:244::/32 is not routed: this machine has IPv6 switched off";
    checks.that("the warning", has(&session.said()?, warned));
    let status = kubebridge_output(lab, &["status"])?;
    checks.that("the warning in status", has(&status, warned));
    let without = || -> Result<()> {
        ensure!(
            routes(laptop, "-6")?.is_empty(),
            "{}",
            routes(laptop, "-6")?
        );
        says(laptop, &["connect", "peer.default:80"], "connected")?;
        peer(laptop, &["-4", "udp", "peer.default:80", "1472", "3"])?;
        // At once, so that a program goes on to IPv4.
        let six = peer(laptop, &["-6", "connect", "peer.default:80"])?;
        ensure!(six == "ENETUNREACH" || six == "EADDRNOTAVAIL", "{six}");
        Ok(())
    };
    checks.that("without IPv6", without());

    // What is open goes on whatever becomes of the other family.
    let held = hold(laptop, &["-4", "hold", "peer.default:80", "5"], "holding")?;
    switch_v6(laptop, true)?;
    let come = until("IPv6 to be used", START, || {
        says(laptop, &["-6", "connect", "peer.default:80"], "connected")
    });
    checks.that("IPv6 comes", come);
    checks.that("its address", has_own_v6(laptop, true));
    let udp = peer(laptop, &["-6", "udp", "peer.default:80", "1472", "3"]);
    checks.that("IPv6 datagrams", udp.map(drop));
    switch_v6(laptop, false)?;
    checks.that("IPv6 goes", until("routes without IPv6", START, without));
    let status = kubebridge_output(lab, &["status", "-o", "json"])?;
    let status: serde_json::Value = serde_json::from_str(&status)?;
    let error = &status["sessions"][0]["routing"]["error"];
    checks.that("no trouble is left", {
        let none = error.is_null().then_some(());
        none.ok_or_else(|| anyhow::anyhow!("{error}"))
    });
    checks.that("the flows that were open", held.end().map(drop));

    checks.that("the end", session.end_at_once());
    checks.that("after it", must_be_as(lab, &before));
    checks.finish()?;
    cluster.lab.finish();
    Ok(())
}

fn switch_v6(laptop: &Machine, on: bool) -> Result<()> {
    let value = if on { "0" } else { "1" };
    laptop.shell(&format!(
        "for which in all default; do echo {value} >/proc/sys/net/ipv6/conf/$which/disable_ipv6; done"
    ))?;
    Ok(())
}

fn has(text: &str, part: &str) -> Result<()> {
    ensure!(text.contains(part), "no {part:?} in: {text}");
    Ok(())
}
