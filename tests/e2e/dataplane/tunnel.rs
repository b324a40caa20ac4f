//! What a connected laptop gets of connections: F1 to F12, with the kernel's own TCP and UDP at the
//! laptop's end and Pods behind a real kube-proxy at the other.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    lab::{AUTHORS, DOCS, Lab},
    machine::Machine,
    parts::program,
    pods::{Exposed, PodNetwork, hold, serve, until_works},
    product::{Manager, Session, kubebridge_output, must_be_as, status},
    snapshot::Snapshot,
    wait::until,
};

use super::workloads::{PYTHON, Workloads, use_all};
use super::{PEER, peer, says};

pub(super) const START: Duration = Duration::from_secs(60);

/// Services of the peer's Pod where nobody answers, in different ways.
pub(super) const CLOSED: &str = "10.96.3.2:80";
const SILENT: &str = "10.96.3.3:80";
/// Of a Pod that is not there.
const GONE: &str = "10.96.3.4:80";
pub(super) const OPEN: &str = "10.96.3.1:80";
const POD: &str = "10.244.1.21";

/// More than the manager's account has by itself.
const SEES_ENDPOINTS: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: sees-endpoints, namespace: default}
rules:
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: sees-endpoints, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: sees-endpoints}
subjects:
- {kind: ServiceAccount, name: traffic-manager, namespace: default}
";

/// The cluster with its Pods, and a session that may go to them.
pub(super) struct World {
    pub(super) lab: Lab,
    pub(super) manager: Manager,
    pub(super) network: PodNetwork,
    pod: Machine,
    daemons: Vec<kubebridge_tests::daemon::Daemon>,
    pub(super) before: Snapshot,
}

impl World {
    pub(super) fn start(lab: Lab) -> Result<Self> {
        Self::start_with(lab, Manager::start)
    }

    /// As [`start`](Self::start), with a manager that is started by `manager`.
    pub(super) fn start_with(
        lab: Lab,
        manager: impl FnOnce(&Lab) -> Result<Manager>,
    ) -> Result<Self> {
        let network = PodNetwork::start(&lab)?;
        let pod = network.pod(&lab, "peer", POD)?;
        let program = program("peer")?.display().to_string();
        let serving = serve(&lab, &pod, 9000, &[&program, "serve", "9000"])?;
        pod.shell(
            "nft add table inet lab; nft add chain inet lab in '{ type filter hook input priority 0; }'
nft add rule inet lab in tcp dport 9002 drop",
        )?;
        network.expose(&lab, &PEER)?;
        let port = |port| [("main", "TCP", 80, port)];
        for (name, address, ports, endpoint) in [
            ("closed", CLOSED, port(9001), POD),
            ("silent", SILENT, port(9002), POD),
            ("gone", GONE, port(9000), "10.244.1.99"),
        ] {
            let cluster_ip = address.trim_end_matches(":80");
            let service = Exposed {
                name,
                namespace: "default",
                cluster_ip,
                ports: &ports,
                endpoints: &[endpoint],
            };
            network.expose(&lab, &service)?;
        }
        // Addresses of Pods are known to those who may see what is behind a Service.
        lab.api.apply(&lab.node, SEES_ENDPOINTS)?;
        let manager = manager(&lab)?;
        let before = Snapshot::take(lab.laptop.on())?;
        Ok(Self {
            lab,
            manager,
            network,
            pod,
            daemons: vec![serving],
            before,
        })
    }

    pub(super) fn connect(&self) -> Result<Session<'_>> {
        Session::connect(&self.lab, &["--include-cidr=10.244.0.0/16"])
    }

    pub(super) fn laptop(&self) -> &Machine {
        self.lab.laptop.on()
    }

    /// Ends all and fails with what was wrong.
    pub(super) fn finish(self, mut checks: Checks, ended: Result<()>) -> Result<()> {
        checks.that("the end", ended);
        checks.that("after it", must_be_as(&self.lab, &self.before));
        checks.finish()?;
        drop((self.manager, self.network, self.pod, self.daemons));
        self.lab.finish();
        Ok(())
    }
}

#[test]
fn f2_other_peoples_programs_work_by_name_from_the_laptop() -> Result<()> {
    let world = World::start(Lab::start()?)?;
    let _running = Workloads::start(&world.lab, &world.network)?;
    let session = world.connect()?;
    let mut checks = Checks::new();

    use_all(&mut checks, world.laptop(), |service| {
        format!("{service}.default")
    });

    let ended = session.end_at_once();
    world.finish(checks, ended)
}

#[test]
fn f1_every_way_of_not_being_connected_has_its_own_error() -> Result<()> {
    let world = World::start(Lab::start()?)?;
    let session = world.connect()?;
    let laptop = world.laptop();
    let mut checks = Checks::new();
    for (what, address, error) in [
        ("an open port", OPEN, "connected"),
        ("a Pod", "10.244.1.21:9000", "connected"),
        ("a closed port", CLOSED, "ECONNREFUSED"),
        ("a Pod that is gone", GONE, "EHOSTUNREACH"),
        ("a port that no Service has", "10.96.3.1:81", "EHOSTUNREACH"),
        ("the API server", "10.96.0.1:443", "EHOSTUNREACH"),
        ("a Service of nobody", "10.96.77.77:80", "EHOSTUNREACH"),
    ] {
        checks.that(what, says(laptop, &["connect", address], error));
    }
    // The application's own clock ends it, nothing else.
    let peer = program("peer")?.display().to_string();
    let silent = laptop.run(&["timeout", "10", &peer, "connect", SILENT])?;
    checks.that(
        "silence",
        match silent.status.code() {
            Some(124) => Ok(()),
            other => Err(anyhow::anyhow!(
                "{other:?}: {}",
                String::from_utf8_lossy(&silent.stdout)
            )),
        },
    );
    checks.that("F1: it is told", told_in_status(&world));
    let ended = session.end_at_once();
    world.finish(checks, ended)
}

/// What became of flows, and of a packet that is none, is in `status`, for people and programs.
fn told_in_status(world: &World) -> Result<()> {
    let gre = "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 47).sendto(b'', ('10.96.3.1', 0))";
    world.laptop().output(&[PYTHON, "-c", gre])?;
    says(world.laptop(), &["reset", OPEN], "ECONNRESET")?;
    until("the packet to be counted", START, || {
        let told = status(&world.lab)?;
        let dropped = &told["packets"]["dropped"];
        ensure!(
            dropped["protocol"] == 1 && dropped["device"] == 0,
            "{dropped}"
        );
        let flows = &told["flows"];
        let refused = flows["failures"]["refused"].as_u64();
        ensure!(refused.is_some_and(|times| times > 0), "{flows}");
        ensure!(flows["reset_there"] == 1 && flows["lost"] == 0, "{flows}");
        let age = flows["connections"][0]["echo_age_millis"].as_u64();
        ensure!(age.is_some_and(|age| age < 60_000), "{flows}");
        ensure!(told["proxy"].is_null(), "{told}");
        Ok(())
    })?;
    let text = kubebridge_output(&world.lab, &["status"])?;
    let row = |label: &str| {
        let row = text.lines().find(|line| line.starts_with(label));
        row.with_context(|| format!("no {label} in {text}"))
    };
    ensure!(row("dropped ")?.contains("1 protocol"), "{text}");
    ensure!(!row("dropped ")?.contains(" device"), "{text}");
    ensure!(row("flows ")?.contains(" refused"), "{text}");
    ensure!(row("  connection ")?.contains("last echo "), "{text}");
    Ok(())
}

#[test]
fn f2_f3_f4_f6_f7_f9_f12_streams_datagrams_and_pings_are_as_without_a_tunnel() -> Result<()> {
    let world = World::start(Lab::start()?)?;
    let session = world.connect()?;
    let laptop = world.laptop();
    let mut checks = Checks::new();
    for address in [OPEN, "10.244.1.21:9000"] {
        checks.that("half", says(laptop, &["half", address], "both ways"));
        checks.that("reset", says(laptop, &["reset", address], "ECONNRESET"));
        checks.that("tiny", says(laptop, &["tiny", address], "2000 writes"));
        for way in ["down", "up"] {
            let moved = peer(laptop, &[way, address, "16000000", "4"]);
            checks.that(way, moved.map(drop));
        }
        for size in ["1", "1472", "16000", "65507"] {
            let udp = peer(laptop, &["udp", address, size, "5"]);
            checks.that(format!("datagrams of {size}"), udp.map(drop));
        }
    }
    // F4: more flows that nobody reads than any window has room for, and one that is used.
    let stalled: Vec<_> = (0..40)
        .map(|_| hold(laptop, &["stall", OPEN], "stalled"))
        .collect::<Result<_>>()
        .context("flows that stall")?;
    let moved = peer(laptop, &["down", OPEN, "4000000", "1"]);
    checks.that("F4: beside flows that stall", moved.map(drop));
    for one in stalled {
        checks.that("a stalled flow", one.end().map(drop));
    }
    checks.that("F6: DNS", dns(&world, &session));
    checks.that("F7: ping", ping(&world));
    checks.that("F12: duplicate segments", few_duplicates(laptop));
    let ended = session.end_at_once();
    world.finish(checks, ended)
}

/// By UDP and TCP to the session's own address, and nobody has a socket there.
fn dns(world: &World, session: &Session<'_>) -> Result<()> {
    let (laptop, resolver) = (world.laptop(), session.resolver()?);
    for transport in [Transport::Udp, Transport::Tcp] {
        let got = dig(
            laptop,
            &resolver,
            transport,
            "authors.default.svc.cluster.local",
            "A",
        )?;
        ensure!(got.to_string().ends_with(&format!(" A {AUTHORS}")), "{got}");
    }
    let sockets = laptop.output(&["ss", "-Hlntu"])?;
    ensure!(!sockets.contains(&format!("{resolver}:53")), "{sockets}");
    Ok(())
}

/// Prohibited as long as the Pod may not ping, real when it may.
fn ping(world: &World) -> Result<()> {
    let once = |address: &str| {
        world
            .laptop()
            .run(&["ping", "-n", "-c", "1", "-W", "10", address])
    };
    let said = String::from_utf8(once(POD)?.stdout)?;
    ensure!(
        said.contains("Packet filtered"),
        "where it is not allowed: {said}"
    );
    world
        .lab
        .node
        .shell("echo 0 2147483647 >/proc/sys/net/ipv4/ping_group_range")?;
    let reply = once(POD)?;
    let said = String::from_utf8(reply.stdout)?;
    ensure!(reply.status.success(), "where it is allowed: {said}");
    let nobody = once("10.244.1.98")?;
    let said = String::from_utf8(nobody.stdout)?;
    ensure!(!nobody.status.success(), "nobody answers: {said}");
    Ok(())
}

/// Segments that came twice would mean that the stack inside and the kernel disagree; a few do on a
/// machine that was too busy to acknowledge them in time.
fn few_duplicates(laptop: &Machine) -> Result<()> {
    let twice = counter(laptop, "/proc/net/netstat", "TcpExt:", "TCPDSACKOldSent")?;
    let all = counter(laptop, "/proc/net/snmp", "Tcp:", "InSegs")?;
    ensure!(twice * 20 < all, "{twice} of {all} segments came twice");
    Ok(())
}

/// A number of the kernel's, from a file of names above values.
fn counter(machine: &Machine, file: &str, line: &str, name: &str) -> Result<u64> {
    let text = machine.output(&["cat", file])?;
    let mut lines = text.lines().filter(|one| one.starts_with(line));
    let (names, values) = (lines.next(), lines.next());
    let (names, values) = (names.unwrap_or_default(), values.unwrap_or_default());
    let mut both = names.split(' ').zip(values.split(' '));
    let found = both.find(|(one, _)| *one == name);
    let (_, value) = found.with_context(|| format!("no {name} in {file}"))?;
    Ok(value.parse()?)
}

#[test]
fn f5_open_flows_survive_cuts_and_dead_paths() -> Result<()> {
    let world = World::start(Lab::start()?)?;
    let session = world.connect()?;
    let laptop = world.laptop();
    let cuts: usize = match std::env::var("KUBEBRIDGE_CUTS") {
        Ok(text) => text.parse()?,
        Err(_) => 12,
    };
    let mut checks = Checks::new();
    let held = hold(laptop, &["hold", OPEN, "50"], "holding")?;
    for number in 0..cuts {
        // Bytes of flows that were open before must go through between two cuts.
        let is_dead_path = number % 4 == 3;
        let met = match is_dead_path {
            true => world.lab.relay.freeze(),
            false => world.lab.relay.cut(),
        };
        ensure!(met > 0, "cut {number} met no connection");
        let words = ["down", OPEN, "100000", "1"];
        let program = program("peer")?.display().to_string();
        let all = [&[program.as_str()][..], &words].concat();
        let new = until_works(laptop, "a new flow", &all);
        checks.that(format!("a new flow after cut {number}"), new.map(drop));
    }
    let held = held.end();
    checks.that("50 flows under cuts", held.map(drop));
    let ended = session.end_at_once();
    world.finish(checks, ended)
}

#[test]
fn f10_f11_addresses_outside_are_routed_while_their_name_is_known_and_nothing_stays() -> Result<()>
{
    let world = World::start(Lab::start()?)?;
    let laptop = world.laptop();
    // The database of a cloud account, which only the cluster reaches.
    world
        .lab
        .node
        .shell(&format!("ip addr add {DOCS}/32 dev lo"))?;
    let program = program("peer")?.display().to_string();
    let _cloud = serve(
        &world.lab,
        &world.lab.node,
        9000,
        &[&program, "serve", "9000"],
    )?;
    let firewall = laptop.output(&["nft", "list", "ruleset"])?;
    let session = world.connect()?;
    let mut checks = Checks::new();
    let words = ["connect", "docs.default:9000"];
    let reached = until("the ExternalName", START, || {
        says(laptop, &words, "connected")
    });
    checks.that("F11: an ExternalName outside the ranges", reached);
    let now = laptop.output(&["nft", "list", "ruleset"]);
    checks.equal("F10: firewall rules", now, &firewall);
    let ended = session.end_at_once();
    world.finish(checks, ended)
}
