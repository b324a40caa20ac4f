//! The task that asks upstreams for a sign of life while they are unknown, in doubt or down.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Upstreams;

/// Probes under way at once: three overlap for one upstream, and twenty upstreams are more than anybody configures.
const MOST_PROBES: usize = 64;
/// When nothing is due the task waits to be called; this only keeps its timer defined.
const IDLE: Duration = Duration::from_secs(3600);

impl Upstreams {
    /// Probes members until cancelled: each once at first, and again and again while it is in doubt or
    /// down. Whoever made the set owns the one task that drives this.
    pub async fn run(&self, stop: CancellationToken) {
        let _watching = self.board.watching();
        let mut probes: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
        loop {
            let next = self.send_probes(&mut probes);
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.board.called() => {}
                Some(()) = probes.next() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Sends the probes that are due and returns when the next one is.
    fn send_probes(&self, probes: &mut FuturesUnordered<BoxFuture<'static, ()>>) -> Instant {
        let now = Instant::now();
        let mut next = now + IDLE;
        let members = self.members();
        let wanting = members
            .iter()
            .filter_map(|member| Some((member.next_probe()?, member)));
        let mut wanting: Vec<_> = wanting.collect();
        // Whoever has waited longest comes first: where there is no room for all, all have their turn.
        wanting.sort_by_key(|(due, _)| *due);
        for (due, member) in wanting {
            let mut due = due.unwrap_or(now);
            if due <= now && probes.len() < MOST_PROBES {
                due = now + jittered(self.settings.probe_interval);
                member.probe_sent(due);
                let (member, patience) = (Arc::clone(member), self.settings.probe_timeout);
                probes.push(Box::pin(async move { member.probe(patience).await }));
            }
            // Where there was no room, a probe that ends wakes the task.
            if due > now {
                next = next.min(due);
            }
        }
        next
    }
}

/// Varies an interval by a tenth, so that the probes of many of us do not come together.
fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(rand::random_range(0.9..=1.1))
}
