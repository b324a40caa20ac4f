//! Holds the cluster's published keys: fetched at start, now and then, and when a token names one
//! that is not there (R1).
//!
//! Tokens are verified against what is held; nobody who asks for a session makes us ask more often
//! than [`LEAST`], and while the source is away what was held stays good.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;
use kubebridge_proto::token::Reason;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::Bad;
use super::keys::KeySet;

/// How often keys are fetched again when nothing asks for it: a key that was withdrawn is forgotten
/// within minutes, and a fetch is two small requests.
pub const EVERY: Duration = Duration::from_secs(300);

/// The least time between two fetches that tokens with unknown keys ask for: after a rotation new
/// tokens are good within it, and forged ones cost the API server six small requests a minute.
pub const LEAST: Duration = Duration::from_secs(10);

/// How long a fetch may take: a connection (5 s) and two answers.
const FETCH: Duration = Duration::from_secs(10);

/// How long a request for a session waits for a fetch; clients give up after 2 s and ask again.
const WAIT: Duration = Duration::from_millis(1500);

/// The waits after failures, doubled from the first to the longest.
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// What a cluster publishes about its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Who issues them.
    pub issuer: String,
    /// The keys they are signed with.
    pub keys: KeySet,
}

/// Where keys are published.
pub trait KeySource: Send + Sync + 'static {
    /// Fetches what is published now.
    fn fetch(&self) -> BoxFuture<'_, Result<Published>>;
}

/// The keys held.
#[derive(Debug, Clone)]
pub struct Keeper {
    held: watch::Receiver<Held>,
    /// How many fetches there have to be for everybody who waits.
    wanted: watch::Sender<u64>,
}

/// What is held, and how the last fetch went.
#[derive(Debug, Clone, Default)]
pub struct Held {
    /// What was published when it was last fetched.
    pub published: Option<Arc<Published>>,
    /// Why the last fetch failed; `None` when it did not.
    pub trouble: Option<String>,
    /// When the last fetch ended.
    at: Option<Instant>,
    /// How many there were.
    fetches: u64,
}

impl Keeper {
    /// Makes a keeper and the task that fetches for it until shutdown.
    pub fn new(
        source: impl KeySource,
        shutdown: CancellationToken,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (sender, held) = watch::channel(Held::default());
        let (wanted, asked) = watch::channel(0);
        let task = keep(source, sender, asked, shutdown);
        (Self { held, wanted }, task)
    }

    /// Follows what is held.
    #[must_use]
    pub fn held(&self) -> watch::Receiver<Held> {
        self.held.clone()
    }

    /// Returns what is published, once it has a key of this id.
    ///
    /// # Errors
    /// When there is no such key, also after a fetch if one is due.
    pub async fn with_key(&self, id: &str) -> Result<Arc<Published>, Bad> {
        let mut held = self.held.clone();
        let (found, at, fetches) = {
            let held = held.borrow_and_update();
            (held.with_key(id), held.at, held.fetches)
        };
        if let Some(found) = found {
            return Ok(found);
        }
        if at.is_none_or(|at| at.elapsed() >= LEAST) {
            self.wanted.send_if_modified(|wanted| {
                let more = *wanted <= fetches;
                *wanted = (*wanted).max(fetches + 1);
                more
            });
            let fetched = held.wait_for(|held| held.fetches > fetches);
            if let Ok(Ok(held)) = timeout(WAIT, fetched).await
                && let Some(found) = held.with_key(id)
            {
                return Ok(found);
            }
        }
        let message = match held.borrow().published {
            Some(_) => "it is signed with a key that the cluster does not publish",
            None => "the cluster's keys are not known yet",
        };
        Err(Bad::new(Reason::KeyUnknown, message))
    }
}

impl Held {
    fn with_key(&self, id: &str) -> Option<Arc<Published>> {
        let published = self.published.as_ref()?;
        published.keys.has(id).then(|| Arc::clone(published))
    }
}

async fn keep(
    source: impl KeySource,
    held: watch::Sender<Held>,
    mut wanted: watch::Receiver<u64>,
    shutdown: CancellationToken,
) {
    let mut failures = 0;
    loop {
        let fetched = tokio::select! {
            () = shutdown.cancelled() => return,
            fetched = timeout(FETCH, source.fetch()) => fetched,
        };
        let fetched =
            fetched.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer within {FETCH:?}")));
        let wait = match fetched {
            Ok(published) => {
                failures = 0;
                take(&held, published);
                EVERY
            }
            Err(error) => {
                failures += 1;
                complain(&held, &format!("{error:#}"));
                FIRST_RETRY
                    .saturating_mul(2_u32.saturating_pow(failures - 1))
                    .min(LONGEST_RETRY)
            }
        };
        let fetches = held.borrow().fetches;
        tokio::select! {
            () = shutdown.cancelled() => return,
            // With all keepers gone nobody asks any more.
            Ok(_) = wanted.wait_for(|wanted| *wanted > fetches) => {}
            () = sleep(wait) => {}
        }
    }
}

fn take(held: &watch::Sender<Held>, published: Published) {
    held.send_modify(|held| {
        if held.published.as_deref() != Some(&published) {
            info!(
                keys = published.keys.len(),
                issuer = published.issuer,
                "token keys"
            );
            held.published = Some(Arc::new(published));
        }
        held.trouble = None;
        held.at = Some(Instant::now());
        held.fetches += 1;
    });
}

fn complain(held: &watch::Sender<Held>, error: &str) {
    held.send_modify(|held| {
        // Once for each kind of trouble.
        if held.trouble.as_deref() != Some(error) {
            warn!(error, "token keys not fetched, the last stay");
        }
        held.trouble = Some(error.to_owned());
        held.at = Some(Instant::now());
        held.fetches += 1;
    });
}

#[cfg(test)]
mod tests;
