//! Routes from and to the wire.
//!
//! What a newer peer may add is left out here, not an error of the whole frame: a route of an
//! unknown kind is treated as absent, a frame of an unknown kind is an error that says so
//! ([`InvalidMessage::is_from_newer_peer`]).

use std::net::IpAddr;

use super::{NamespaceState, PortProtocol, RouteUpdate, ServiceKind, ServicePort, ServiceRoute};
use crate::error::InvalidMessage;
use crate::names::check_label;
use crate::v1;

impl TryFrom<v1::WatchNamespaceRoutesResponse> for RouteUpdate {
    type Error = InvalidMessage;

    fn try_from(wire: v1::WatchNamespaceRoutesResponse) -> Result<Self, Self::Error> {
        use v1::watch_namespace_routes_response::Update;
        let namespace = wire.namespace;
        check_label("namespace", &namespace)?;
        match wire.update {
            Some(Update::Page(page)) => {
                let (routes, _) = known_routes("page.routes", &namespace, page.routes)?;
                Ok(Self::Page {
                    namespace,
                    revision: page.revision,
                    routes,
                    last: page.last,
                })
            }
            Some(Update::Delta(delta)) => {
                let (upserts, unknown) = known_routes("delta.upserts", &namespace, delta.upserts)?;
                let mut deletes = delta.deletes;
                for name in &deletes {
                    check_label("delta.deletes", name)?;
                }
                deletes.extend(unknown);
                let (base_revision, revision) = (delta.base_revision, delta.revision);
                Ok(Self::Delta {
                    namespace,
                    base_revision,
                    revision,
                    upserts,
                    deletes,
                })
            }
            Some(Update::State(state)) => Ok(Self::State {
                namespace,
                state: state.try_into()?,
            }),
            None => Err(InvalidMessage::UnknownKind { field: "update" }),
        }
    }
}

impl From<RouteUpdate> for v1::WatchNamespaceRoutesResponse {
    fn from(update: RouteUpdate) -> Self {
        use v1::watch_namespace_routes_response::Update;
        let wire = |routes: Vec<ServiceRoute>| routes.into_iter().map(Into::into).collect();
        let (namespace, update) = match update {
            RouteUpdate::Page {
                namespace,
                revision,
                routes,
                last,
            } => {
                let page = v1::SnapshotPage {
                    revision,
                    routes: wire(routes),
                    last,
                };
                (namespace, Update::Page(page))
            }
            RouteUpdate::Delta {
                namespace,
                base_revision,
                revision,
                upserts,
                deletes,
            } => {
                let upserts = wire(upserts);
                let delta = v1::RouteDelta {
                    base_revision,
                    revision,
                    upserts,
                    deletes,
                };
                (namespace, Update::Delta(delta))
            }
            RouteUpdate::State { namespace, state } => (namespace, Update::State(state.into())),
        };
        Self {
            namespace,
            update: Some(update),
        }
    }
}

impl TryFrom<v1::NamespaceState> for NamespaceState {
    type Error = InvalidMessage;

    fn try_from(wire: v1::NamespaceState) -> Result<Self, Self::Error> {
        use v1::namespace_state::Kind;
        let unknown = InvalidMessage::Unknown {
            field: "state.kind",
            value: wire.kind,
        };
        match Kind::try_from(wire.kind) {
            Ok(Kind::Synced) => Ok(Self::Synced),
            Ok(Kind::Waiting) => Ok(Self::Waiting),
            Ok(Kind::Forbidden) => Ok(Self::Forbidden {
                verb: wire.verb,
                resource: wire.resource,
            }),
            Ok(Kind::NoSource) => Ok(Self::NoSource),
            Ok(Kind::Unspecified) | Err(_) => Err(unknown),
        }
    }
}

impl From<NamespaceState> for v1::NamespaceState {
    fn from(state: NamespaceState) -> Self {
        use v1::namespace_state::Kind;
        let (kind, verb, resource) = match state {
            NamespaceState::Synced => (Kind::Synced, String::new(), String::new()),
            NamespaceState::Waiting => (Kind::Waiting, String::new(), String::new()),
            NamespaceState::Forbidden { verb, resource } => (Kind::Forbidden, verb, resource),
            NamespaceState::NoSource => (Kind::NoSource, String::new(), String::new()),
        };
        Self {
            kind: kind.into(),
            verb,
            resource,
        }
    }
}

impl TryFrom<v1::ServiceRoute> for ServiceRoute {
    type Error = InvalidMessage;

    fn try_from(wire: v1::ServiceRoute) -> Result<Self, Self::Error> {
        check_label("route.name", &wire.name)?;
        check_label("route.namespace", &wire.namespace)?;
        let kind = kind_from_wire(wire.kind)?;
        let external_name = match kind {
            ServiceKind::ExternalName if wire.external_name.is_empty() => {
                return Err(InvalidMessage::Missing {
                    field: "route.external_name",
                });
            }
            ServiceKind::ExternalName => Some(wire.external_name),
            ServiceKind::ClusterIp | ServiceKind::Headless => None,
        };
        Ok(Self {
            name: wire.name,
            namespace: wire.namespace,
            kind,
            cluster_ips: wire
                .cluster_ips
                .iter()
                .map(|ip| address(ip))
                .collect::<Result<_, _>>()?,
            ports: wire
                .ports
                .into_iter()
                .map(TryInto::try_into)
                .collect::<Result<_, _>>()?,
            external_name,
        })
    }
}

impl From<ServiceRoute> for v1::ServiceRoute {
    fn from(route: ServiceRoute) -> Self {
        use v1::service_route::Kind;
        let kind = match route.kind {
            ServiceKind::ClusterIp => Kind::ClusterIp,
            ServiceKind::Headless => Kind::Headless,
            ServiceKind::ExternalName => Kind::ExternalName,
        };
        let octets = |ip: &IpAddr| match ip {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        Self {
            name: route.name,
            namespace: route.namespace,
            kind: kind.into(),
            cluster_ips: route.cluster_ips.iter().map(octets).collect(),
            ports: route.ports.into_iter().map(Into::into).collect(),
            external_name: route.external_name.unwrap_or_default(),
        }
    }
}

impl TryFrom<v1::ServicePort> for ServicePort {
    type Error = InvalidMessage;

    fn try_from(wire: v1::ServicePort) -> Result<Self, Self::Error> {
        use v1::service_port::Protocol;
        let field = "route.ports.port";
        let port = match u16::try_from(wire.port) {
            Ok(port) if port != 0 => port,
            Ok(_) | Err(_) => {
                let value = wire.port.to_string();
                return Err(InvalidMessage::invalid(
                    field,
                    value,
                    "a port is 1 to 65535",
                ));
            }
        };
        let protocol = match Protocol::try_from(wire.protocol) {
            Ok(Protocol::Tcp | Protocol::Unspecified) => PortProtocol::Tcp,
            Ok(Protocol::Udp) => PortProtocol::Udp,
            Ok(Protocol::Sctp) => PortProtocol::Sctp,
            Err(_) => {
                let (field, value) = ("route.ports.protocol", wire.protocol);
                return Err(InvalidMessage::Unknown { field, value });
            }
        };
        Ok(Self {
            name: wire.name,
            protocol,
            port,
        })
    }
}

impl From<ServicePort> for v1::ServicePort {
    fn from(port: ServicePort) -> Self {
        use v1::service_port::Protocol;
        let protocol = match port.protocol {
            PortProtocol::Tcp => Protocol::Tcp,
            PortProtocol::Udp => Protocol::Udp,
            PortProtocol::Sctp => Protocol::Sctp,
        };
        Self {
            name: port.name,
            protocol: protocol.into(),
            port: port.port.into(),
        }
    }
}

/// Splits routes into those this version understands and the names of those it does not.
fn known_routes(
    field: &'static str,
    namespace: &str,
    wire: Vec<v1::ServiceRoute>,
) -> Result<(Vec<ServiceRoute>, Vec<String>), InvalidMessage> {
    let mut routes = Vec::with_capacity(wire.len());
    let mut unknown = Vec::new();
    for mut route in wire {
        // Ports of a kind only a newer peer knows are left out, the route stays.
        route
            .ports
            .retain(|port| v1::service_port::Protocol::try_from(port.protocol).is_ok());
        let name = route.name.clone();
        match ServiceRoute::try_from(route) {
            Ok(route) if route.namespace == namespace => routes.push(route),
            Ok(route) => {
                let reason = format!("the frame is about namespace {namespace}");
                return Err(InvalidMessage::invalid(field, route.namespace, reason));
            }
            Err(error) if error.is_from_newer_peer() => unknown.push(name),
            Err(error) => return Err(error),
        }
    }
    Ok((routes, unknown))
}

fn kind_from_wire(value: i32) -> Result<ServiceKind, InvalidMessage> {
    use v1::service_route::Kind;
    match Kind::try_from(value) {
        Ok(Kind::ClusterIp) => Ok(ServiceKind::ClusterIp),
        Ok(Kind::Headless) => Ok(ServiceKind::Headless),
        Ok(Kind::ExternalName) => Ok(ServiceKind::ExternalName),
        Ok(Kind::Unspecified) | Err(_) => Err(InvalidMessage::Unknown {
            field: "route.kind",
            value,
        }),
    }
}

fn address(octets: &[u8]) -> Result<IpAddr, InvalidMessage> {
    if let Ok(v4) = <[u8; 4]>::try_from(octets) {
        return Ok(v4.into());
    }
    if let Ok(v6) = <[u8; 16]>::try_from(octets) {
        return Ok(v6.into());
    }
    let value = format!("{} octets", octets.len());
    Err(InvalidMessage::invalid(
        "route.cluster_ips",
        value,
        "an address has 4 or 16 octets",
    ))
}
