//! Kills one of two upstreams and brings it back, again and again.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream;
use kubebridge_dns::resolver::FanoutPolicy;
use kubebridge_dns::upstreams::UpstreamState;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};

use crate::asker::{Asker, Who};
use crate::server::{Death, Server};

/// Trials at once, each with servers of its own: few enough that they do not wait for the processor.
const AT_ONCE: usize = 5;
/// The time between two questions of a trial.
const EVERY: Duration = Duration::from_millis(20);
/// The first is the faster one, so that every policy asks it until it dies.
const ROUND_TRIPS: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(8)];
/// No trial takes longer; one that does is a failure and ends the program.
const LIMIT: Duration = Duration::from_secs(60);

/// What one trial found.
#[derive(Debug)]
struct Trial {
    /// The longest that a question took which was asked after the death.
    longest: Duration,
    /// From the death until the upstream was asked no more.
    noticed: Duration,
    /// From the return until the upstream was asked again.
    recovered: Duration,
    failed: usize,
}

pub(crate) async fn print(trials: u32) {
    println!("{trials} trials, a question every {} ms", EVERY.as_millis());
    println!(
        "{:<22}{:<10}{:>28}{:>28}{:>28}{:>8}",
        "policy",
        "death",
        "longest question p50/p99/max",
        "left out after",
        "asked again after",
        "failed"
    );
    let policies = [
        ("in order (forwarder)", Who::Forwarder),
        ("all at once", Who::Resolver(FanoutPolicy::All)),
        ("hedged", Who::Resolver(FanoutPolicy::Hedged)),
    ];
    for (number, (policy, who)) in policies.into_iter().enumerate() {
        for (death, word) in [(Death::Silent, "silent"), (Death::Closed, "refuses")] {
            // Every trial has addresses of its own: what a dead server left in a socket meets nobody.
            let network = 2 * number as u8 + u8::from(word == "silent");
            let run = |index: u32| async move {
                let trial = timeout(LIMIT, trial(who, death, network, index)).await;
                trial.expect("a trial within a minute")
            };
            let found: Vec<Trial> = stream::iter(0..trials)
                .map(run)
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
            let failed: usize = found.iter().map(|trial| trial.failed).sum();
            println!(
                "{policy:<22}{word:<10}{:>28}{:>28}{:>28}{failed:>8}",
                spread(found.iter().map(|trial| trial.longest)),
                spread(found.iter().map(|trial| trial.noticed)),
                spread(found.iter().map(|trial| trial.recovered)),
            );
        }
    }
}

async fn trial(who: Who, death: Death, network: u8, index: u32) -> Trial {
    let [.., high, low] = index.to_be_bytes();
    let host = |last| SocketAddr::from(([127, 77 + network, high, low], last));
    let addresses = [host(15_301), host(15_302)];
    let mut first = Server::start(addresses[0], ROUND_TRIPS[0]).await;
    let _second = Server::start(addresses[1], ROUND_TRIPS[1]).await;
    let asker = Arc::new(Asker::new(who, &addresses));
    until(&asker, UpstreamState::Healthy).await;

    let died = Instant::now();
    first.kill(death).await;
    let (questions, noticed) = {
        let asking = ask_while(&asker, until(&asker, UpstreamState::Unhealthy)).await;
        (asking, died.elapsed())
    };

    // At any time between two probes.
    sleep(Duration::from_millis(u64::from(index * 37 % 500))).await;
    let back = Instant::now();
    first.revive().await;
    ask_while(&asker, until(&asker, UpstreamState::Healthy)).await;
    Trial {
        longest: questions.iter().map(|(took, _)| *took).max().unwrap(),
        noticed,
        recovered: back.elapsed(),
        failed: questions.iter().filter(|(_, answered)| !answered).count(),
    }
}

/// Asks at even times until something has happened; how long each question took, and whether it was answered.
async fn ask_while(
    asker: &Arc<Asker>,
    happened: impl Future<Output = ()>,
) -> Vec<(Duration, bool)> {
    let mut questions = JoinSet::new();
    let mut ticks = interval(EVERY);
    tokio::pin!(happened);
    loop {
        tokio::select! {
            () = &mut happened => break,
            _ = ticks.tick() => {
                let asker = Arc::clone(asker);
                questions.spawn(async move {
                    let asked = Instant::now();
                    let answer = asker.ask().await;
                    (asked.elapsed(), answer.is_some())
                });
            }
        }
    }
    questions.join_all().await
}

async fn until(asker: &Asker, state: UpstreamState) {
    let mut watch = asker.upstreams.watch();
    let reached = watch.wait_for(|all| all[0].state == state).await;
    reached.map(drop).unwrap();
}

/// Shows the median, the 99th percentile and the longest.
pub(crate) fn spread(times: impl Iterator<Item = Duration>) -> String {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)].as_millis();
    format!("{} / {} / {} ms", at(50), at(99), at(100))
}
