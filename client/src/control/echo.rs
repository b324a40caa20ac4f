//! Whether the manager still answers, asked over the same channel as everything else.

use std::time::Duration;

use kubebridge_platform::Clock;
use kubebridge_proto::v1::EchoRequest;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::{Client, Tunnel};

/// The time between echoes: with [`MISSES`] missed ones a dead channel is noticed in 8 s.
const EVERY: Duration = Duration::from_secs(4);
/// How long an echo may take in its turn.
const PATIENCE: Duration = Duration::from_secs(2);
/// The least and, where the round trip is not known, the only time an echo may take once a query
/// has waited for its reply: with the query's own second, a dead channel with traffic waiting is
/// noticed in 2 s.
const PATIENCE_IN_DOUBT: Duration = Duration::from_millis(500);
/// A slow channel is given this many of its round trips.
const ROUND_TRIPS: u32 = 4;
/// Missed echoes in a row that make a channel dead.
const MISSES: u32 = 2;

/// Asks for echoes until the channel is dead, and returns why it is.
pub(super) async fn watch_echo(
    mut client: Client,
    tunnel: &watch::Sender<Tunnel>,
    clock: &Clock,
    suspicion: &Notify,
) -> anyhow::Error {
    let mut misses = 0;
    let mut patience = PATIENCE;
    let mut usual = None;
    loop {
        let sent = Instant::now();
        let echo = client.echo(EchoRequest {
            payload: Vec::new(),
        });
        match reply_in_time(echo, patience, in_doubt(usual), suspicion).await {
            Some(Ok(_)) => {
                misses = 0;
                let round_trip = sent.elapsed();
                usual = Some(round_trip);
                tunnel.send_replace(Tunnel::Up {
                    seen: clock.now(),
                    round_trip: Some(round_trip),
                });
            }
            Some(Err(status)) => return anyhow::anyhow!("echo failed: {}", status.message()),
            None => misses += 1,
        }
        if misses >= MISSES {
            return anyhow::anyhow!("{misses} echoes without a reply");
        }
        if misses > 0 {
            continue;
        }
        patience = tokio::select! {
            () = sleep(EVERY) => PATIENCE,
            () = suspicion.notified() => in_doubt(usual),
        };
    }
}

fn in_doubt(usual: Option<Duration>) -> Duration {
    let usual = usual.unwrap_or_default().saturating_mul(ROUND_TRIPS);
    usual.clamp(PATIENCE_IN_DOUBT, PATIENCE)
}

/// Waits for a reply, and less long from the moment when there is doubt that any will come.
async fn reply_in_time<T>(
    reply: impl Future<Output = T>,
    patience: Duration,
    in_doubt: Duration,
    suspicion: &Notify,
) -> Option<T> {
    tokio::pin!(reply);
    tokio::select! {
        reply = &mut reply => return Some(reply),
        () = sleep(patience) => return None,
        () = suspicion.notified() => {}
    }
    timeout(in_doubt.min(patience), reply).await.ok()
}
