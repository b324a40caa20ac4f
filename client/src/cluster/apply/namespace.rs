//! What is in a namespace that nobody but people can have put there.
//!
//! Removing a namespace removes all that is in it: whoever removes one has to know.

use futures::{StreamExt, stream};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use kube::{Api, ResourceExt};

use super::super::problem::Problem;
use super::{AT_ONCE, Cluster, PATIENCE};

/// How many objects of a kind are looked at: one that is not the cluster's own is enough.
const LOOKED_AT: u32 = 500;

/// Names of objects that clusters, meshes and distributions put into every namespace.
const EVERYWHERE: [&str; 5] = [
    "ConfigMap/kube-root-ca.crt",
    "ConfigMap/istio-ca-root-cert",
    "ConfigMap/openshift-service-ca.crt",
    "ServiceAccount/default",
    "Endpoints/traffic-manager",
];

/// Kinds that tell of other objects and are none of their own.
const REPORTS: [&str; 3] = ["Event", "PodMetrics", "Lease"];

impl Cluster {
    /// Names the objects of a namespace that are neither the cluster's own nor made for another
    /// object: `KIND/NAME`, sorted.
    ///
    /// # Errors
    ///
    /// The user may not list everything there, or the API server cannot be asked.
    pub async fn inhabitants(&self, namespace: &str) -> Result<Vec<String>, Problem> {
        let kinds = self.namespaced_kinds().await?;
        let listing = kinds.iter().map(|kind| self.names(namespace, kind));
        let listed: Vec<_> = stream::iter(listing.collect::<Vec<_>>())
            .buffered(AT_ONCE)
            .collect()
            .await;
        let mut names = Vec::new();
        for found in listed {
            names.extend(found?);
        }
        names.retain(|name| !EVERYWHERE.contains(&name.as_str()));
        names.sort();
        // One object may be served by several API groups.
        names.dedup();
        Ok(names)
    }

    async fn namespaced_kinds(&self) -> Result<Vec<ApiResource>, Problem> {
        let found = self
            .ask(
                "list of what the cluster knows",
                PATIENCE,
                |client| async move { Discovery::new(client).run().await },
            )
            .await?;
        let all = found
            .groups()
            .flat_map(|group| group.recommended_resources());
        Ok(all
            .filter(|(resource, can)| {
                can.scope == Scope::Namespaced
                    && can.supports_operation(verbs::LIST)
                    && can.supports_operation(verbs::DELETE)
                    && !REPORTS.contains(&resource.kind.as_str())
            })
            .map(|(resource, _)| resource)
            .collect())
    }

    async fn names(&self, namespace: &str, kind: &ApiResource) -> Result<Vec<String>, Problem> {
        let parameters = &ListParams::default().limit(LOOKED_AT);
        let doing = format!("list {} in namespace {namespace}", kind.plural);
        let listed = self.ask(&doing, PATIENCE, |client| async move {
            let objects: Api<DynamicObject> = Api::namespaced_with(client, namespace, kind);
            objects.list(parameters).await
        });
        let objects = listed.await?.items.into_iter();
        Ok(objects
            .filter(|object| object.owner_references().is_empty() && !is_token(object))
            .map(|object| format!("{}/{}", kind.kind, object.name_any()))
            .collect())
    }
}

/// Whether it is a token that old clusters (before 1.24) make for every ServiceAccount.
fn is_token(object: &DynamicObject) -> bool {
    object.data["type"] == "kubernetes.io/service-account-token"
}
