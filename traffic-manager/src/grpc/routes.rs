//! `WatchNamespaceRoutes`: several namespaces in one stream, each a state, a snapshot, then changes.
//!
//! Nothing is queued: a frame is made when the client has room for it, from the index as it is
//! then. A slow client therefore skips revisions, and is told what changed since the last one it
//! got, or the whole table; between frames one revision per namespace is kept for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kubebridge_proto::routes::{PAGE_ROUTES, RouteUpdate};
use kubebridge_proto::session::wanted_namespaces;
use kubebridge_proto::v1;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Status, Streaming};
use tracing::debug;

use self::subscription::Subscription;
use super::{Service, expired, invalid};
use crate::metrics::RouteCounts;
use crate::sessions::{Grant, Lease, MAX_NAMESPACES};

mod subscription;

/// The least time between two deltas of a namespace to one client: under 1,000 changes a second a
/// client gets 50 frames, and the first change after a quiet spell still goes out at once.
const COALESCE: Duration = Duration::from_millis(20);

/// The most routes in a page of a snapshot or a delta. The contract allows ten times as many, but
/// a frame is encoded into a buffer that stays with the stream, and 50 routes of usual length are
/// 3 KB of the 8 KB that a subscriber may cost.
const SNAPSHOT_ROUTES: usize = 50;

const _: () = assert!(SNAPSHOT_ROUTES <= PAGE_ROUTES);

type Frame = Result<v1::WatchNamespaceRoutesResponse, Status>;

/// Counts a stream while it is open.
struct Open {
    counts: RouteCounts,
}

struct Routes {
    service: Service,
    open: Open,
    requests: Option<Streaming<v1::WatchNamespaceRoutesRequest>>,
    session: Option<(Lease, watch::Receiver<Arc<Grant>>)>,
    wanted: BTreeMap<String, Subscription>,
    /// Where to look first for the next frame, so that a busy namespace starves no other.
    turn: Option<String>,
    failed: bool,
}

pub(super) fn stream(
    service: Service,
    requests: Streaming<v1::WatchNamespaceRoutesRequest>,
) -> impl Stream<Item = Frame> + Send {
    let counts = service.metrics.routes();
    counts.streams.inc();
    let routes = Routes {
        service,
        open: Open { counts },
        requests: Some(requests),
        session: None,
        wanted: BTreeMap::new(),
        turn: None,
        failed: false,
    };
    stream::unfold(routes, |mut routes| async move {
        if routes.failed {
            return None;
        }
        let frame = routes.next().await?;
        routes.failed = frame.is_err();
        Some((frame, routes))
    })
}

impl Drop for Open {
    fn drop(&mut self) {
        self.counts.streams.dec();
    }
}

impl Routes {
    async fn next(&mut self) -> Option<Frame> {
        loop {
            let now = Instant::now();
            if self.is_expired(now) {
                return Some(Err(expired()));
            }
            if let Some(update) = self.ready(now) {
                self.open.counts.sent(&update);
                return Some(Ok(update.into()));
            }
            tokio::select! {
                () = self.service.shutdown.cancelled() => return None,
                request = next_request(&mut self.requests) => match request {
                    Some(Ok(request)) => {
                        if let Err(status) = self.want(request) {
                            return Some(Err(status));
                        }
                    }
                    Some(Err(status)) => {
                        debug!(%status, "routes broken off");
                        return Some(Err(status));
                    }
                    // The client has nothing more to ask, and goes on listening.
                    None if self.session.is_some() => self.requests = None,
                    None => return None,
                },
                event = of_session(&mut self.session) => match event {
                    Event::Granted => self.drop_ungranted(),
                    Event::Expired => return Some(Err(expired())),
                },
                () = changed(&mut self.wanted) => {}
            }
        }
    }

    fn is_expired(&self, now: Instant) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|(lease, _)| lease.is_expired(now))
    }

    /// Returns the next frame that can be sent now, taking the namespaces in turn.
    fn ready(&mut self, now: Instant) -> Option<RouteUpdate> {
        let start = self.turn.take();
        let after = |name: &&String| start.as_ref().is_some_and(|start| *name > start);
        let mut order: Vec<String> = self.wanted.keys().filter(after).cloned().collect();
        order.extend(self.wanted.keys().filter(|name| !after(name)).cloned());
        for name in order {
            let Some(subscription) = self.wanted.get_mut(&name) else {
                continue;
            };
            if let Some(update) = subscription.next(&self.service.index, now) {
                self.turn = Some(name);
                return Some(update);
            }
        }
        None
    }

    /// Makes the request's namespaces the wanted ones.
    fn want(&mut self, request: v1::WatchNamespaceRoutesRequest) -> Result<(), Status> {
        if self.session.is_none() {
            let session = self.service.session(&request.session_id)?;
            let grant = session.grant();
            self.session = Some((session.lease(), grant));
        }
        let names = request
            .namespaces
            .iter()
            .map(|wanted| wanted.namespace.clone())
            .collect();
        let names = wanted_namespaces(names).map_err(|error| invalid(&error))?;
        if names.len() > MAX_NAMESPACES {
            let message = format!("namespaces has {}, at most {MAX_NAMESPACES}", names.len());
            return Err(Status::invalid_argument(message));
        }
        let granted = self.granted();
        if let Some(other) = names.iter().find(|name| !granted.contains(*name)) {
            let message = format!("namespace {other:?} is not granted to the session");
            if let Some((session, _)) = &self.session {
                let call = "WatchNamespaceRoutes";
                let audit = &self.service.audit;
                audit.call_denied(session.id(), call, Some(other), None);
            }
            return Err(Status::permission_denied(message));
        }
        let keep: BTreeSet<String> = names.into_iter().collect();
        self.wanted.retain(|name, _| keep.contains(name));
        for wanted in request.namespaces {
            if wanted.restart || !self.wanted.contains_key(&wanted.namespace) {
                let now = Instant::now();
                let head = self.service.index.subscribe(&wanted.namespace, now);
                let name = wanted.namespace;
                let subscription = Subscription::new(name.clone(), head, wanted.revision);
                self.wanted.insert(name, subscription);
            }
        }
        Ok(())
    }

    fn drop_ungranted(&mut self) {
        let granted = self.granted();
        self.wanted.retain(|name, _| granted.contains(name));
    }

    fn granted(&self) -> BTreeSet<String> {
        let grant = self
            .session
            .as_ref()
            .map(|(_, grant)| Arc::clone(&grant.borrow()));
        grant
            .into_iter()
            .flat_map(|grant| grant.namespaces.clone())
            .collect()
    }
}

async fn next_request(
    requests: &mut Option<Streaming<v1::WatchNamespaceRoutesRequest>>,
) -> Option<Result<v1::WatchNamespaceRoutesRequest, Status>> {
    match requests {
        Some(requests) => requests.next().await,
        None => std::future::pending().await,
    }
}

/// What becomes of a stream's session.
enum Event {
    /// It may see other namespaces.
    Granted,
    /// Its tokens have expired.
    Expired,
}

async fn of_session(session: &mut Option<(Lease, watch::Receiver<Arc<Grant>>)>) -> Event {
    let Some((lease, grant)) = session else {
        return std::future::pending().await;
    };
    tokio::select! {
        () = lease.expired() => Event::Expired,
        // The session, which the lease keeps, holds the sender.
        _ = grant.changed() => Event::Granted,
    }
}

/// Waits until one of the namespaces has something to tell.
async fn changed(wanted: &mut BTreeMap<String, Subscription>) {
    if wanted.is_empty() {
        return std::future::pending().await;
    }
    let all = wanted
        .values_mut()
        .map(|subscription| Box::pin(subscription.changed()));
    futures::future::select_all(all).await;
}

#[cfg(test)]
mod tests;
