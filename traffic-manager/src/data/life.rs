//! How long a flow may live (R3): ten minutes past the right it was opened by.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;

use crate::sessions::{Grant, Lease};

/// How long open flows outlive their session's tokens: with tokens of an hour a right that was
/// withdrawn ends within 70 minutes.
pub(super) const GRACE: Duration = Duration::from_secs(600);

/// Why a flow had to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// The session's tokens expired.
    Expired,
    /// The session was renewed without the flow's namespace.
    Withdrawn,
}

impl Over {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// Waits until a flow has to end.
pub(super) async fn over(lease: &mut Lease, namespace: Option<&str>) -> Over {
    let grant = lease.grant();
    tokio::select! {
        () = expired(lease) => Over::Expired,
        () = withdrawn(grant, namespace) => Over::Withdrawn,
    }
}

async fn expired(lease: &mut Lease) {
    // A session whose tokens have expired is not renewed any more.
    lease.expired().await;
    sleep(GRACE).await;
}

async fn withdrawn(mut grant: watch::Receiver<Arc<Grant>>, namespace: Option<&str>) {
    let Some(namespace) = namespace else {
        return std::future::pending().await;
    };
    let has = |grant: &Arc<Grant>| grant.namespaces.iter().any(|name| name == namespace);
    loop {
        if grant.wait_for(|grant| !has(grant)).await.is_err() {
            // The session holds the sender, and the flow the session.
            return std::future::pending().await;
        }
        tokio::select! {
            () = sleep(GRACE) => return,
            _ = grant.wait_for(has) => {}
        }
    }
}
