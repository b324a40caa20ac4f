//! Where Services come from: nothing, a cluster, or a file; opened first, then followed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use kubebridge_proto::routes::ServiceRoute;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::app::{Tasks, done, spawn};
use crate::config::{Namespaces, Source};
use crate::failure::{Exit, Failure};
use crate::feed::Feed;
use crate::kubernetes::cidrs::Ranges;
use crate::kubernetes::cluster::Cluster;
use crate::kubernetes::endpoints::Endpoints;
use crate::kubernetes::index::{Scope, Served};
use crate::kubernetes::namespaces::Observed;
use crate::kubernetes::nodes::Nodes;
use crate::kubernetes::watch::Health;
use crate::kubernetes::{cidrs, namespaces, nodes, slices, watch as services};
use crate::manifests::Manifests;
use crate::metrics::Metrics;

/// A source that can be used.
#[derive(Debug)]
pub(crate) enum Opened {
    Nothing,
    Cluster {
        cluster: Cluster,
        served: Served,
    },
    Manifests {
        manifests: Manifests,
        routes: Vec<ServiceRoute>,
        served: Served,
    },
}

/// What a cluster tells beside its Services.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) observed: watch::Sender<Observed>,
    pub(crate) ranges: watch::Sender<Ranges>,
    pub(crate) nodes: watch::Sender<Arc<Nodes>>,
    pub(crate) endpoints: Arc<Endpoints>,
}

/// How each watch does, by the name of what it watches.
type Watches = Vec<(String, watch::Receiver<Health>)>;

impl Opened {
    pub(crate) async fn open(source: &Source, metrics: &Arc<Metrics>) -> Result<Self> {
        match source {
            Source::None => Ok(Self::Nothing),
            Source::Kubernetes(namespaces) => {
                let cluster = Cluster::infer(Arc::clone(metrics)).await.with_context(|| {
                    Failure::new(Exit::File, "cannot use --kubernetes")
                        .hint("run in a pod with a service account, or set KUBECONFIG")
                })?;
                let served = match namespaces {
                    Namespaces::Own => Served::Namespaces([cluster.namespace.clone()].into()),
                    Namespaces::These(names) => Served::Namespaces(names.clone()),
                    Namespaces::All => Served::All,
                };
                Ok(Self::Cluster { cluster, served })
            }
            Source::Manifests { file, namespaces } => {
                let (manifests, routes) = Manifests::open(file)?;
                let served = match namespaces {
                    Namespaces::These(names) => Served::Namespaces(names.clone()),
                    Namespaces::Own | Namespaces::All => Served::All,
                };
                Ok(Self::Manifests {
                    manifests,
                    routes,
                    served,
                })
            }
        }
    }

    /// Returns the addresses of the API server that are known without a question.
    pub(crate) fn api_servers(&self) -> BTreeSet<IpAddr> {
        match self {
            Self::Cluster { cluster, .. } => cluster.server_address().into_iter().collect(),
            Self::Nothing | Self::Manifests { .. } => BTreeSet::new(),
        }
    }

    pub(crate) fn served(&self) -> Served {
        match self {
            Self::Nothing => Served::Nothing,
            Self::Cluster { served, .. } | Self::Manifests { served, .. } => served.clone(),
        }
    }

    /// Starts to feed. A file is in the index when this returns, a cluster follows.
    pub(crate) fn spawn(
        self,
        feed: &Arc<Feed>,
        told: Told,
        shutdown: &CancellationToken,
        tasks: &mut Tasks,
    ) -> Watches {
        match self {
            Self::Nothing => {
                hold(told, shutdown, tasks);
                Vec::new()
            }
            Self::Manifests {
                manifests,
                routes,
                served: _,
            } => {
                hold(told, shutdown, tasks);
                feed.reset(&Scope::All, routes);
                let following = manifests.follow(Arc::clone(feed), shutdown.clone());
                spawn(tasks, "services file", done(following));
                Vec::new()
            }
            Self::Cluster { cluster, served } => {
                let scopes = match &served {
                    Served::Nothing => Vec::new(),
                    Served::Namespaces(names) => namespace_scopes(names),
                    Served::All => vec![Scope::All],
                };
                let Told {
                    observed,
                    ranges,
                    nodes: of_nodes,
                    endpoints,
                } = told;
                let watching = nodes::nodes(cluster.clone(), of_nodes, shutdown.clone());
                spawn(tasks, "nodes", done(watching));
                for scope in &scopes {
                    let (cluster, endpoints) = (cluster.clone(), Arc::clone(&endpoints));
                    let watching =
                        slices::slices(cluster, scope.clone(), endpoints, shutdown.clone());
                    spawn(tasks, "endpoint slices", done(watching));
                }
                let watching = cidrs::service_cidrs(cluster.clone(), ranges, shutdown.clone());
                spawn(tasks, "service ranges", done(watching));
                if served == Served::All {
                    let watching =
                        namespaces::namespaces(cluster.clone(), observed, shutdown.clone());
                    spawn(tasks, "namespaces", done(watching));
                } else {
                    hold(observed, shutdown, tasks);
                }
                let start = |scope| watch_scope(&cluster, scope, feed, shutdown, tasks);
                scopes.into_iter().map(start).collect()
            }
        }
    }
}

fn namespace_scopes(names: &BTreeSet<String>) -> Vec<Scope> {
    names.iter().cloned().map(Scope::Namespace).collect()
}

fn watch_scope(
    cluster: &Cluster,
    scope: Scope,
    feed: &Arc<Feed>,
    shutdown: &CancellationToken,
    tasks: &mut Tasks,
) -> (String, watch::Receiver<Health>) {
    let what = match &scope {
        Scope::Namespace(name) => format!("services of namespace {name}"),
        Scope::All => "services of all namespaces".to_owned(),
    };
    let (health, seen) = watch::channel(Health::Starting);
    let watching = services::services(
        cluster.clone(),
        scope,
        Arc::clone(feed),
        health,
        shutdown.clone(),
    );
    spawn(tasks, "services", done(watching));
    (what, seen)
}

/// Keeps the senders of what nobody observes, so that their followers wait instead of ending.
fn hold(senders: impl Send + 'static, shutdown: &CancellationToken, tasks: &mut Tasks) {
    let shutdown = shutdown.clone();
    spawn(tasks, "unobserved", async move {
        shutdown.cancelled().await;
        drop(senders);
        Ok(())
    });
}
