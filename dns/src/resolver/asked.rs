//! The tasks in which names are resolved: for those who wait, and before an answer's time is over.
//!
//! They are ours, so a client that goes away strands nobody; the resolver ends them when it goes.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, trace_span};

use super::{Engine, Resolver};
use crate::cache::{Entry, Key};
use crate::explain::{Event, Recording, note};
use crate::message::{Origin, Query};
use crate::view::View;

/// One question with all that resolving it in the background takes.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) engine: Arc<Engine>,
    pub(super) key: Key,
    pub(super) query: Query,
    pub(super) view: Arc<View>,
    /// Where it began, if another process of ours sent it.
    pub(super) origin: Option<Origin>,
    pub(super) recording: Recording,
    pub(super) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

impl Resolver {
    /// Resolves in a task of our own; `None` when there are too many already, or we are stopping.
    pub(super) async fn resolve(&self, asked: Asked) -> Option<Arc<Entry>> {
        let Ok(permit) = Arc::clone(&self.waiting).try_acquire_owned() else {
            self.engine.counts.shed();
            note(&asked.recording, || Event::Shed);
            return None;
        };
        let resolving = async move {
            let _permit = permit;
            tokio::select! {
                entry = asked.make() => Some(entry),
                () = asked.stop.cancelled() => None,
            }
        };
        self.tasks
            .spawn(resolving.instrument(trace_span!("resolve")))
            .await
            .ok()?
    }

    /// Makes an answer anew in the background, if its time is nearly over and it is wanted.
    pub(super) fn renew_if_due(
        &self,
        entry: &Arc<Entry>,
        now: Instant,
        question: impl FnOnce() -> (Key, Query, Arc<View>),
    ) {
        if !self.engine.prefetch || !entry.is_due(now) {
            return;
        }
        let Ok(permit) = Arc::clone(&self.renewals).try_acquire_owned() else {
            return entry.put_off();
        };
        self.engine.counts.renewed();
        let (key, query, view) = question();
        let (asked, entry) = (
            self.asked(key, &query, &view, None, &None),
            Arc::clone(entry),
        );
        let renewing = async move {
            let _permit = permit;
            let cache = &asked.engine.cache;
            tokio::select! {
                () = cache.renew(&asked.key, &entry, || asked.renew(&entry)) => {}
                () = asked.stop.cancelled() => {}
            }
        };
        self.tasks.spawn(renewing.instrument(trace_span!("renew")));
    }

    pub(super) fn asked(
        &self,
        key: Key,
        query: &Query,
        view: &Arc<View>,
        origin: Option<Origin>,
        recording: &Recording,
    ) -> Asked {
        Asked {
            engine: Arc::clone(&self.engine),
            key,
            query: query.clone(),
            view: Arc::clone(view),
            origin,
            recording: recording.clone(),
            tasks: self.tasks.clone(),
            stop: self.stop.clone(),
        }
    }
}

impl Asked {
    /// Makes the answer anew; nothing when the present one is as good as what came.
    pub(super) async fn renew(&self, present: &Entry) -> Option<Entry> {
        let entry = self.resolve().await;
        let worse = entry.is_servfail() && present.is_fresh(Instant::now());
        (!worse).then_some(entry)
    }

    /// Asks whoever can know.
    pub(super) async fn resolve(&self) -> Entry {
        self.engine.lead(self).await
    }
}
