//! What the unit tests of several modules share.

use std::collections::BTreeMap;
use std::time::Duration;

use kubebridge_proto::routes::{NamespaceState, RouteUpdate, ServiceKind, ServiceRoute};
use kubebridge_proto::session::{Limits, SessionInfo};
use tokio::time::timeout;

use crate::routes::RouteTable;

pub(crate) mod fake_cluster;
mod fake_link;
pub(crate) mod fake_manager;
pub(crate) mod fake_os;

/// How long anything may take that a test waits for: no measure of it, but the end of a hang.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for what surely comes, and says what it was when it does not.
pub(crate) async fn within<T>(what: &str, coming: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, coming).await {
        Ok(came) => came,
        Err(_) => panic!("not within {PATIENCE:?}: {what}"),
    }
}

/// Makes a ClusterIP Service without ports.
pub(crate) fn cluster_ip(namespace: &str, name: &str, address: &str) -> ServiceRoute {
    ServiceRoute {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        kind: ServiceKind::ClusterIp,
        cluster_ips: vec![address.parse().unwrap()],
        ports: Vec::new(),
        external_name: None,
    }
}

/// Makes a table with complete namespaces.
pub(crate) fn table_with(namespaces: Vec<(&str, Vec<ServiceRoute>)>) -> RouteTable {
    let names: Vec<_> = namespaces
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    let mut table = RouteTable::new(&names);
    for (namespace, routes) in namespaces {
        table.merge(RouteUpdate::State {
            namespace: namespace.to_owned(),
            state: NamespaceState::Synced,
        });
        table.merge(RouteUpdate::Page {
            namespace: namespace.to_owned(),
            revision: 1,
            routes,
            last: true,
        });
    }
    table
}

/// Makes a table with complete namespaces of ClusterIP Services.
pub(crate) fn table_of(namespaces: &[(&str, &[&str])]) -> RouteTable {
    let services = |namespace: &str, names: &[&str]| {
        names
            .iter()
            .map(|name| cluster_ip(namespace, name, "10.96.0.7"))
            .collect()
    };
    table_with(
        namespaces
            .iter()
            .map(|(namespace, names)| (*namespace, services(namespace, names)))
            .collect(),
    )
}

/// Makes what a manager says about a session, with these Service networks.
pub(crate) fn session_info(service_cidrs: &[&str]) -> SessionInfo {
    SessionInfo {
        id: "session".to_owned(),
        manager_version: "0.1.0".to_owned(),
        cluster_domain: "cluster.local".to_owned(),
        search: vec!["default.svc.cluster.local".to_owned()],
        ndots: 5,
        service_cidrs: service_cidrs
            .iter()
            .map(|cidr| cidr.parse().unwrap())
            .collect(),
        pod_cidrs: Vec::new(),
        limits: Limits::default(),
        fleet_defaults: BTreeMap::new(),
        minimum_client_version: None,
        recommended_client_version: None,
        expires_in: None,
    }
}
