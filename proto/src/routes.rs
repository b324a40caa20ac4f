//! Services of a namespace as both sides know them; `routes/wire.rs` takes them from and to the wire.

use std::net::IpAddr;

mod wire;

/// The most routes in one page of a snapshot, and the most changes in one delta: about 100 KB of
/// typical routes, well below gRPC's default limit of 4 MiB a message.
pub const PAGE_ROUTES: usize = 500;

/// What is known about one Service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceRoute {
    /// The Service's name.
    pub name: String,
    /// The Service's namespace.
    pub namespace: String,
    /// How the name resolves.
    pub kind: ServiceKind,
    /// `ClusterIPs` in the order of the Service: the first is the primary one.
    pub cluster_ips: Vec<IpAddr>,
    /// The ports, in the order of the Service.
    pub ports: Vec<ServicePort>,
    /// The target of an `ExternalName` Service.
    pub external_name: Option<String>,
}

/// The kinds of Service, by how their names resolve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ServiceKind {
    /// Resolves to its `ClusterIPs`; includes `NodePort` and `LoadBalancer`.
    ClusterIp,
    /// No `ClusterIP`: resolves to its endpoints, by DNS only.
    Headless,
    /// An alias of a name outside.
    ExternalName,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServicePort {
    /// Empty when the Service has one unnamed port.
    pub name: String,
    /// The transport protocol.
    pub protocol: PortProtocol,
    /// The port on the `ClusterIP`.
    pub port: u16,
}

/// The transport protocols a Service knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PortProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// Where the routes of a namespace stand.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum NamespaceState {
    /// The table is complete.
    Synced,
    /// The first list is under way, or the source is out of reach.
    Waiting,
    /// The manager may not list this namespace.
    Forbidden {
        /// The missing verb.
        verb: String,
        /// The resource it is missing for.
        resource: String,
    },
    /// Nothing feeds this namespace.
    NoSource,
}

/// One frame about one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RouteUpdate {
    /// A part of a snapshot; the last page completes it and replaces all that was known.
    Page {
        /// The namespace.
        namespace: String,
        /// The revision of the whole snapshot.
        revision: u64,
        /// Routes by ascending name.
        routes: Vec<ServiceRoute>,
        /// True in the last page.
        last: bool,
    },
    /// The difference between two revisions.
    Delta {
        /// The namespace.
        namespace: String,
        /// The revision this applies to; another one at hand means a gap.
        base_revision: u64,
        /// The revision afterwards.
        revision: u64,
        /// New and changed routes, whole.
        upserts: Vec<ServiceRoute>,
        /// Names of routes that are gone.
        deletes: Vec<String>,
    },
    /// The state of the namespace.
    State {
        /// The namespace.
        namespace: String,
        /// Its state.
        state: NamespaceState,
    },
}

impl RouteUpdate {
    /// Returns the namespace the frame is about.
    #[must_use]
    pub fn namespace(&self) -> &str {
        match self {
            Self::Page { namespace, .. }
            | Self::Delta { namespace, .. }
            | Self::State { namespace, .. } => namespace,
        }
    }
}

#[cfg(test)]
mod tests;
