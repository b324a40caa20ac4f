//! Whether the manager still answers, asked over the same channel as everything else.

use std::time::Duration;

use kubebridge_proto::v1::EchoRequest;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::{Client, Tunnel};

/// The time between echoes: with [`MISSES`] missed ones a dead channel is noticed in 8 s.
const EVERY: Duration = Duration::from_secs(4);
/// How long an echo may take in its turn.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an echo may take after a query got no reply: with the query's own 2 s, a dead channel
/// with traffic waiting is noticed in 3 s.
const PATIENCE_IN_DOUBT: Duration = Duration::from_millis(500);
/// Missed echoes in a row that make a channel dead.
const MISSES: u32 = 2;

/// Asks for echoes until the channel is dead, and returns why it is.
pub(super) async fn watch_echo(
    mut client: Client,
    tunnel: &watch::Sender<Tunnel>,
    suspicion: &Notify,
) -> anyhow::Error {
    let mut misses = 0;
    let mut patience = PATIENCE;
    loop {
        let sent = Instant::now();
        let echo = client.echo(EchoRequest {
            payload: Vec::new(),
        });
        match timeout(patience, echo).await {
            Ok(Ok(_)) => {
                misses = 0;
                let now = Instant::now();
                tunnel.send_replace(Tunnel::Up {
                    seen: now,
                    round_trip: Some(now - sent),
                });
            }
            Ok(Err(status)) => return anyhow::anyhow!("echo failed: {}", status.message()),
            Err(_) => misses += 1,
        }
        if misses >= MISSES {
            return anyhow::anyhow!("{misses} echoes without a reply");
        }
        if misses > 0 {
            continue;
        }
        patience = tokio::select! {
            () = sleep(EVERY) => PATIENCE,
            () = suspicion.notified() => PATIENCE_IN_DOUBT,
        };
    }
}
