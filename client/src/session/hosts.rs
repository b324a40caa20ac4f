//! Keeps the hosts lines of a session as the routes say: the first change at once, later ones at
//! most five per second.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kubebridge_platform::host::HostsConflict;
use kubebridge_platform::intent::HostsLine;
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tokio::time::{Instant, sleep_until, timeout};

use crate::apply::{Before, Conflict, HostsPlan, HostsPolicy, hosts_plan};
use crate::before::Lookback;
use crate::routes::RouteTable;
use crate::status::ConflictReport;

/// The least time between two writes.
const PACE: Duration = Duration::from_millis(200);
/// The wait after a write that failed: whatever filled the disk is not gone in an instant.
const AFTER_FAILURE: Duration = Duration::from_secs(5);
/// How long the first write waits for what names resolved to before. Names still unknown then
/// come with a later one.
const FIRST_WAIT: Duration = Duration::from_millis(1500);

/// Follows the routes for the hosts file.
#[derive(Debug)]
pub(super) struct HostsKeeper {
    policy: HostsPolicy,
    routes: watch::Receiver<RouteTable>,
    known: watch::Receiver<Arc<Before>>,
    _lookback: Lookback,
    is_dirty: bool,
    not_before: Instant,
    planned: Vec<Conflict>,
    found: Vec<HostsConflict>,
}

impl HostsKeeper {
    pub(super) fn new(
        policy: HostsPolicy,
        routes: watch::Receiver<RouteTable>,
        lookback: Lookback,
    ) -> Self {
        Self {
            policy,
            routes,
            known: lookback.known(),
            _lookback: lookback,
            is_dirty: true,
            not_before: Instant::now(),
            planned: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Waits until what is known suffices for a first write, or long enough.
    pub(super) async fn first_look(&mut self) {
        let (policy, routes) = (&self.policy, &self.routes);
        let enough = self.known.wait_for(|known| {
            hosts_plan(&routes.borrow(), policy, known)
                .unknown
                .is_empty()
        });
        if timeout(FIRST_WAIT, enough).await.is_err() {
            tracing::info!("hosts lines wait for what names resolved to before");
        }
    }

    /// Waits until a write is due, or until what tells of changes has ended, which it should not.
    /// May be dropped and called again.
    pub(super) async fn due(&mut self) -> Result<(), RecvError> {
        if !self.is_dirty {
            tokio::select! {
                changed = self.routes.changed() => changed?,
                changed = self.known.changed() => changed?,
            }
            self.is_dirty = true;
        }
        sleep_until(self.not_before).await;
        Ok(())
    }

    /// Computes the lines wanted now.
    pub(super) fn plan(&mut self) -> Vec<HostsLine> {
        let plan: HostsPlan = hosts_plan(
            &self.routes.borrow_and_update(),
            &self.policy,
            &self.known.borrow_and_update(),
        );
        self.planned = plan.conflicts;
        self.is_dirty = false;
        plan.lines
    }

    /// Takes down that lines were written, or that they could not be.
    pub(super) fn note_write<E>(&mut self, outcome: &Result<(), E>) {
        let pause = match outcome {
            Ok(()) => PACE,
            Err(_) => {
                self.is_dirty = true;
                AFTER_FAILURE
            }
        };
        self.not_before = Instant::now() + pause;
    }

    /// Takes down what the host left alone.
    pub(super) fn note_conflicts(&mut self, found: Vec<HostsConflict>) {
        self.found = found;
    }

    /// Lists every name left alone, with the reason.
    pub(super) fn conflicts(&self) -> Vec<ConflictReport> {
        let planned = self.planned.iter().map(|one| (&one.name, &one.reason));
        let found = self.found.iter().map(|one| (&one.name, &one.reason));
        let all: BTreeSet<_> = planned
            .chain(found)
            .map(|(name, reason)| ConflictReport {
                name: name.clone(),
                reason: reason.clone(),
            })
            .collect();
        all.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;
