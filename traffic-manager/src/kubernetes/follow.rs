//! Lists and watches one kind of object for ever, and says when that does not work.
//!
//! On top of kube's watcher (list, resume, relist on 410): a capped backoff, the difference
//! between "may not" and "cannot", and the moment a broken watch works again, which the watcher
//! does not tell. What is done with the objects is the caller's business.

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt;
use kube::core::Status;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::cluster::{Cluster, Connection, Trouble};

/// The first wait after a failure: an API server that restarts behind a load balancer is back
/// almost at once.
const FIRST_WAIT: Duration = Duration::from_millis(200);

/// The longest wait after a failure. With the trial below a right granted later is seen within
/// 30 s, as conditions W5 asks.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A watch that has been quiet for this long after a failure works: longer than
/// [`super::cluster::CONNECT_TIMEOUT`], and a server that refuses does so at once.
const TRIAL: Duration = Duration::from_secs(6);

/// Seconds until a watch is renewed, which is when a right withdrawn meanwhile shows: the API server
/// lets an open watch run on. A connection that died in silence is noticed 5 s later; a renewal
/// resumes from the last bookmark and costs one request.
const WATCH_SECONDS: u32 = 20;

/// The code for a resource the cluster does not have.
const NOT_FOUND: u16 = 404;

/// What happened.
#[derive(Debug)]
pub(super) enum Seen<K> {
    /// A list begins.
    Restart,
    /// An object of the list.
    Listed(K),
    /// The list is complete.
    Synced,
    /// An object is new or different.
    Changed(K),
    /// An object is gone.
    Removed(K),
    /// The API server says no.
    Forbidden {
        /// What it does not allow.
        verb: &'static str,
    },
    /// The API server is out of reach, or talks nonsense.
    Away {
        /// What happened, as the system says it.
        cause: String,
    },
    /// After one of the two before: it works again, nothing was missed.
    Recovered,
}

/// What is followed, and whether we can do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Somebody should look when this resource is not allowed.
    Required(&'static str),
    /// Many clusters do not allow this resource, and that is fine.
    Optional(&'static str),
}

impl Need {
    fn resource(self) -> &'static str {
        match self {
            Self::Required(resource) | Self::Optional(resource) => resource,
        }
    }
}

/// Follows all objects of the API that `api` makes of a connection, until shutdown.
pub(super) async fn follow<K>(
    cluster: Cluster,
    api: impl Fn(Client) -> Api<K>,
    need: Need,
    shutdown: CancellationToken,
    mut sink: impl FnMut(Seen<K>),
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let resource = need.resource();
    let counts = cluster.metrics.watch(resource);
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let begin = |client| Box::pin(watcher(api(client), config.clone()));
    let Connection {
        client,
        mut generation,
        ..
    } = cluster.connection();
    let mut events = begin(client);
    let mut backoff = Backoff::default();
    let mut trial: Option<Instant> = None;
    let mut lists = 0_u64;
    // A list tells itself whether it works; only a quiet watch is taken at its silence.
    let mut listing = false;
    loop {
        let event = tokio::select! {
            () = shutdown.cancelled() => return,
            () = sleep_until(trial), if !listing => None,
            event = events.next() => event,
        };
        match event {
            // Said before the first request of a list is made, so no sign of life.
            Some(Ok(Event::Init)) => {
                listing = true;
                sink(Seen::Restart);
            }
            Some(Ok(event)) => {
                if matches!(event, Event::InitDone) {
                    listing = false;
                    lists += 1;
                    counts.relists.inc_by(u64::from(lists > 1));
                }
                backoff = Backoff::default();
                if trial.take().is_some() {
                    recovered(resource, &mut sink);
                }
                sink(event.into());
            }
            Some(Err(error)) => {
                counts.restarts.inc();
                sink(failure(&error, need, trial.is_none()));
                let renewed = async {
                    tokio::time::sleep(backoff.next(rand::random())).await;
                    cluster.instead(generation, trouble(&error)).await
                };
                let renewed = tokio::select! {
                    () = shutdown.cancelled() => return,
                    renewed = renewed => renewed,
                };
                if let Some(connection) = renewed {
                    generation = connection.generation;
                    events = begin(connection.client);
                    backoff = Backoff::default();
                }
                trial = Some(Instant::now() + TRIAL);
            }
            None if trial.take().is_some() => {
                backoff = Backoff::default();
                recovered(resource, &mut sink);
            }
            None => return,
        }
    }
}

impl<K> From<Event<K>> for Seen<K> {
    fn from(event: Event<K>) -> Self {
        match event {
            Event::Apply(object) => Self::Changed(object),
            Event::Delete(object) => Self::Removed(object),
            Event::Init => Self::Restart,
            Event::InitApply(object) => Self::Listed(object),
            Event::InitDone => Self::Synced,
        }
    }
}

fn recovered<K>(resource: &'static str, sink: &mut impl FnMut(Seen<K>)) {
    info!(resource, "watch works again");
    sink(Seen::Recovered);
}

/// Sorts a failure, and logs the first of a row as something to look at.
fn failure<K>(error: &watcher::Error, need: Need, first: bool) -> Seen<K> {
    let (verb, status) = refusal(error);
    let forbidden = status.is_some_and(Status::is_forbidden);
    let missed = match need {
        Need::Required(_) => true,
        Need::Optional(_) => !forbidden && status.is_none_or(|status| status.code != NOT_FOUND),
    };
    let resource = need.resource();
    let cause = match status {
        Some(status) => status.message.clone(),
        None => root_cause(error).to_string(),
    };
    if first && missed {
        warn!(resource, verb, forbidden, cause, "watch failed");
    } else {
        debug!(resource, verb, forbidden, cause, "watch fails");
    }
    if forbidden {
        Seen::Forbidden { verb }
    } else {
        Seen::Away { cause }
    }
}

/// Returns what a failure tells about the connection.
fn trouble(error: &watcher::Error) -> Trouble {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => Trouble::of(error),
        watcher::Error::WatchError(status) if status.code == 401 => Trouble::Refused,
        watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => Trouble::None,
    }
}

/// Returns what was being done, and what the API server said when it was the one to refuse.
fn refusal(error: &watcher::Error) -> (&'static str, Option<&Status>) {
    match error {
        watcher::Error::InitialListFailed(error) => ("list", said(error)),
        watcher::Error::WatchStartFailed(error) | watcher::Error::WatchFailed(error) => {
            ("watch", said(error))
        }
        watcher::Error::WatchError(status) => ("watch", Some(status)),
        watcher::Error::NoResourceVersion => ("list", None),
    }
}

fn said(error: &kube::Error) -> Option<&Status> {
    match error {
        kube::Error::Api(status) => Some(status),
        _ => None,
    }
}

/// Returns the innermost error, which says what really happened; the outer ones only where.
fn root_cause<'a>(error: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost
}

async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Doubling waits with jitter, up to [`LONGEST_WAIT`].
#[derive(Debug)]
struct Backoff {
    wait: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { wait: FIRST_WAIT }
    }
}

impl Backoff {
    /// Returns the next wait; `random` spreads managers that lost the same server.
    fn next(&mut self, random: u8) -> Duration {
        let wait = self.wait;
        self.wait = (wait * 2).min(LONGEST_WAIT);
        // Between three quarters and the whole of it.
        wait * 3 / 4 + wait / 4 * u32::from(random) / 255
    }
}

#[cfg(test)]
mod tests;
