//! `WatchUpstreams`: the health of the upstreams, whole at once and again at each change.

use std::sync::Arc;

use futures::{Stream, stream};
use kubebridge_dns::upstreams::{UpstreamStatus, Upstreams};
use kubebridge_proto::v1;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{Service, expired};
use crate::sessions::{Lease, Session};
use crate::upstreams::statuses;

struct Following {
    session: Lease,
    set: Arc<Upstreams>,
    changes: watch::Receiver<Arc<[UpstreamStatus]>>,
    failed: bool,
    shutdown: CancellationToken,
}

type Told = Result<v1::WatchUpstreamsResponse, Status>;

/// Streams the statuses. Any session may see them: they hold addresses of servers and no name that
/// anybody asked for.
pub(super) fn stream(
    service: &Service,
    session: Arc<Session>,
) -> impl Stream<Item = Told> + Send + use<> {
    let set = Arc::clone(service.resolver.upstreams());
    let mut changes = set.watch();
    // The list as it is now is the first change.
    changes.mark_changed();
    let following = Following {
        session: session.lease(),
        failed: false,
        set,
        changes,
        shutdown: service.shutdown.clone(),
    };
    stream::unfold(following, |mut following| async move {
        if following.failed {
            return None;
        }
        let next = following.next().await?;
        following.failed = next.is_err();
        Some((next, following))
    })
}

impl Following {
    async fn next(&mut self) -> Option<Told> {
        tokio::select! {
            () = self.shutdown.cancelled() => return None,
            () = self.session.expired() => return Some(Err(expired())),
            changed = self.changes.changed() => changed.ok()?,
        }
        let upstreams = statuses(&self.set, Instant::now());
        let upstreams = upstreams.into_iter().map(Into::into).collect();
        Some(Ok(v1::WatchUpstreamsResponse { upstreams }))
    }
}
