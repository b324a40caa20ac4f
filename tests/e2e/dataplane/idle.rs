//! Very many connections that do nothing (F2): what they cost, that they live, and the one too many.
//!
//! `KUBEBRIDGE_IDLE_FLOWS=10000 tests/run -- f2_idle` makes the figures of docs/soak.md.

use std::env;

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    lab::Lab,
    pods::hold,
    product::{Manager, Session, status},
    usage::Usage,
    wait::until,
};

use super::says;
use super::tunnel::{OPEN, START, World};

/// How many unless more are asked for.
const FLOWS: u64 = 2_000;

#[test]
fn f2_idle_flows_live_and_cost_little_and_one_over_the_cap_is_reset() -> Result<()> {
    let flows: u64 = match env::var("KUBEBRIDGE_IDLE_FLOWS") {
        Ok(text) => text.parse()?,
        Err(_) => FLOWS,
    };
    let flag = format!("--flows-per-session={flows}");
    let world = World::start_with(Lab::start()?, |lab| Manager::start_with(lab, &[&flag]))?;
    let session = world.connect()?;
    let laptop = world.laptop();
    let mut checks = Checks::new();
    // What the first flow brings is there before.
    checks.that("a flow", says(laptop, &["connect", OPEN], "connected"));
    let none = no_flows(&world)?;
    let before = Cost::of(&world, &session)?;

    let idle = hold(laptop, &["idle", OPEN, &flows.to_string()], "open=");
    let idle = idle.context("open them")?;
    let open = open_flows(&world)?;
    checks.equal("open flows", Ok(open), &both(flows));
    let with = Cost::of(&world, &session)?;
    let one_more = says(laptop, &["connect", OPEN], "ECONNREFUSED");
    checks.that("the flow over the cap", one_more);
    checks.equal("all of them", idle.end(), "all well");
    checks.equal("afterwards", no_flows(&world), &none);
    checks.that(
        "a flow later",
        says(laptop, &["connect", OPEN], "connected"),
    );
    tell(flows, &before, &with, &Cost::of(&world, &session)?);

    let ended = session.end_at_once();
    world.finish(checks, ended)
}

/// What both programs use.
struct Cost {
    session: Usage,
    manager: Usage,
}

impl Cost {
    fn of(world: &World, session: &Session<'_>) -> Result<Self> {
        Ok(Self {
            session: Usage::of(session.process()?)?,
            manager: Usage::of(world.manager.process()?)?,
        })
    }
}

fn both(flows: u64) -> String {
    format!("{flows} in the session, {flows} in the manager")
}

fn open_flows(world: &World) -> Result<String> {
    let status = status(&world.lab)?;
    let here = &status["flows"]["open"];
    let there = world.manager.metrics(&world.lab)?.sum("kubebridge_flows")?;
    Ok(format!("{here} in the session, {there} in the manager"))
}

/// Waits until both programs have no flow any more.
fn no_flows(world: &World) -> Result<String> {
    until("all flows to be over", START, || {
        let now = open_flows(world)?;
        ensure!(now == both(0), "{now}");
        Ok(now)
    })
}

#[expect(clippy::print_stdout, reason = "the figures are what one runs it for")]
fn tell(flows: u64, before: &Cost, with: &Cost, after: &Cost) {
    println!("{flows} idle flows");
    for (name, of) in [
        ("session", (|cost| cost.session) as fn(&Cost) -> Usage),
        ("manager", |cost| cost.manager),
    ] {
        let (before, with, after) = (of(before), of(with), of(after));
        let grown = with.resident.saturating_sub(before.resident) as f64;
        println!("{name} before: {before}\n{name} with:   {with}\n{name} after:  {after}");
        println!("{name}: {:.1} kB a flow", grown / flows as f64);
    }
}
