//! The same flows over each real way to a manager: mutual TLS over a network, and port-forwards
//! through the Kubernetes API server.

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    kubelet::Kubelet,
    lab::{Lab, NODE},
    machine::Machine,
    parts::program,
    pods::{hold, until_works},
    product::{Attempt, Manager, NAMESPACES, Session, status, token_flags},
    secured::{make_certificates, network_manager, replica_and_balancer, tls_flags},
    wait::until,
};

use super::families::tell_networks;
use super::tunnel::{CLOSED, OPEN, START, World};
use super::{peer, says};
use crate::reach::{RIGHTS, grant};

/// How a session gets to its manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The manager listens on the network, with mutual TLS.
    Tls,
    /// The manager listens on its Pod's loopback, and the API server forwards its port.
    ApiServer,
}

/// A world and the way to its manager.
pub(super) struct OverWay {
    way: Way,
    pub(super) world: World,
    kubelet: Option<Kubelet>,
}

impl Way {
    pub(super) fn start(self) -> Result<OverWay> {
        let lab = Lab::start()?;
        let (world, kubelet) = match self {
            Self::Tls => {
                make_certificates(&lab, "certs")?;
                let manager = |lab: &Lab| tell_networks(lab).and_then(|()| network_manager(lab));
                (World::start_with(lab, manager)?, None)
            }
            Self::ApiServer => {
                let manager = |lab: &Lab| tell_networks(lab).and_then(|()| Manager::start(lab));
                let world = World::start_with(lab, manager)?;
                let kubelet = by_api_server(&world.lab)?;
                (world, Some(kubelet))
            }
        };
        Ok(OverWay {
            way: self,
            world,
            kubelet,
        })
    }

    /// The node's port that the way's connections go to.
    fn port(self) -> u16 {
        match self {
            Self::Tls => 7443,
            Self::ApiServer => 6443,
        }
    }
}

/// The manager that runs on the node's loopback as a Pod behind the real API server, and its user.
pub(super) fn by_api_server(lab: &Lab) -> Result<Kubelet> {
    let kubelet = Kubelet::start(lab)?;
    kubelet.add_pod(lab, "traffic-manager-a", "127.0.0.1")?;
    kubelet.set_ready(lab, "traffic-manager-a", true)?;
    lab.api.access_accounts(&lab.node, &NAMESPACES)?;
    grant(lab, &RIGHTS)?;
    Ok(kubelet)
}

impl OverWay {
    pub(super) fn connect(&self, options: &[&str]) -> Result<Session<'_>> {
        let lab = &self.world.lab;
        let attempt = match self.way {
            Way::Tls => {
                let flags = [
                    tls_flags(lab, "certs", "certs"),
                    token_flags(lab, &NAMESPACES)?,
                ]
                .concat();
                let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
                Attempt::start_with(lab, &NAMESPACES, &[&flags, options].concat())?
            }
            Way::ApiServer => {
                let kubeconfig = lab.api.kubeconfig("dev");
                Attempt::start_by_kubeconfig(lab, &kubeconfig, &[], options)?
            }
        };
        attempt.connected()
    }

    /// Does `verdict` to every packet of the connections there are; others are not concerned.
    fn cut(&self, verdict: &str) -> Result<()> {
        let laptop = self.world.laptop();
        let to = format!("{NODE}:{}", self.way.port());
        let open = laptop.output(&["ss", "-Htn", "state", "established", "dst", &to])?;
        let ports: Vec<&str> = open
            .lines()
            // 0  0  192.0.2.10:40000  198.51.100.10:7443
            .filter_map(|line| line.split_whitespace().nth(2)?.rsplit(':').next())
            .collect();
        ensure!(!ports.is_empty(), "nothing to cut");
        let ports = ports.join(", ");
        laptop.shell(&format!(
            "nft add table inet cut
nft add chain inet cut out '{{ type filter hook output priority 0; }}'
nft add rule inet cut out tcp sport {{ {ports} }} tcp dport {} {verdict}",
            self.way.port()
        ))?;
        Ok(())
    }

    fn mend(&self) -> Result<()> {
        let laptop = self.world.laptop();
        laptop.shell("nft delete table inet cut").map(drop)
    }

    pub(super) fn finish(self, checks: Checks, ended: Result<()>) -> Result<()> {
        let finished = self.world.finish(checks, ended);
        drop(self.kubelet);
        finished
    }
}

#[test]
fn f1_f2_f3_f5_f6_flows_over_mutual_tls_are_as_without_a_tunnel_and_survive_a_cut() -> Result<()> {
    flows_over(Way::Tls)
}

#[test]
fn f1_f2_f3_f5_f6_flows_by_the_api_server_are_as_without_a_tunnel_and_survive_a_cut() -> Result<()>
{
    flows_over(Way::ApiServer)
}

#[test]
fn behind_a_balancer_every_flow_reaches_the_manager_that_has_the_session() -> Result<()> {
    let over = Way::Tls.start()?;
    let (lab, laptop) = (&over.world.lab, over.world.laptop());
    let (replica, balancer) = replica_and_balancer(lab)?;
    let flags = [
        // Without the way to one of them.
        tls_flags(lab, "certs", "certs").split_off(1),
        token_flags(lab, &NAMESPACES)?,
        vec![format!("--manager={balancer}")],
    ]
    .concat();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let session = Attempt::start_with(lab, &NAMESPACES, &flags)?.connected()?;
    let mut checks = Checks::new();
    for number in 0..10 {
        let connected = says(laptop, &["connect", OPEN], "connected");
        checks.that(format!("connection {number}"), connected);
    }
    checks.that("several connections", spreads(&over));
    let moved = peer(laptop, &["up", OPEN, "2000000", "10"]);
    checks.that("ten at once", moved.map(drop));
    let ended = session.end_at_once();
    drop(replica);
    over.finish(checks, ended)
}

fn flows_over(way: Way) -> Result<()> {
    let over = way.start()?;
    let session = over.connect(&[])?;
    let laptop = over.world.laptop();
    let mut checks = Checks::new();
    let echo = peer(laptop, &["ping", OPEN, "50"]);
    checks.that("echo", echo.map(drop));
    checks.that("half", says(laptop, &["half", OPEN], "both ways"));
    checks.that("reset", says(laptop, &["reset", OPEN], "ECONNRESET"));
    let refused = says(laptop, &["connect", CLOSED], "ECONNREFUSED");
    checks.that("a closed port", refused);
    for way in ["down", "up"] {
        let moved = peer(laptop, &[way, OPEN, "16000000", "1"]);
        checks.that(way, moved.map(drop));
    }
    for size in ["1", "1472", "65507"] {
        let udp = peer(laptop, &["udp", OPEN, size, "5"]);
        checks.that(format!("datagrams of {size}"), udp.map(drop));
    }
    let ten = peer(laptop, &["down", OPEN, "2000000", "10"]);
    checks.that("ten at once", ten.map(drop));
    checks.that("several connections", spreads(&over));

    let held = hold(laptop, &["hold", OPEN, "20"], "holding")?;
    for (what, verdict) in [("broken", "reject with tcp reset"), ("dead", "drop")] {
        over.cut(verdict)?;
        checks.that(format!("a new flow, {what}"), new_flow(laptop));
        over.mend()?;
    }
    checks.that("flows under cuts", held.end().map(drop));
    let ended = session.end_at_once();
    over.finish(checks, ended)
}

/// Waits until bulk data goes over more than one data connection.
fn spreads(over: &OverWay) -> Result<()> {
    until("more than one data connection", START, || {
        peer(over.world.laptop(), &["down", OPEN, "20000000", "3"])?;
        let status = status(&over.world.lab)?;
        let connections = status["flows"]["connections"].as_array();
        let count = connections.context("no connections in status")?.len();
        ensure!(count > 1, "{count} of them");
        Ok(())
    })
}

/// Waits until a flow that is opened now works.
pub(super) fn new_flow(laptop: &Machine) -> Result<()> {
    let peer = program("peer")?.display().to_string();
    let words = [peer.as_str(), "down", OPEN, "100000", "1"];
    until_works(laptop, "a new flow", &words).map(drop)
}
