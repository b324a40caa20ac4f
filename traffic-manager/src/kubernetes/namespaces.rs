//! The names of the namespaces of a cluster, where the manager may list them.
//!
//! Without that right the names known from elsewhere are used; that is no error.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::{Api, ResourceExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::follow::{Need, Seen, follow};

/// Namespaces as observed in the cluster; `None` until they are, or when that is not allowed.
pub type Observed = Option<Arc<BTreeSet<String>>>;

/// Follows the namespaces until shutdown.
pub async fn namespaces(
    cluster: Cluster,
    observed: watch::Sender<Observed>,
    shutdown: CancellationToken,
) {
    let mut names = BTreeSet::new();
    let mut complete = false;
    let api: fn(_) -> Api<PartialObjectMeta<Namespace>> = Api::all;
    follow(
        cluster,
        api,
        Need::Optional("namespaces"),
        shutdown,
        |seen| {
            match seen {
                Seen::Restart => {
                    names.clear();
                    complete = false;
                }
                Seen::Listed(object) | Seen::Changed(object) => {
                    names.insert(object.name_any());
                }
                Seen::Synced => complete = true,
                Seen::Removed(object) => {
                    names.remove(&object.name_any());
                }
                Seen::Forbidden { .. } => {
                    observed.send_replace(None);
                    return;
                }
                // What was known stays.
                Seen::Away { .. } | Seen::Recovered => return,
            }
            if complete {
                observed.send_replace(Some(Arc::new(names.clone())));
            }
        },
    )
    .await;
}
