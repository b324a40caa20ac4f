//! `WatchUpstreams`: the health of the upstreams, whole at once and again at each change.

use std::sync::Arc;

use futures::{Stream, stream};
use kubebridge_dns::upstreams::{UpstreamStatus, Upstreams};
use kubebridge_proto::v1;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::Service;
use crate::sessions::{Lease, Session};
use crate::upstreams::statuses;

struct Following {
    // Never read: keeps the session from expiring.
    _session: Lease,
    set: Arc<Upstreams>,
    changes: watch::Receiver<Arc<[UpstreamStatus]>>,
    shutdown: CancellationToken,
}

/// Streams the statuses. Any session may see them: they hold addresses of servers and no name that
/// anybody asked for.
pub(super) fn stream(
    service: &Service,
    session: Arc<Session>,
) -> impl Stream<Item = Result<v1::WatchUpstreamsResponse, Status>> + Send + use<> {
    let set = Arc::clone(service.resolver.upstreams());
    let mut changes = set.watch();
    // The list as it is now is the first change.
    changes.mark_changed();
    let following = Following {
        _session: session.lease(),
        set,
        changes,
        shutdown: service.shutdown.clone(),
    };
    stream::unfold(following, |mut following| async move {
        let next = following.next().await?;
        Some((Ok(next), following))
    })
}

impl Following {
    async fn next(&mut self) -> Option<v1::WatchUpstreamsResponse> {
        tokio::select! {
            () = self.shutdown.cancelled() => return None,
            changed = self.changes.changed() => changed.ok()?,
        }
        let upstreams = statuses(&self.set, Instant::now());
        let upstreams = upstreams.into_iter().map(Into::into).collect();
        Some(v1::WatchUpstreamsResponse { upstreams })
    }
}
