//! Whether the manager still answers, asked over the same channel as everything else.
//!
//! It decides on time alone: what an echo is and who is told of it are the caller's.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tonic::Status;

/// The time between echoes: with [`MISSES`] missed ones a dead channel is noticed in 8 s.
const EVERY: Duration = Duration::from_secs(4);
/// How long an echo may take in its turn.
const PATIENCE: Duration = Duration::from_secs(2);
/// The least time an echo may take once a query has waited for its reply: with the query's own
/// second, a dead channel with traffic waiting is noticed in 2 s.
const LEAST_IN_DOUBT: Duration = Duration::from_millis(500);
/// The most, whatever the round trip, and where none is known yet: such a channel is then noticed in 2.8 s. An echo that was
/// missed still counts when it comes, so a channel lives on with round trips of up to 1.8 s; with
/// longer ones no call to the manager would succeed anyway.
const MOST_IN_DOUBT: Duration = Duration::from_millis(900);
/// A slow channel is given this many of its round trips, between the two.
const ROUND_TRIPS: u32 = 4;
/// Missed echoes in a row that make a channel dead.
const MISSES: u32 = 2;

/// Asks for echoes until the channel is dead, and returns why it is.
///
/// `ask` sends one echo, `heard` is told how long each took, and `suspicion` is rung by who has
/// waited for something else in vain.
pub(crate) async fn watch_echo<Reply>(
    mut ask: impl FnMut() -> Reply,
    mut heard: impl FnMut(Duration),
    suspicion: &Notify,
) -> anyhow::Error
where
    Reply: Future<Output = Result<(), Status>>,
{
    let mut patience = PATIENCE;
    let mut usual = None;
    loop {
        let reply = match hear(&mut ask, patience, in_doubt(usual), suspicion).await {
            Ok(reply) => reply,
            Err(error) => return error,
        };
        usual = Some(reply.round_trip);
        heard(reply.round_trip);
        patience = if reply.was_doubted {
            // It may have been on its way before: it says nothing about now.
            in_doubt(usual)
        } else {
            tokio::select! {
                () = sleep(EVERY) => PATIENCE,
                () = suspicion.notified() => in_doubt(usual),
            }
        };
    }
}

fn in_doubt(usual: Option<Duration>) -> Duration {
    let enough = usual.map_or(MOST_IN_DOUBT, |usual| usual.saturating_mul(ROUND_TRIPS));
    enough.clamp(LEAST_IN_DOUBT, MOST_IN_DOUBT)
}

/// A reply that came.
struct Heard {
    round_trip: Duration,
    /// Whether there was doubt before it came.
    was_doubted: bool,
}

/// Asks up to [`MISSES`] times for a reply.
///
/// From the moment when there is doubt that any will come, this and all later echoes get the
/// shorter time: whoever doubts must not wait for the longer one of an echo that happened to be on
/// its way.
async fn hear<Reply>(
    mut ask: impl FnMut() -> Reply,
    mut patience: Duration,
    in_doubt: Duration,
    suspicion: &Notify,
) -> anyhow::Result<Heard>
where
    Reply: Future<Output = Result<(), Status>>,
{
    let mut replies = FuturesUnordered::new();
    let mut was_doubted = false;
    for _ in 0..MISSES {
        let sent = Instant::now();
        let reply = ask();
        replies.push(async move { reply.await.map(|()| sent.elapsed()) });
        let mut missed = sent + patience;
        loop {
            tokio::select! {
                Some(reply) = replies.next() => {
                    let round_trip = reply.map_err(|status| {
                        anyhow::anyhow!("echo failed: {}", status.message())
                    })?;
                    return Ok(Heard { round_trip, was_doubted });
                }
                () = sleep_until(missed) => break,
                () = suspicion.notified(), if patience > in_doubt => {
                    was_doubted = true;
                    patience = in_doubt;
                    missed = missed.min(Instant::now() + in_doubt);
                }
            }
        }
    }
    anyhow::bail!("{MISSES} echoes without a reply")
}

#[cfg(test)]
mod tests;
