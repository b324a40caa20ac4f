//! Services of the API server → the index. One task per namespace, or one for all.
//!
//! Objects are reduced to routes as they arrive, nothing else of them is kept.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Service;
use kube::{Api, ResourceExt};
use kubebridge_proto::routes::{NamespaceState, ServiceRoute};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::cluster::Cluster;
use super::follow::{Need, Seen, follow};
use super::index::Scope;
use super::service::route;
use crate::feed::Feed;

/// The resource whose rights are needed.
const RESOURCE: &str = "services";

/// How one watch does, for readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The first list is not complete.
    Starting,
    /// All is known, and changes are seen.
    Synced,
    /// The API server does not allow it.
    Forbidden {
        /// What it does not allow.
        verb: &'static str,
    },
    /// The API server is out of reach; what was known stays.
    Away {
        /// What happened, as the system says it.
        cause: String,
    },
}

/// Feeds the Services of a scope until shutdown.
pub async fn services(
    cluster: Cluster,
    scope: Scope,
    feed: Arc<Feed>,
    health: watch::Sender<Health>,
    shutdown: CancellationToken,
) {
    let namespaces = scope.clone();
    let api = move |client| -> Api<Service> {
        match &namespaces {
            Scope::Namespace(namespace) => Api::namespaced(client, namespace),
            Scope::All => Api::all(client),
        }
    };
    let mut feeder = Feeder {
        scope,
        feed,
        health,
        listed: Vec::new(),
        complete: false,
    };
    follow(cluster, api, Need::Required(RESOURCE), shutdown, |seen| {
        feeder.see(seen);
    })
    .await;
}

/// Turns what is seen into calls of the feed.
struct Feeder {
    scope: Scope,
    feed: Arc<Feed>,
    health: watch::Sender<Health>,
    listed: Vec<ServiceRoute>,
    /// Whether there has been a complete list.
    complete: bool,
}

impl Feeder {
    fn see(&mut self, seen: Seen<Service>) {
        match seen {
            Seen::Restart => self.listed.clear(),
            Seen::Listed(service) => self.listed.extend(reduced(service)),
            Seen::Synced => {
                let routes = std::mem::take(&mut self.listed);
                info!(scope = ?self.scope, services = routes.len(), "services listed");
                self.feed.reset(&self.scope, routes);
                self.complete = true;
                self.health.send_replace(Health::Synced);
            }
            Seen::Changed(service) => {
                let (namespace, name) = (service.namespace(), service.name_any());
                match reduced(service) {
                    Some(route) => self.feed.apply(route),
                    // It had a route perhaps, and has none any more.
                    None => self.feed.delete(&namespace.unwrap_or_default(), &name),
                }
            }
            Seen::Removed(service) => {
                let namespace = service.namespace().unwrap_or_default();
                self.feed.delete(&namespace, &service.name_any());
            }
            Seen::Forbidden { verb } => {
                let state = NamespaceState::Forbidden {
                    verb: verb.to_owned(),
                    resource: RESOURCE.to_owned(),
                };
                self.feed.set_state(&self.scope, &state);
                self.health.send_replace(Health::Forbidden { verb });
            }
            Seen::Away { cause } => {
                self.health.send_replace(Health::Away { cause });
            }
            Seen::Recovered => self.recover(),
        }
    }

    fn recover(&mut self) {
        if self.complete {
            self.feed.set_state(&self.scope, &NamespaceState::Synced);
            self.health.send_replace(Health::Synced);
        } else {
            self.feed.set_state(&self.scope, &NamespaceState::Waiting);
            self.health.send_replace(Health::Starting);
        }
    }
}

/// Reduces a Service; one that cannot be routed is left out, the others go on.
fn reduced(service: Service) -> Option<ServiceRoute> {
    let label = format!(
        "{}/{}",
        service.namespace().unwrap_or_default(),
        service.name_any()
    );
    match route(service) {
        Ok(route) => {
            debug!(service = label, kind = ?route.kind, "service seen");
            Some(route)
        }
        Err(error) => {
            warn!(
                service = label,
                error = format!("{error:#}"),
                "service left out"
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::index::{Found, Index, Served};
    use tokio::time::Instant;

    fn service(name: &str, spec: &str) -> Service {
        let yaml = format!("metadata: {{name: {name}, namespace: default}}\nspec: {spec}\n");
        serde_saphyr::from_str(&yaml).unwrap()
    }

    fn feeder() -> (Feeder, Arc<Index>, watch::Receiver<Health>) {
        let index = Arc::new(Index::new(Served::All, 1));
        let feed = Arc::new(Feed::new(Arc::clone(&index), Box::new(|_| {})));
        let (health, seen) = watch::channel(Health::Starting);
        let feeder = Feeder {
            scope: Scope::All,
            feed,
            health,
            listed: Vec::new(),
            complete: false,
        };
        (feeder, index, seen)
    }

    fn away() -> Seen<Service> {
        Seen::Away {
            cause: "Connection refused".to_owned(),
        }
    }

    fn found(index: &Index, name: &str) -> Found {
        index.lookup("default", name, Instant::now())
    }

    #[test]
    fn nothing_of_a_list_shows_before_it_is_complete() {
        let (mut feeder, index, health) = feeder();
        feeder.see(Seen::Restart);
        feeder.see(Seen::Listed(service("a", "{clusterIP: 10.0.0.1}")));
        assert_eq!(found(&index, "a"), Found::NotSynced);
        assert_eq!(*health.borrow(), Health::Starting);
        feeder.see(Seen::Synced);
        assert!(matches!(found(&index, "a"), Found::Route(_)));
        assert_eq!(*health.borrow(), Health::Synced);
    }

    #[test]
    fn a_list_that_breaks_off_leaves_nothing_behind() {
        let (mut feeder, index, _health) = feeder();
        feeder.see(Seen::Restart);
        feeder.see(Seen::Listed(service("a", "{clusterIP: 10.0.0.1}")));
        feeder.see(away());
        feeder.see(Seen::Restart);
        feeder.see(Seen::Listed(service("b", "{clusterIP: 10.0.0.2}")));
        feeder.see(Seen::Synced);
        assert_eq!(found(&index, "a"), Found::Unknown);
        assert!(matches!(found(&index, "b"), Found::Route(_)));
    }

    #[test]
    fn a_service_that_loses_its_route_is_removed() {
        let (mut feeder, index, _health) = feeder();
        feeder.see(Seen::Synced);
        feeder.see(Seen::Changed(service("a", "{clusterIP: 10.0.0.1}")));
        assert!(matches!(found(&index, "a"), Found::Route(_)));
        feeder.see(Seen::Changed(service("a", "{type: Odd}")));
        assert_eq!(found(&index, "a"), Found::Gone);
    }

    #[test]
    fn an_api_server_that_is_away_leaves_the_routes_as_they_are() {
        let (mut feeder, index, health) = feeder();
        feeder.see(Seen::Listed(service("a", "{clusterIP: 10.0.0.1}")));
        feeder.see(Seen::Synced);
        feeder.see(away());
        assert!(matches!(*health.borrow(), Health::Away { .. }));
        assert!(matches!(found(&index, "a"), Found::Route(_)));
        feeder.see(Seen::Recovered);
        assert_eq!(*health.borrow(), Health::Synced);
    }

    #[test]
    fn forbidden_names_verb_and_resource_and_ends_when_granted() {
        let (mut feeder, index, _health) = feeder();
        feeder.see(Seen::Forbidden { verb: "list" });
        let expected = NamespaceState::Forbidden {
            verb: "list".to_owned(),
            resource: "services".to_owned(),
        };
        assert_eq!(
            index.subscribe("default", Instant::now()).borrow().state,
            expected
        );
        feeder.see(Seen::Synced);
        assert_eq!(
            index.subscribe("default", Instant::now()).borrow().state,
            NamespaceState::Synced
        );
    }
}
