//! Much data in several flows over a path that loses packets (F3): every octet arrives, once.
//!
//! `KUBEBRIDGE_LOSS_BYTES=1073741824 tests/run -- f3_bytes` moves a GiB each way; its figures are in
//! docs/soak.md.

use std::{env, thread, time::Duration};

use anyhow::{Context, Result, anyhow};
use kubebridge_tests::{
    checks::Checks,
    distance::Shape,
    lab::Lab,
    machine::Machine,
    parts::program,
    product::{Attempt, NAMESPACES, token_flags},
    secured::{make_certificates, network_manager, tls_flags},
};

use super::tunnel::{OPEN, World};

/// How much goes each way at each loss unless more is asked for.
const BYTES: u64 = 64 << 20;

/// In how many flows.
const FLOWS: u64 = 4;

/// The path of nobody's losses; what it loses of a million is changed.
const PATH: Shape = Shape {
    delay: Duration::from_millis(1),
    loss_ppm: 0,
    kbit: 1_000_000,
};

/// How long one loss may take: a GiB at 4 Mbit/s.
const PATIENCE: Duration = Duration::from_secs(2400);

#[test]
fn f3_bytes_arrive_once_and_in_order_whatever_the_path_loses() -> Result<()> {
    let bytes = match env::var("KUBEBRIDGE_LOSS_BYTES") {
        Ok(text) => text.parse()?,
        Err(_) => BYTES,
    };
    let world = World::start_with(Lab::start_far(PATH)?, |lab| {
        make_certificates(lab, "certs")?;
        network_manager(lab)
    })?;
    // By the network: the relay would leave the path out.
    let mut flags = tls_flags(&world.lab, "certs", "certs");
    flags.extend(token_flags(&world.lab, &NAMESPACES)?);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let session = Attempt::start_with(&world.lab, &NAMESPACES, &flags)?.connected()?;
    let distance = world.lab.distance.as_ref().context("no distance")?;
    let mut checks = Checks::new();
    for loss_ppm in [0, 1_000, 10_000] {
        distance.become_like(Shape { loss_ppm, ..PATH })?;
        let moved = both_ways(world.laptop(), bytes / FLOWS);
        let loss = f64::from(loss_ppm) / 10_000.0;
        checks.that(
            format!("{loss} % loss"),
            moved.map(|told| tell(loss, &told)),
        );
    }
    distance.become_like(PATH)?;
    let ended = session.end_at_once();
    world.finish(checks, ended)
}

/// Moves so much in each of the flows, there and back at the same time.
fn both_ways(laptop: &Machine, each: u64) -> Result<[String; 2]> {
    let program = program("peer")?.display().to_string();
    let (each, flows) = (each.to_string(), FLOWS.to_string());
    let one = |way| laptop.output_within(PATIENCE, &[&program, way, OPEN, &each, &flows]);
    let [down, up] = thread::scope(|scope| {
        let ways = ["down", "up"].map(|way| scope.spawn(move || one(way).context(way)));
        ways.map(|way| way.join())
    });
    let dead = |_| anyhow!("a thread died");
    Ok([down.map_err(dead)??, up.map_err(dead)??])
}

#[expect(clippy::print_stdout, reason = "the figures are what one runs it for")]
fn tell(loss: f64, [down, up]: &[String; 2]) {
    println!("{loss} % loss: down {} · up {}", down.trim(), up.trim());
}
