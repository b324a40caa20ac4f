//! QUIC through a flow of datagrams: somebody else's congestion control and MTU discovery.

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::Lab,
    machine::Machine,
    parts::program,
    pods::{Exposed, serve},
};

use super::tunnel::World;

/// What both Pods and the laptop's link let through, as far as quinn looks.
const FULL: u32 = 1452;

#[test]
fn f6_quic_moves_bytes_over_datagrams_of_the_full_size_and_is_not_stuck() -> Result<()> {
    let world = World::start(Lab::start()?)?;
    let lab = &world.lab;
    let pod = world.network.pod(lab, "quic", "10.244.1.22")?;
    let certificate = lab.folder_path().join("quic.der").display().to_string();
    let program = program("peer")?.display().to_string();
    let words = [&program, "quic-serve", "9443", &certificate];
    let _serving = serve(lab, &pod, 9443, &words)?;
    let service = Exposed {
        name: "quic",
        namespace: "default",
        cluster_ip: "10.96.3.20",
        ports: &[("quic", "UDP", 443, 9443)],
        endpoints: &["10.244.1.22"],
    };
    world.network.expose(lab, &service)?;
    let session = world.connect()?;
    let mut checks = Checks::new();
    // Beside it, what there is without a tunnel.
    for (what, machine) in [
        ("on the node", &lab.node),
        ("from the laptop", world.laptop()),
    ] {
        checks.that(what, moves(machine, &certificate));
    }
    let ended = session.end_at_once();
    world.finish(checks, ended)
}

fn moves(machine: &Machine, certificate: &str) -> Result<()> {
    // Without the bound of other commands: how fast it is here is no matter.
    let mut command = machine.command(program("peer")?);
    command.args(["quic", "10.96.3.20:443", certificate, "2000000", "2"]);
    let output = command.output()?;
    let said = String::from_utf8(output.stdout)?;
    ensure!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    show(said.trim());
    let number = |name: &str| -> Result<u32> {
        let mut words = said
            .split_whitespace()
            .filter_map(|word| word.split_once('='));
        let found = words.find(|(one, _)| *one == name);
        Ok(found
            .with_context(|| format!("no {name} in {said}"))?
            .1
            .parse()?)
    };
    ensure!(
        number("mtu")? == FULL && number("black_holes")? == 0,
        "{said}"
    );
    Ok(())
}

#[expect(clippy::print_stderr, reason = "the numbers are what is shown")]
fn show(said: &str) {
    eprintln!("{said}");
}
