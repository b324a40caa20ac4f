//! `WatchNamespaces`: the names a session may ask for, whole at each change.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{Stream, stream};
use kubebridge_proto::v1;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::Service;
use crate::kubernetes::namespaces::Observed;
use crate::sessions::{Lease, Session};

struct Names {
    // Never read: keeps the session from expiring.
    _session: Lease,
    served: watch::Receiver<Arc<BTreeSet<String>>>,
    observed: watch::Receiver<Observed>,
    sent: Option<v1::WatchNamespacesResponse>,
    shutdown: CancellationToken,
}

/// Streams the namespaces. Only sessions that need no token exist so far, and they may ask for any.
pub(super) fn stream(
    service: &Service,
    session: Arc<Session>,
) -> impl Stream<Item = Result<v1::WatchNamespacesResponse, Status>> + Send + use<> {
    let names = Names {
        _session: session.lease(),
        served: service.index.names(),
        observed: service.observed.clone(),
        sent: None,
        shutdown: service.shutdown.clone(),
    };
    stream::unfold(names, |mut names| async move {
        let next = names.next().await?;
        Some((Ok(next), names))
    })
}

impl Names {
    async fn next(&mut self) -> Option<v1::WatchNamespacesResponse> {
        loop {
            let current = self.current();
            if self.sent.as_ref() != Some(&current) {
                self.sent = Some(current.clone());
                return Some(current);
            }
            tokio::select! {
                () = self.shutdown.cancelled() => return None,
                changed = self.served.changed() => changed.ok()?,
                changed = self.observed.changed() => changed.ok()?,
            }
        }
    }

    fn current(&mut self) -> v1::WatchNamespacesResponse {
        let observed = self.observed.borrow_and_update().clone();
        let is_observed = observed.is_some();
        let names = observed.unwrap_or_else(|| Arc::clone(&self.served.borrow_and_update()));
        // Mark both as seen, whichever is told.
        self.served.mark_unchanged();
        let namespaces = names.iter().cloned().collect();
        v1::WatchNamespacesResponse {
            namespaces,
            observed: is_observed,
        }
    }
}
