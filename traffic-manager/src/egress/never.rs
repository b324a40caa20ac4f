//! What nobody may dial, whatever the mode: the pod, its node, the control plane, metadata, and
//! addresses that are no single host's.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kubebridge_proto::cidr::Cidr;

use crate::kubernetes::endpoints::Endpoints;
use crate::kubernetes::index::{Index, ServiceKey};
use crate::kubernetes::nodes::Nodes;

/// Ports of the kubelet (10250 and its read-only 10255) and of etcd (2379, 2380).
const CONTROL_PORTS: [u16; 4] = [2379, 2380, 10250, 10255];

/// Where clouds serve metadata and credentials outside of link-local addresses: Alibaba, Oracle,
/// Azure's host, Volcengine; AWS (metadata, EKS pod identity) and Google over IPv6.
const METADATA_V4: [Ipv4Addr; 4] = [
    Ipv4Addr::new(100, 100, 100, 200),
    Ipv4Addr::new(192, 0, 0, 192),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(100, 96, 0, 96),
];
const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254),
    Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23),
    Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254),
];

/// Why nobody may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `127.0.0.0/8`, `::1`.
    Loopback,
    /// `0.0.0.0/8`, `::`.
    Unspecified,
    /// Multicast.
    Multicast,
    /// `240.0.0.0/4`, broadcast included.
    Reserved,
    /// `169.254.0.0/16`, `fe80::/10` and its predecessor `fec0::/10`.
    LinkLocal,
    /// A cloud's metadata service.
    Metadata,
    /// A node.
    Node,
    /// The API server.
    ApiServer,
    /// A port of the kubelet or of etcd.
    ControlPort,
    /// The manager's pod, or its own Service.
    Own,
    /// Excepted by the administrator.
    Excepted,
}

impl Kind {
    /// Returns the kind as the word that is logged and sent.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Unspecified => "unspecified",
            Self::Multicast => "multicast",
            Self::Reserved => "reserved",
            Self::LinkLocal => "link-local",
            Self::Metadata => "metadata",
            Self::Node => "node",
            Self::ApiServer => "api-server",
            Self::ControlPort => "control-port",
            Self::Own => "own",
            Self::Excepted => "excepted",
        }
    }
}

/// Where the manager and the API server are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ours {
    /// Addresses of the pod, and of the Service that leads to it.
    pub own: BTreeSet<IpAddr>,
    /// Addresses of the API server that are known without asking it.
    pub api_servers: BTreeSet<IpAddr>,
    /// Addresses of the node the pod runs on, as the pod was told.
    pub host: BTreeSet<IpAddr>,
}

/// What is known of the addresses nobody may dial.
#[derive(Debug, Clone, Copy)]
pub(super) struct Never<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) ours: &'a Ours,
    pub(super) endpoints: &'a Endpoints,
    pub(super) index: &'a Index,
    pub(super) except: &'a [Cidr],
}

impl Never<'_> {
    pub(super) fn address(&self, address: IpAddr) -> Option<Kind> {
        if let Some(kind) = by_itself(address) {
            return Some(kind);
        }
        if self.ours.own.contains(&address) {
            return Some(Kind::Own);
        }
        if self.is_api_server(address) {
            return Some(Kind::ApiServer);
        }
        if self.nodes.addresses.contains(&address) || self.ours.host.contains(&address) {
            return Some(Kind::Node);
        }
        let excepted = self.except.iter().any(|range| range.contains(address));
        excepted.then_some(Kind::Excepted)
    }

    fn is_api_server(&self, address: IpAddr) -> bool {
        self.ours.api_servers.contains(&address)
            || self.index.pointers(address).iter().any(is_kubernetes)
            || self
                .endpoints
                .at(address)
                .iter()
                .any(|at| is_kubernetes(&at.service))
    }
}

/// Says whether a port is the control plane's, on any address.
pub(super) fn port(port: u16) -> Option<Kind> {
    CONTROL_PORTS.contains(&port).then_some(Kind::ControlPort)
}

/// The Service of the API server, which every cluster has.
fn is_kubernetes(key: &ServiceKey) -> bool {
    key.namespace == "default" && key.name == "kubernetes"
}

fn by_itself(address: IpAddr) -> Option<Kind> {
    match address {
        IpAddr::V4(v4) => {
            let first = v4.octets()[0];
            match () {
                () if METADATA_V4.contains(&v4) || v4 == Ipv4Addr::new(169, 254, 169, 254) => {
                    Some(Kind::Metadata)
                }
                () if v4.is_loopback() => Some(Kind::Loopback),
                () if first == 0 => Some(Kind::Unspecified),
                () if v4.is_multicast() => Some(Kind::Multicast),
                () if first >= 240 => Some(Kind::Reserved),
                () if v4.is_link_local() => Some(Kind::LinkLocal),
                () => None,
            }
        }
        IpAddr::V6(v6) => match () {
            () if METADATA_V6.contains(&v6) => Some(Kind::Metadata),
            () if v6.is_loopback() => Some(Kind::Loopback),
            () if v6.is_unspecified() => Some(Kind::Unspecified),
            () if v6.is_multicast() => Some(Kind::Multicast),
            // fe80::/10 and fec0::/10 (RFC 3879).
            () if v6.segments()[0] & 0xff80 == 0xfe80 => Some(Kind::LinkLocal),
            () => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_nobody_may_dial_are_known_by_themselves() {
        for (text, expected) in [
            ("127.0.0.1", Some(Kind::Loopback)),
            ("127.255.255.254", Some(Kind::Loopback)),
            ("0.0.0.0", Some(Kind::Unspecified)),
            ("0.1.2.3", Some(Kind::Unspecified)),
            ("224.0.0.251", Some(Kind::Multicast)),
            ("255.255.255.255", Some(Kind::Reserved)),
            ("240.0.0.1", Some(Kind::Reserved)),
            ("169.254.169.254", Some(Kind::Metadata)),
            ("169.254.170.2", Some(Kind::LinkLocal)),
            ("100.100.100.200", Some(Kind::Metadata)),
            ("fd00:ec2::254", Some(Kind::Metadata)),
            ("::1", Some(Kind::Loopback)),
            ("::", Some(Kind::Unspecified)),
            ("fe80::1", Some(Kind::LinkLocal)),
            ("febf::1", Some(Kind::LinkLocal)),
            ("fec0::1", Some(Kind::LinkLocal)),
            ("ff02::fb", Some(Kind::Multicast)),
            ("10.96.0.1", None),
            ("192.168.1.1", None),
            ("fd00:10::1", None),
            ("2001:db8::1", None),
        ] {
            assert_eq!(by_itself(text.parse().unwrap()), expected, "{text}");
        }
    }
}
