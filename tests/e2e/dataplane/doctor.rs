//! The way to a destination by `kubebridge doctor`: each kind of failure has its name and what helps.

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{checks::Checks, lab::Lab, pods::Exposed};

use super::tunnel::World;
use super::{peer, says};
use crate::doctor::{Said, doctor};

/// The peer's Service.
const OPEN: &str = "10.96.3.1:80";

fn way(world: &World, words: &[&str]) -> Result<Said> {
    doctor(
        world.laptop(),
        &[&["--probe", "www.example.org"], words].concat(),
    )
}

/// A way that fails, and the exit code of that.
fn fails(world: &World, target: &str, found: &str, words: &[&str], code: i32) -> Result<()> {
    let said = way(world, &[target])?;
    said.must("target", "fail", found, words)?;
    let help = said.of("target")?["help"].as_str();
    ensure!(help.is_some_and(|help| !help.is_empty()), "no help");
    said.ends(code)
}

#[test]
fn lifecycle_21_silence_of_a_ready_endpoint_is_named_with_the_policy_that_helps() -> Result<()> {
    let world = World::start(Lab::start()?)?;
    let session = world.connect()?;
    let mut checks = Checks::new();

    // As a NetworkPolicy that denies all drops it.
    let said = way(&world, &["silent.default:80"])?;
    let words = [
        "silent.default",
        "1 of 1 ready",
        "NetworkPolicy",
        "kubectl apply",
    ];
    checks.that(
        "silence",
        said.must("target", "fail", "silent-endpoint", &words),
    );
    checks.that("its exit code", said.ends(1));
    checks.that("the manifest is one", {
        let manifest = said.of("target")?["manifest"].as_str();
        let manifest = manifest.context("there is none")?;
        world.lab.api.apply(&world.lab.node, manifest)
    });
    let policies = ["get", "networkpolicy", "-n", "default", "-o", "name"];
    checks.equal(
        "it is in the endpoint's namespace",
        world
            .lab
            .kubectl(&policies)
            .map(|said| said.trim().to_owned()),
        "networkpolicy.networking.k8s.io/admit-kubebridge",
    );

    let ended = session.end_at_once();
    world.finish(checks, ended)
}

#[test]
fn lifecycle_21_a_reset_right_after_connecting_is_named_and_so_is_the_mesh() -> Result<()> {
    let world = World::start(Lab::start()?)?;
    let session = world.connect()?;
    let mut checks = Checks::new();
    let well = way(&world, &["peer.default:80"])?;
    checks.that("before", well.must("target", "ok", "reachable", &[]));

    // The peer takes what it is sent and resets, as a mesh that wants certificates does.
    for _ in 0..2 {
        says(world.laptop(), &["reset", OPEN], "ECONNRESET")?;
    }
    let said = way(&world, &["peer.default:80"])?;
    let words = ["2 connections from here to 10.96.3.1:80", "--show-labels"];
    checks.that(
        "without a kubeconfig",
        said.must("target", "fail", "reset-at-once", &words),
    );
    checks.that("its exit code", said.ends(1));

    let label = ["label", "namespace", "default", "istio-injection=enabled"];
    world.lab.kubectl(&label)?;
    let kubeconfig = world.lab.api.kubeconfig("admin").display().to_string();
    let said = way(&world, &["--kubeconfig", &kubeconfig, "peer.default:80"])?;
    let words = [
        "Istio: istio-injection=enabled",
        "PeerAuthentication",
        "PERMISSIVE",
    ];
    checks.that("in a mesh", said.must("target", "fail", "mesh", &words));

    let ended = session.end_at_once();
    world.finish(checks, ended)
}

#[test]
fn f1_each_way_that_fails_is_named_with_what_helps() -> Result<()> {
    let world = World::start(Lab::start()?)?;
    let closed = Exposed {
        name: "closed-udp",
        namespace: "default",
        cluster_ip: "10.96.3.9",
        ports: &[("main", "UDP", 80, 9001)],
        endpoints: &["10.244.1.21"],
    };
    world.network.expose(&world.lab, &closed)?;
    let session = world.connect()?;
    let mut checks = Checks::new();
    for (target, found, words, code) in [
        ("closed.default:80", "refused", &["0.0.0.0"][..], 1),
        ("gone.default:80", "unreachable", &[], 1),
        ("authors.default:80", "no-ready-endpoints", &["kubectl"], 1),
        (
            "peer.default:81",
            "no-such-port",
            &["kubectl -n default get service"],
            1,
        ),
        ("10.96.0.1:443", "never", &["api-server"], 1),
        (
            "nobody.default:80",
            "no-such-name",
            &["kubebridge routes"],
            1,
        ),
        ("10.77.0.1:80", "no-route", &["--include-cidr"], 1),
        (
            "closed-udp.default:80/udp",
            "refused",
            &["the port is closed"],
            1,
        ),
    ] {
        checks.that(target, fails(&world, target, found, words, code));
    }
    for (target, verdict, found) in [
        ("peer.default:80", "ok", "reachable"),
        ("10.244.1.21:9000", "ok", "reachable"),
        ("peer.default:80/udp", "ok", "reachable"),
        ("www.example.org:80", "note", "outside"),
    ] {
        checks.that(target, {
            way(&world, &[target]).and_then(|said| {
                said.must("target", verdict, found, &[])?;
                said.ends(0)
            })
        });
    }
    let prohibited = way(&world, &["10.244.1.21"])?;
    checks.that(
        "a pod that may not ping",
        prohibited.must("ping", "fail", "prohibited", &["ping_group_range"]),
    );
    world
        .lab
        .node
        .shell("echo '0 2147483647' >/proc/sys/net/ipv4/ping_group_range")?;
    let allowed = way(&world, &["10.244.1.21"])?;
    checks.that("a pod that may", allowed.must("ping", "ok", "allowed", &[]));

    // What programs met is counted, and said in words.
    peer(world.laptop(), &["connect", "10.96.3.2:80"])?;
    let said = way(&world, &[])?;
    let words = ["1 refused: nothing listens there", "not all destinations"];
    checks.that("flows", said.must("flows", "note", "failures", &words));

    let ended = session.end_at_once();
    world.finish(checks, ended)
}
