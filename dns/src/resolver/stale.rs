//! When an answer whose time is over is given again (K8; RFC 8767): no upstream has replied, or none
//! has for a while and the client will not wait much longer.
//!
//! What was purged meanwhile is never given again, nor is anything for a query that was shed or
//! looped: no upstream was asked, so none failed. What a stale answer looks like is the cache's.

use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::{Instrument, debug_span};

use super::asked::Asked;
use crate::cache::{Entry, Ground};
use crate::explain::{Event, note};

/// How long a client waits before it is given a stale answer; the upstreams go on being asked
/// (the client response timer of RFC 8767 §5).
const PATIENCE: Duration = Duration::from_millis(1800);

/// How answers are given whose time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StaleSettings {
    /// How long after its time an answer may be given.
    pub longest: Duration,
}

impl Asked {
    /// Resolves the question for everyone who waits for it, or gives them the stale answer.
    pub(super) async fn lead(&self, ground: Ground) -> Entry {
        let Some(expired) = self.usable(&ground) else {
            return self.resolve().await;
        };
        let asked = self.clone();
        let mut resolving = Box::pin(async move { asked.resolve().await });
        let resolved = timeout(PATIENCE, &mut resolving).await;
        if !self.engine.cache.stands(ground.mark, expired) {
            return match resolved {
                Ok(entry) => entry,
                Err(_elapsed) => resolving.await,
            };
        }
        match resolved {
            Ok(entry) if !entry.is_failure() => return entry,
            Ok(_) => {}
            Err(_elapsed) => self.finish_later(resolving, &ground),
        }
        self.engine.counts.gave_stale();
        let now = Instant::now();
        let stale = expired.revived(now);
        note(&self.recording, || Event::Cache(stale.state(now)));
        stale
    }

    fn usable<'a>(&self, ground: &'a Ground) -> Option<&'a Entry> {
        let StaleSettings { longest } = self.engine.stale?;
        let expired = ground.expired.as_deref()?;
        expired
            .is_usable_stale(longest, Instant::now())
            .then_some(expired)
    }

    /// Lets a resolution end in the background, so that the next to ask gets what it found.
    fn finish_later(
        &self,
        resolving: impl Future<Output = Entry> + Send + 'static,
        ground: &Ground,
    ) {
        let (asked, mark) = (self.clone(), ground.mark);
        let finishing = async move {
            tokio::select! {
                entry = resolving => {
                    if !entry.is_servfail() {
                        asked.engine.cache.supersede(&asked.key, entry, mark);
                    }
                }
                () = asked.stop.cancelled() => {}
            }
        };
        self.tasks
            .spawn(finishing.instrument(debug_span!("late_answer")));
    }
}
