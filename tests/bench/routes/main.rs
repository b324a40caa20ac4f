//! Figures of the route streams: 5,000 Services, 200 subscribers, 1,000 changes a second.
//!
//! Starts the traffic-manager as a process of its own (this program again) against a scripted API
//! server over real sockets, and prints how long changes take to reach every subscriber, what the
//! manager weighs, and what was coalesced. Ends with an error when a subscriber holds anything
//! else than the API server in the end. Limits: conditions W10, W13, W15 and goal P19.
#![expect(clippy::print_stdout, reason = "figures are this program's output")]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::time::{Instant, MissedTickBehavior, interval};
use traffic_manager::test_util::ApiServer;

use self::manager::Manager;
use self::subscribers::{Board, Subscriber};

mod manager;
mod subscribers;

const SERVICES: usize = 5_000;
const SUBSCRIBERS: usize = 200;
/// Single changes measured one by one, with time between them.
const QUIET_CHANGES: usize = 250;
const QUIET_GAP: Duration = Duration::from_millis(40);
/// Changes under load: 1,000 a second for 10 s.
const LOAD_CHANGES: usize = 10_000;
const LOAD_GAP: Duration = Duration::from_millis(1);
const CHANGES: usize = QUIET_CHANGES + LOAD_CHANGES;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    if arguments.nth(1).is_some_and(|word| word == "manager") {
        return runtime.block_on(manager::serve(arguments));
    }
    runtime.block_on(async {
        initial_sync().await?;
        routes().await
    })
}

/// The address that stands for a change.
pub(crate) fn address(number: usize) -> String {
    let bits = 0x0a00_0000 + u32::try_from(number).unwrap_or(u32::MAX);
    std::net::Ipv4Addr::from(bits).to_string()
}

pub(crate) fn name(service: usize) -> String {
    format!("service-{service:05}")
}

async fn initial_sync() -> Result<()> {
    const MANY: usize = 10_000;
    let api = ApiServer::default();
    (0..MANY).for_each(|service| api.apply("default", &name(service), &address(service)));
    let started = Instant::now();
    let manager = Manager::start(api).await?;
    manager.ready().await?;
    println!(
        "W15  {MANY} Services listed and ready {:.2} s after the start, RSS {:.1} MB, most {:.1} MB",
        started.elapsed().as_secs_f64(),
        manager.memory("VmRSS:")? / 1024.0,
        manager.memory("VmHWM:")? / 1024.0
    );
    Ok(())
}

async fn routes() -> Result<()> {
    let api = ApiServer::default();
    let board = Board::new(CHANGES);
    (0..SERVICES).for_each(|service| api.apply("default", &name(service), &address(0)));
    let manager = Manager::start(api.clone()).await?;
    manager.ready().await?;
    let alone = manager.memory("VmRSS:")?;

    let slow = subscribers::Slow::start(manager.grpc).await?;
    let started = Instant::now();
    let mut subscribers = subscribe(&manager, &board).await?;
    let took = started.elapsed().as_secs_f64();
    let subscribed = manager.memory("VmRSS:")?;
    println!("     {SERVICES} Services, {SUBSCRIBERS} subscribers and one that does not read");
    println!("     all snapshots delivered in {took:.2} s");
    println!(
        "W10  RSS of the manager: {:.1} MB alone, {:.1} MB with the subscribers ({:.1} KB each)",
        alone / 1024.0,
        subscribed / 1024.0,
        (subscribed - alone) / (SUBSCRIBERS as f64)
    );

    let mut expected = vec![0_usize; SERVICES];
    let mut change = |number: usize| {
        let service = number * 7919 % SERVICES;
        expected[service] = number;
        board.sent(number);
        api.apply("default", &name(service), &address(number));
    };
    let mut ticks = interval(QUIET_GAP);
    for number in 1..=QUIET_CHANGES {
        ticks.tick().await;
        change(number);
    }
    settle(&mut subscribers, QUIET_CHANGES).await?;
    report("one change at a time", &subscribers, 1..=QUIET_CHANGES);

    let before = manager.counts().await?;
    let mut ticks = interval(LOAD_GAP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let started = Instant::now();
    for number in QUIET_CHANGES + 1..=CHANGES {
        ticks.tick().await;
        change(number);
    }
    let rate = LOAD_CHANGES as f64 / started.elapsed().as_secs_f64();
    settle(&mut subscribers, CHANGES).await?;
    report(
        &format!("{rate:.0} changes a second"),
        &subscribers,
        QUIET_CHANGES + 1..=CHANGES,
    );
    let after = manager.counts().await?;
    let (frames, told) = (after.frames - before.frames, after.changes - before.changes);
    println!(
        "     {frames} frames with {told} changes: {:.1} changes a frame; {:.0} % of {LOAD_CHANGES} x {SUBSCRIBERS} were superseded before they were sent",
        told as f64 / frames as f64,
        100.0 - 100.0 * told as f64 / (LOAD_CHANGES * SUBSCRIBERS) as f64
    );
    println!(
        "W10  RSS of the manager afterwards {:.1} MB, most {:.1} MB; CPU {:.1} s",
        manager.memory("VmRSS:")? / 1024.0,
        manager.memory("VmHWM:")? / 1024.0,
        manager.cpu()?
    );
    for subscriber in subscribers {
        ensure!(
            subscriber.holds(&expected),
            "a subscriber holds another table"
        );
    }
    let (frames, right) = slow.catch_up(&expected).await?;
    ensure!(right, "the slow subscriber holds another table");
    println!("W1   the slow subscriber was right after {frames} frames");
    let load = std::fs::read_to_string("/proc/loadavg").context("no load")?;
    println!("     load of the machine: {}", load.trim());
    Ok(())
}

/// Starts the subscribers and waits until each has its snapshot.
async fn subscribe(manager: &Manager, board: &Board) -> Result<Vec<Subscriber>> {
    let mut subscribers = Vec::new();
    for _ in 0..SUBSCRIBERS {
        subscribers.push(Subscriber::start(manager.grpc, board.clone()).await?);
    }
    for subscriber in &mut subscribers {
        subscriber.complete().await?;
    }
    Ok(subscribers)
}

/// Waits until every subscriber has seen a change.
async fn settle(subscribers: &mut [Subscriber], number: usize) -> Result<()> {
    for subscriber in subscribers {
        subscriber.saw(number).await?;
    }
    Ok(())
}

fn report(what: &str, subscribers: &[Subscriber], numbers: std::ops::RangeInclusive<usize>) {
    let mut each: Vec<f64> = Vec::new();
    let mut last = vec![0.0_f64; numbers.end() + 1];
    for subscriber in subscribers {
        for (number, seconds) in subscriber.seen() {
            if numbers.contains(&number) {
                each.push(seconds * 1000.0);
                last[number] = last[number].max(seconds * 1000.0);
            }
        }
    }
    last.retain(|milliseconds| *milliseconds > 0.0);
    for (label, sample) in [("a subscriber", &mut each), ("all subscribers", &mut last)] {
        sample.sort_by(f64::total_cmp);
        let at = |part: f64| sample[((sample.len() - 1) as f64 * part) as usize];
        println!(
            "P19  {what}: API event -> {label} p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms ({} samples)",
            at(0.5),
            at(0.99),
            at(1.0),
            sample.len()
        );
    }
}
