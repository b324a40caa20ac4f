//! `WatchNamespaces`: the names a session may ask for, whole at each change.
//!
//! With tokens, and under R5, these are the session's own: it is not told which others there are.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{Stream, stream};
use kubebridge_proto::v1;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{Service, expired};
use crate::access::Gate;
use crate::kubernetes::namespaces::Observed;
use crate::sessions::{Grant, Lease, Session};

type Told = Result<v1::WatchNamespacesResponse, Status>;

struct Names {
    session: Lease,
    granted: watch::Receiver<Arc<Grant>>,
    /// Everything there is, for those who may ask for everything.
    all: Option<All>,
    sent: Option<v1::WatchNamespacesResponse>,
    failed: bool,
    shutdown: CancellationToken,
}

struct All {
    served: watch::Receiver<Arc<BTreeSet<String>>>,
    observed: watch::Receiver<Observed>,
}

/// Streams the namespaces.
pub(super) fn stream(
    service: &Service,
    session: Arc<Session>,
) -> impl Stream<Item = Told> + Send + use<> {
    let all = match service.gate {
        Gate::Demo => Some(All {
            served: service.index.names(),
            observed: service.observed.clone(),
        }),
        Gate::Tokens { .. } | Gate::NoKeys | Gate::Own(_) => None,
    };
    let names = Names {
        granted: session.grant(),
        session: session.lease(),
        all,
        sent: None,
        failed: false,
        shutdown: service.shutdown.clone(),
    };
    stream::unfold(names, |mut names| async move {
        if names.failed {
            return None;
        }
        let next = names.next().await?;
        names.failed = next.is_err();
        Some((next, names))
    })
}

impl Names {
    async fn next(&mut self) -> Option<Told> {
        loop {
            let current = self.current();
            if self.sent.as_ref() != Some(&current) {
                self.sent = Some(current.clone());
                return Some(Ok(current));
            }
            tokio::select! {
                () = self.shutdown.cancelled() => return None,
                () = self.session.expired() => return Some(Err(expired())),
                changed = self.granted.changed() => changed.ok()?,
                changed = changed(self.all.as_mut()) => changed.ok()?,
            }
        }
    }

    fn current(&mut self) -> v1::WatchNamespacesResponse {
        let granted = self.granted.borrow_and_update().namespaces.clone();
        match &mut self.all {
            Some(all) => all.current(),
            None => v1::WatchNamespacesResponse {
                namespaces: BTreeSet::from_iter(granted).into_iter().collect(),
                observed: false,
            },
        }
    }
}

impl All {
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

async fn changed(all: Option<&mut All>) -> Result<(), watch::error::RecvError> {
    match all {
        Some(all) => tokio::select! {
            changed = all.served.changed() => changed,
            changed = all.observed.changed() => changed,
        },
        None => std::future::pending().await,
    }
}
