//! Connections to the cluster: what the tests lead to is there, and how the laptop gets to it.

mod by_proxy;
mod doctor;
mod families;
mod idle;
mod loss;
mod moving;
mod quic;
mod soak;
mod tunnel;
mod ways;
mod workloads;

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::Lab,
    machine::Machine,
    parts::program,
    pods::{Exposed, PodNetwork, serve, until_works},
};
use workloads::{Workloads, cluster_ip, use_all};

const PEER: Exposed<'_> = Exposed {
    name: "peer",
    namespace: "default",
    cluster_ip: "10.96.3.1",
    ports: &[
        ("tcp", "TCP", 80, 9000),
        ("udp", "UDP", 80, 9000),
        ("dns", "UDP", 53, 9000),
    ],
    endpoints: &["10.244.1.21"],
};

/// Runs the client of the test's own peer, which must be content, and gives what it said.
fn peer(machine: &Machine, words: &[&str]) -> Result<String> {
    let program = program("peer")?.display().to_string();
    let all = [&[program.as_str()], words].concat();
    Ok(machine.output(&all)?.trim().to_owned())
}

fn says(machine: &Machine, words: &[&str], wanted: &str) -> Result<()> {
    let said = peer(machine, words)?;
    ensure!(
        said == wanted,
        "{words:?} says {said:?} instead of {wanted:?}"
    );
    Ok(())
}

/// Shows that the lab's cluster is one: kube-proxy leads from ClusterIPs to Pods.
#[test]
fn cluster_addresses_lead_to_pods_on_the_node_and_nowhere_from_the_laptop() -> Result<()> {
    let lab = Lab::start()?;
    let network = PodNetwork::start(&lab)?;
    let pod = network.pod(&lab, "peer", "10.244.1.21")?;
    let program = program("peer")?.display().to_string();
    let _serving = serve(&lab, &pod, 9000, &[&program, "serve", "9000"])?;
    network.expose(&lab, &PEER)?;
    let _running = Workloads::start(&lab, &network)?;
    let mut checks = Checks::new();
    use_all(&mut checks, &lab.node, cluster_ip);

    let node = &lab.node;
    let words = [program.as_str(), "connect", "10.96.3.1:80"];
    until_works(node, "the ClusterIP", &words).context("from the node")?;
    for address in ["10.96.3.1:80", "10.244.1.21:9000", "[fd00:244:1::21]:9000"] {
        checks.that(address, says(node, &["connect", address], "connected"));
        let down = peer(node, &["down", address, "1000000", "4"]);
        checks.that(address, down.map(drop));
        let up = peer(node, &["up", address, "1000000", "4"]);
        checks.that(address, up.map(drop));
        let udp = peer(node, &["udp", address, "1000", "3"]);
        checks.that(address, udp.map(drop));
    }
    checks.that("half", says(node, &["half", "10.96.3.1:80"], "both ways"));
    checks.that(
        "reset",
        says(node, &["reset", "10.96.3.1:80"], "ECONNRESET"),
    );
    checks.that("tiny", says(node, &["tiny", "10.96.3.1:80"], "2000 writes"));
    let refused = says(node, &["connect", "10.244.1.21:9001"], "ECONNREFUSED");
    checks.that("a closed port", refused);
    let laptop = lab.laptop.on();
    checks.that(
        "the laptop without a session",
        says(laptop, &["connect", "10.96.3.1:80"], "EHOSTUNREACH"),
    );
    checks.finish()?;
    lab.finish();
    Ok(())
}
