//! The terms the index is spoken to in: what is fed, by whom, what changed and what is known.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use kubebridge_proto::routes::ServiceRoute;

/// Which namespaces are fed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// None: there is no source of Services.
    Nothing,
    /// These.
    Namespaces(BTreeSet<String>),
    /// Whatever there is.
    All,
}

impl Served {
    /// Tells whether a namespace is fed.
    #[must_use]
    pub fn covers(&self, namespace: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Namespaces(set) => set.contains(namespace),
            Self::All => true,
        }
    }
}

/// What one feeder is responsible for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// One namespace.
    Namespace(String),
    /// Every namespace.
    All,
}

/// Names a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ServiceKey {
    pub(super) fn of(route: &ServiceRoute) -> Self {
        Self {
            namespace: route.namespace.clone(),
            name: route.name.clone(),
        }
    }
}

/// A change of a Service: what answers may depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The Service.
    pub key: ServiceKey,
    /// The addresses it had or has.
    pub addresses: BTreeSet<IpAddr>,
}

impl Changed {
    pub(super) fn new(
        key: ServiceKey,
        before: Option<&ServiceRoute>,
        after: Option<&ServiceRoute>,
    ) -> Self {
        let routes = before.into_iter().chain(after);
        let addresses = routes
            .flat_map(|route| route.cluster_ips.iter().copied())
            .collect();
        Self { key, addresses }
    }
}

/// What is known about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// There is such a Service.
    Route(Arc<ServiceRoute>),
    /// There was one until a moment ago.
    Gone,
    /// There is none, in a namespace that is completely known.
    Unknown,
    /// The namespace is not known, or not completely.
    NotSynced,
}

impl Found {
    /// Returns the Service, where there is one.
    #[must_use]
    pub fn route(self) -> Option<Arc<ServiceRoute>> {
        match self {
            Self::Route(route) => Some(route),
            Self::Gone | Self::Unknown | Self::NotSynced => None,
        }
    }
}
