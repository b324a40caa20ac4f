//! Rounds of every kind of flow, with cuts and stops in between, after which nothing may be left:
//! files and tasks are as many as before, and memory has not grown.
//!
//! 3 minutes by default; `KUBEBRIDGE_SOAK=3600 tests/run -- --profile long soak` runs an hour and
//! makes the figures of docs/soak.md.

use std::{env, fmt, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use kubebridge_tests::{
    checks::Checks,
    dig::{Transport, dig},
    lab::{AUTHORS, Lab},
    machine::Machine,
    parts::program,
    pods::{hold, until_works},
    product::{Manager, Session, status},
    usage::Usage,
    wait::{last, until},
};
use rustix::process::Signal;
use tokio::time::Instant;

use super::tunnel::{CLOSED, OPEN, START, World};

/// Seconds of all rounds unless more are asked for.
const SECONDS: u64 = 180;
/// How long a round's load goes on. Four rounds and their ends are three minutes.
const ROUND: Duration = Duration::from_secs(30);
/// Between two disturbances: as long as two missed echoes need to be noticed.
const BETWEEN: Duration = Duration::from_secs(9);
/// How long the manager is stopped, each time.
const STOPPED: Duration = Duration::from_secs(2);
/// Lanes of the load, and long echoes beside them.
const LANES: &str = "8";
/// Where datagrams go: to a port after which flows are kept for 10 s only.
const DATAGRAMS: &str = "10.96.3.1:53";
/// How long it may take until the last flow is over: far above every time-out of ours.
const QUIET: Duration = Duration::from_secs(240);

/// How many more files or tasks there may be: connections to the API server come and go.
const FEW: u64 = 8;
/// How much more memory each program may have: what an allocator keeps differs by that.
const GROWTH: f64 = 0.10;
const KILOBYTES: f64 = 12.0 * 1024.0;

#[test]
fn soak_of_every_kind_of_flow_leaves_nothing_behind() -> Result<()> {
    let seconds = match env::var("KUBEBRIDGE_SOAK") {
        Ok(text) => text.parse()?,
        Err(_) => SECONDS,
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut lab = Lab::start()?;
    // An hour of everything would be gigabytes.
    lab.log = "info";
    let mut world = World::start(lab)?;
    let session = Session::connect(&world.lab, &["--include-cidr=10.244.0.0/16"])?;
    lose_manager(&world.lab, &mut world.manager)?;
    let mut samples: Vec<Sample> = Vec::new();
    while samples.len() < 3 || Instant::now() < end {
        let number = samples.len();
        let load = round(&world, &session).with_context(|| format!("round {number}"))?;
        let sample = Sample::after_all(&world, &session)?;
        tell(&format!("round {number}: {load}\n  {sample}"));
        samples.push(sample);
    }
    let mut checks = Checks::new();
    compare(&mut checks, &samples);
    let ended = session.end_at_once();
    world.finish(checks, ended)
}

/// Kills the manager under open flows, which are reset, and has another one take its place.
fn lose_manager(lab: &Lab, manager: &mut Manager) -> Result<()> {
    let laptop = lab.laptop.on();
    let held = hold(laptop, &["idle", OPEN, "50"], "open=")?;
    manager.replace(lab)?;
    until_flows(laptop)?;
    let Err(error) = held.end() else {
        bail!("flows of a manager that is gone live");
    };
    let told = format!("{error:#}");
    ensure!(told.contains("Connection reset"), "{told}");
    Ok(())
}

/// One round of the load, disturbed; what was done.
fn round(world: &World, session: &Session<'_>) -> Result<String> {
    let laptop = world.laptop();
    let load = hold(laptop, &["load", OPEN, DATAGRAMS, CLOSED, LANES], "loading")?;
    let end = Instant::now() + ROUND;
    let mut worked = Vec::new();
    for (name, disturb) in DISTURBANCES.iter().cycle() {
        if Instant::now() >= end {
            break;
        }
        disturb(world)?;
        let start = Instant::now();
        until_flows(laptop)?;
        worked.push(format!("{name} {:.1?}", start.elapsed()));
        let resolver = session.resolver()?;
        for transport in [Transport::Udp, Transport::Tcp] {
            let name = "authors.default.svc.cluster.local";
            until("the resolver to answer", START, || {
                let got = dig(laptop, &resolver, transport, name, "A")?.to_string();
                ensure!(got.ends_with(&format!(" A {AUTHORS}")), "{got}");
                Ok(())
            })?;
        }
        last(BETWEEN);
    }
    let load = load.end()?;
    Ok(format!(
        "{load}\n  a new flow was carried after: {}",
        worked.join(", ")
    ))
}

type Disturb = fn(&World) -> Result<()>;

/// What is done to the way while the load goes on.
const DISTURBANCES: [(&str, Disturb); 3] = [("cut", cut), ("dead path", die), ("stop", stop)];

/// Breaks every connection to the manager.
fn cut(world: &World) -> Result<()> {
    ensure!(world.lab.relay.cut() > 0, "a cut met no connection");
    Ok(())
}

/// Loses what goes over the connections to the manager, without a word.
fn die(world: &World) -> Result<()> {
    ensure!(
        world.lab.relay.freeze() > 0,
        "a dead path had no connection"
    );
    Ok(())
}

/// Stops the manager for a while, as a node that swaps does.
fn stop(world: &World) -> Result<()> {
    world.manager.signal(Signal::STOP)?;
    last(STOPPED);
    world.manager.signal(Signal::CONT)
}

/// Waits until a new flow is carried.
fn until_flows(laptop: &Machine) -> Result<()> {
    let program = program("peer")?.display().to_string();
    let words = [program.as_str(), "down", OPEN, "100000", "1"];
    until_works(laptop, "a new flow", &words).map(drop)
}

/// What there is of both programs when no flow is open.
struct Sample {
    /// Flows that the session opened so far.
    opened: u64,
    /// Data connections; each is a file of both programs.
    connections: u64,
    session: Program,
    manager: Program,
}

struct Program {
    usage: Usage,
    tasks: u64,
}

impl Sample {
    /// Waits until all flows are over at both ends, and looks.
    fn after_all(world: &World, session: &Session<'_>) -> Result<Self> {
        until("all flows to be over", QUIET, || {
            let status = status(&world.lab)?;
            let metrics = world.manager.metrics(&world.lab)?;
            let number = |value: &serde_json::Value| value.as_u64().context("no number");
            let flows = &status["flows"];
            let open = number(&flows["open"])?;
            ensure!(open == 0, "{open} flows of the session are open");
            for name in ["flows", "flows_parked", "flow_memory_bytes"] {
                let left = metrics.sum(&format!("kubebridge_{name}"))?;
                ensure!(left == 0.0, "the manager has {left} {name}");
            }
            let connections = flows["connections"].as_array().map_or(0, Vec::len) as u64;
            let there = metrics.sum("kubebridge_data_connections")? as u64;
            ensure!(
                there == connections,
                "{there} data connections, not {connections}"
            );
            Ok(Self {
                opened: number(&flows["opened"])?,
                connections,
                session: Program {
                    usage: Usage::of(session.process()?)?,
                    tasks: number(&status["tasks"])?,
                },
                manager: Program {
                    usage: Usage::of(world.manager.process()?)?,
                    tasks: metrics.sum("kubebridge_tasks")? as u64,
                },
            })
        })
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (session, manager) = (&self.session, &self.manager);
        write!(
            formatter,
            "{} flows so far, {} data connections
  session: {}, {} tasks
  manager: {}, {} tasks",
            self.opened,
            self.connections,
            session.usage,
            session.tasks,
            manager.usage,
            manager.tasks
        )
    }
}

/// Compares the last sample with the one after a quarter of the rounds.
fn compare(checks: &mut Checks, samples: &[Sample]) {
    let first = &samples[samples.len() / 4];
    let last = &samples[samples.len() - 1];
    for (name, of) in [
        (
            "session",
            (|sample| &sample.session) as fn(&Sample) -> &Program,
        ),
        ("manager", |sample| &sample.manager),
    ] {
        let (then, now) = (of(first), of(last));
        let files = |sample: &Sample| of(sample).usage.files - sample.connections;
        let most = then.usage.resident as f64 * (1.0 + GROWTH) + KILOBYTES;
        checks.that(name, {
            let limits = [
                ("files", files(last), files(first) + FEW),
                ("tasks", now.tasks, then.tasks + FEW),
                ("kB resident", now.usage.resident, most as u64),
            ];
            limits.into_iter().try_for_each(|(what, now, most)| {
                ensure!(
                    now <= most,
                    "{now} {what}, at most {most} after the warm-up"
                );
                Ok(())
            })
        });
        let flows = (last.opened - first.opened) as f64 / 1000.0;
        let grown = now.usage.resident as f64 - then.usage.resident as f64;
        tell(&format!(
            "{name}: {:+.1} kB resident per 1,000 flows",
            grown / flows
        ));
    }
}

#[expect(clippy::print_stdout, reason = "the figures are what one runs it for")]
fn tell(line: &str) {
    println!("{line}");
}
