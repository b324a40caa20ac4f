//! What one client has of one namespace, and which frame it needs next. No IO but the index.

use std::sync::Arc;

use kubebridge_proto::routes::{NamespaceState, RouteUpdate, ServiceRoute};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{COALESCE, SNAPSHOT_ROUTES};
use crate::kubernetes::index::{Changes, Head, Index};

pub(super) struct Subscription {
    namespace: String,
    head: watch::Receiver<Head>,
    /// The revision the client holds; 0 for none.
    revision: u64,
    /// The state the client was told.
    state: Option<NamespaceState>,
    /// The rest of a snapshot that has begun: it is always finished, as the client waits for it.
    snapshot: Option<Snapshot>,
    /// No delta before this.
    not_before: Option<Instant>,
}

/// Pages are taken from the table as it is when the client has room for them, so that a slow one
/// keeps no copy of it; the delta from `revision` that follows repeats what changed meanwhile.
struct Snapshot {
    revision: u64,
    /// The last name sent.
    after: Option<String>,
}

impl Subscription {
    pub(super) fn new(namespace: String, head: watch::Receiver<Head>, revision: u64) -> Self {
        Self {
            namespace,
            head,
            revision,
            state: None,
            snapshot: None,
            not_before: None,
        }
    }

    /// Returns the next frame for the client, if it needs one now.
    pub(super) fn next(&mut self, index: &Index, now: Instant) -> Option<RouteUpdate> {
        if let Some(page) = self.page(index) {
            return Some(page);
        }
        let Head {
            state,
            revision: newest,
        } = self.head.borrow_and_update().clone();
        if self.state.as_ref() != Some(&state) {
            self.state = Some(state.clone());
            let namespace = self.namespace.clone();
            return Some(RouteUpdate::State { namespace, state });
        }
        if state != NamespaceState::Synced || self.not_before.is_some_and(|at| now < at) {
            return None;
        }
        self.not_before = None;
        match index.since(&self.namespace, self.revision, SNAPSHOT_ROUTES) {
            Changes::Nothing => None,
            Changes::Delta {
                revision,
                upserts,
                deletes,
            } => {
                // What did not fit follows at once.
                self.not_before = (revision >= newest).then(|| now + COALESCE);
                Some(self.delta(revision, &upserts, deletes))
            }
            Changes::Snapshot { revision } => {
                self.not_before = Some(now + COALESCE);
                self.snapshot = Some(Snapshot {
                    revision,
                    after: None,
                });
                self.page(index)
            }
        }
    }

    /// Waits until [`Self::next`] may have something: may return early, never late.
    pub(super) async fn changed(&mut self) {
        if self.snapshot.is_some() {
            return;
        }
        if let Some(at) = self.not_before {
            tokio::time::sleep_until(at).await;
            return;
        }
        if self.head.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    fn page(&mut self, index: &Index) -> Option<RouteUpdate> {
        let snapshot = self.snapshot.as_mut()?;
        let revision = snapshot.revision;
        let after = snapshot.after.as_deref();
        let (routes, last) = index.page(&self.namespace, after, SNAPSHOT_ROUTES);
        snapshot.after = routes.last().map(|route| route.name.clone());
        if last {
            self.snapshot = None;
            self.revision = revision;
        }
        Some(RouteUpdate::Page {
            namespace: self.namespace.clone(),
            revision,
            routes: routes.into_iter().map(Arc::unwrap_or_clone).collect(),
            last,
        })
    }

    fn delta(
        &mut self,
        revision: u64,
        upserts: &[Arc<ServiceRoute>],
        deletes: Vec<String>,
    ) -> RouteUpdate {
        let base_revision = std::mem::replace(&mut self.revision, revision);
        let upserts = upserts.iter().map(|route| (**route).clone()).collect();
        let namespace = self.namespace.clone();
        RouteUpdate::Delta {
            namespace,
            base_revision,
            revision,
            upserts,
            deletes,
        }
    }
}
