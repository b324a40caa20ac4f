//! What a session may dial: an allow-list, and a list of what nobody may in any mode.
//!
//! Pure: decides from the Services and endpoints known, the administrator's [`rules`] and what the
//! session has resolved. `now` is given, nothing is dialled or looked up here. Which sessions
//! there are, and how a flow is made, is the business of [`data`](crate::data).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use kubebridge_proto::flow::Protocol;
use kubebridge_proto::routes::{PortProtocol, ServiceRoute};
use tokio::sync::watch;
use tokio::time::Instant;

use self::learned::{Learned, Origin};
use self::never::{Never, Ours};
use self::rules::Rules;
use crate::kubernetes::cidrs::Ranges;
use crate::kubernetes::endpoints::Endpoints;
use crate::kubernetes::index::{Found, Index, ServiceKey};
use crate::kubernetes::nodes::Nodes;
use crate::sessions::Grant;

pub mod forms;
pub mod learned;
pub mod never;
pub mod rules;

/// What is dialled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialled {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A UDP port.
    Udp(SocketAddr),
    /// An address, by ICMP echo.
    Ping(IpAddr),
}

/// A destination that may be dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// Where to, an IPv4 address never written as an IPv6 one.
    pub to: Dialled,
    /// Why.
    pub because: Because,
}

/// Why a destination may be dialled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// It is a port of a granted Service.
    Service(ServiceKey),
    /// It is an endpoint of a granted Service.
    Endpoint(ServiceKey),
    /// The session resolved the address.
    Resolved,
    /// Pods may be dialled.
    Pods(Option<ServiceKey>),
    /// It lies in a range the administrator opened.
    Range,
}

/// Why a destination may not be dialled, with the Service it belongs to where that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The reason.
    pub reason: Reason,
    /// The Service.
    pub service: Option<ServiceKey>,
}

/// The reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Nobody may dial it in any mode.
    Never(never::Kind),
    /// It belongs to a namespace that the session was not granted.
    NotGranted,
    /// The Service, which is granted, has no such port.
    NoSuchPort,
    /// It is in the range of `ClusterIPs`, and no Service is known to have it.
    UnknownService,
    /// It is an address of the cluster in the form of another.
    Disguised,
    /// It is an address for pods, resolved under a name outside the cluster.
    PodRange,
    /// Nothing allows it.
    NotListed,
}

impl Reason {
    /// Returns the reason as the word that is logged and sent.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Never(kind) => kind.word(),
            Self::NotGranted => "namespace-not-granted",
            Self::NoSuchPort => "no-such-port",
            Self::UnknownService => "unknown-service",
            Self::Disguised => "disguised-address",
            Self::PodRange => "pod-range",
            Self::NotListed => "not-listed",
        }
    }
}

/// Decides what may be dialled.
#[derive(Debug, Clone)]
pub struct Egress {
    /// What the administrator set.
    pub rules: Arc<Rules>,
    /// The Services.
    pub index: Arc<Index>,
    /// The addresses behind them.
    pub endpoints: Arc<Endpoints>,
    /// The ranges of `ClusterIPs`.
    pub ranges: watch::Receiver<Ranges>,
    /// The addresses and pod ranges of the nodes.
    pub nodes: watch::Receiver<Arc<Nodes>>,
    /// Where the manager itself is, and the API server.
    pub ours: watch::Receiver<Arc<Ours>>,
}

/// Who dials.
#[derive(Debug, Clone, Copy)]
pub struct Dialler<'a> {
    /// What it was granted.
    pub grant: &'a Grant,
    /// What it has resolved.
    pub learned: &'a Learned,
}

impl Egress {
    /// Decides.
    ///
    /// # Errors
    /// With the reason why not.
    pub fn judge(
        &self,
        dialler: Dialler<'_>,
        to: Dialled,
        now: Instant,
    ) -> Result<Allowed, Denied> {
        let to = to.canonical();
        self.refuse_never(to)?;
        let because = self.reason(dialler, to, now)?;
        if let Because::Service(key) = &because {
            self.refuse_behind(key)?;
        }
        Ok(Allowed { to, because })
    }

    fn refuse_never(&self, to: Dialled) -> Result<(), Denied> {
        let address = to.address();
        let (nodes, ours) = (self.nodes.borrow(), self.ours.borrow());
        let never = Never {
            nodes: &nodes,
            ours: &ours,
            endpoints: &self.endpoints,
            index: &self.index,
            except: &self.rules.except,
        };
        if let Some(kind) = to.port().and_then(never::port) {
            return Err(self.denied(Reason::Never(kind), address));
        }
        for form in forms::forms(address) {
            if let Some(kind) = never.address(form) {
                return Err(self.denied(Reason::Never(kind), form));
            }
        }
        let disguised = forms::forms(address).skip(1).any(|form| {
            !self.index.pointers(form).is_empty()
                || !self.endpoints.at(form).is_empty()
                || self.is_service_range(form)
        });
        match disguised {
            true => Err(Denied::of(Reason::Disguised, None)),
            false => Ok(()),
        }
    }

    fn reason(&self, dialler: Dialler<'_>, to: Dialled, now: Instant) -> Result<Because, Denied> {
        let address = to.address();
        let granted = |key: &ServiceKey| dialler.grant.namespaces.contains(&key.namespace);
        let services = self.index.pointers(address);
        if !services.is_empty() {
            return self.of_service(services, granted, to, now);
        }
        if self.is_service_range(address) {
            return Err(Denied::of(Reason::UnknownService, None));
        }
        let endpoints = self.endpoints.at(address);
        let ours = || endpoints.iter().find(|at| granted(&at.service));
        let named = |at: &&crate::kubernetes::endpoints::At| {
            granted(&at.service) && at.takes(to.protocol(), to.port())
        };
        if let Some(at) = endpoints.iter().find(named) {
            return Ok(Because::Endpoint(at.service.clone()));
        }
        if ours().is_none()
            && let Some(foreign) = endpoints.first()
        {
            return Err(Denied::of(Reason::NotGranted, Some(&foreign.service)));
        }
        let is_pod = self.is_pod_range(address);
        match dialler.learned.origin(address, now) {
            Some(Origin::Cluster) => return Ok(Because::Resolved),
            Some(Origin::Outside) if !is_pod => return Ok(Because::Resolved),
            Some(Origin::Outside) | None => {}
        }
        if self.rules.pods && (is_pod || ours().is_some()) {
            return Ok(Because::Pods(ours().map(|at| at.service.clone())));
        }
        if self
            .rules
            .ranges
            .iter()
            .any(|range| range.contains(address))
        {
            return Ok(Because::Range);
        }
        let learned = dialler.learned.origin(address, now).is_some();
        let reason = match (ours(), learned) {
            (Some(at), _) => return Err(Denied::of(Reason::NoSuchPort, Some(&at.service))),
            (None, true) => Reason::PodRange,
            (None, false) => Reason::NotListed,
        };
        Err(Denied::of(reason, None))
    }

    /// Decides about a `ClusterIP`, whatever else might allow it.
    fn of_service(
        &self,
        services: Vec<ServiceKey>,
        granted: impl Fn(&ServiceKey) -> bool,
        to: Dialled,
        now: Instant,
    ) -> Result<Because, Denied> {
        let foreign = services.first().cloned();
        let ours: Vec<_> = services.into_iter().filter(granted).collect();
        let has_port = |key: &&ServiceKey| {
            let found = self.index.lookup(&key.namespace, &key.name, now);
            matches!(found, Found::Route(route) if has_port(&route, to))
        };
        match (ours.iter().find(has_port), ours.first()) {
            (Some(key), _) => Ok(Because::Service(key.clone())),
            (None, Some(key)) => Err(Denied::of(Reason::NoSuchPort, Some(key))),
            (None, None) => Err(Denied::of(Reason::NotGranted, foreign.as_ref())),
        }
    }

    /// Refuses a Service that was pointed at what nobody may dial: whoever may write endpoints in
    /// a namespace would get there by its `ClusterIP` otherwise.
    fn refuse_behind(&self, key: &ServiceKey) -> Result<(), Denied> {
        let (nodes, ours) = (self.nodes.borrow(), self.ours.borrow());
        let never = Never {
            nodes: &nodes,
            ours: &ours,
            endpoints: &self.endpoints,
            index: &self.index,
            except: &self.rules.except,
        };
        let kind = self.endpoints.of(key).iter().find_map(|endpoint| {
            let ports = endpoint.ports.iter().filter_map(|port| port.number);
            let control = ports.clone().find_map(never::port);
            let mut kinds = forms::forms(endpoint.address).filter_map(|form| never.address(form));
            kinds.find_map(|kind| match kind {
                // Pods in the node's network are served by their Service as anywhere.
                never::Kind::Node => control,
                never::Kind::Excepted => None,
                other => Some(other),
            })
        });
        match kind {
            Some(kind) => Err(Denied::of(Reason::Never(kind), Some(key))),
            None => Ok(()),
        }
    }

    fn is_service_range(&self, address: IpAddr) -> bool {
        let ranges = self.ranges.borrow();
        ranges.iter().any(|range| range.contains(address))
    }

    fn is_pod_range(&self, address: IpAddr) -> bool {
        let nodes = self.nodes.borrow();
        nodes.pod_ranges.iter().any(|range| range.contains(address))
    }

    fn denied(&self, reason: Reason, address: IpAddr) -> Denied {
        let service = self.index.pointers(address).into_iter().next();
        Denied { reason, service }
    }
}

impl Denied {
    fn of(reason: Reason, service: Option<&ServiceKey>) -> Self {
        Self {
            reason,
            service: service.cloned(),
        }
    }
}

impl Because {
    /// Returns the Service, where there is one.
    #[must_use]
    pub fn service(&self) -> Option<&ServiceKey> {
        match self {
            Self::Service(key) | Self::Endpoint(key) => Some(key),
            Self::Pods(key) => key.as_ref(),
            Self::Resolved | Self::Range => None,
        }
    }

    /// Returns the reason as the word that is logged.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Service(_) => "service",
            Self::Endpoint(_) => "endpoint",
            Self::Resolved => "resolved",
            Self::Pods(_) => "pods",
            Self::Range => "cidr",
        }
    }
}

impl Dialled {
    /// Takes what is on the wire.
    #[must_use]
    pub fn of(protocol: Protocol, to: SocketAddr) -> Self {
        match protocol {
            Protocol::Tcp => Self::Tcp(to),
            Protocol::Udp => Self::Udp(to),
            Protocol::Icmp => Self::Ping(to.ip()),
        }
    }

    /// Returns the address.
    #[must_use]
    pub fn address(self) -> IpAddr {
        match self {
            Self::Tcp(to) | Self::Udp(to) => to.ip(),
            Self::Ping(address) => address,
        }
    }

    /// Returns the port, where there is one.
    #[must_use]
    pub fn port(self) -> Option<u16> {
        match self {
            Self::Tcp(to) | Self::Udp(to) => Some(to.port()),
            Self::Ping(_) => None,
        }
    }

    /// Returns the protocol of Services, where there is one.
    #[must_use]
    pub fn protocol(self) -> Option<PortProtocol> {
        match self {
            Self::Tcp(_) => Some(PortProtocol::Tcp),
            Self::Udp(_) => Some(PortProtocol::Udp),
            Self::Ping(_) => None,
        }
    }

    /// Returns the protocol as the word that is logged and counted.
    #[must_use]
    pub fn protocol_word(self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Udp(_) => "udp",
            Self::Ping(_) => "icmp",
        }
    }

    /// Writes an IPv4 address as one, and without what only this machine understands.
    fn canonical(self) -> Self {
        let plain = |to: SocketAddr| SocketAddr::new(to.ip().to_canonical(), to.port());
        match self {
            Self::Tcp(to) => Self::Tcp(plain(to)),
            Self::Udp(to) => Self::Udp(plain(to)),
            Self::Ping(address) => Self::Ping(address.to_canonical()),
        }
    }
}

fn has_port(route: &ServiceRoute, to: Dialled) -> bool {
    let (Some(protocol), Some(number)) = (to.protocol(), to.port()) else {
        return true;
    };
    let mut ports = route.ports.iter();
    ports.any(|port| port.protocol == protocol && port.port == number)
}

#[cfg(test)]
mod tests;
