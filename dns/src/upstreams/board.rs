//! What the members of a set tell others: their statuses, that one is back, that one wants a probe.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};

use super::{Member, UpstreamStatus};

/// Shared by the members of a set and those who follow it.
#[derive(Debug)]
pub(super) struct Board {
    statuses: watch::Sender<Arc<[UpstreamStatus]>>,
    attention: Notify,
    /// How often an upstream came back.
    recoveries: AtomicU64,
    probers: AtomicUsize,
}

impl Board {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            statuses: watch::Sender::new(Arc::from([])),
            attention: Notify::new(),
            recoveries: AtomicU64::new(0),
            probers: AtomicUsize::new(0),
        })
    }

    pub(super) fn watch(&self) -> watch::Receiver<Arc<[UpstreamStatus]>> {
        self.statuses.subscribe()
    }

    /// Publishes the members of another set.
    pub(super) fn publish_all(&self, members: &[Arc<Member>]) {
        self.statuses.send_modify(|statuses| {
            *statuses = members.iter().map(|member| member.status()).collect();
        });
        self.call_prober();
    }

    /// Publishes what changed with one member, unless it was replaced meanwhile.
    pub(super) fn publish(&self, member: &Member) {
        self.statuses.send_if_modified(|statuses| {
            let mut next = statuses.to_vec();
            let place = next.iter_mut().find(|status| status.id == member.id());
            // Read here, where nobody else publishes: the newest is always the last.
            let Some(place) = place else { return false };
            *place = member.status();
            *statuses = next.into();
            true
        });
    }

    pub(super) fn recovered(&self) {
        self.recoveries.fetch_add(1, Ordering::Release);
    }

    pub(super) fn recoveries(&self) -> u64 {
        self.recoveries.load(Ordering::Acquire)
    }

    pub(super) fn call_prober(&self) {
        self.attention.notify_one();
    }

    pub(super) async fn called(&self) {
        self.attention.notified().await;
    }

    pub(super) fn is_watched(&self) -> bool {
        self.probers.load(Ordering::Relaxed) > 0
    }

    /// Counts as watching until the guard is dropped.
    pub(super) fn watching(&self) -> Watching<'_> {
        self.probers.fetch_add(1, Ordering::Relaxed);
        Watching(self)
    }
}

/// Somebody probes the members of the set.
#[derive(Debug)]
pub(super) struct Watching<'a>(&'a Board);

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        self.0.probers.fetch_sub(1, Ordering::Relaxed);
    }
}
