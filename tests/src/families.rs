//! Which families of addresses a cluster has, and what of the lab is different by it.
//!
//! The laptop reaches a cluster of both by IPv4 alone, as most do, and one without IPv4 by IPv6.

use crate::lab::{AUTHORS, CLUSTER_DNS, NODE, SHOP_AUTHORS};

/// The node's IPv6 address towards the internet.
pub const NODE_V6: &str = "2001:db8:51::10";

/// Where the DNS server of a cluster without IPv4 listens.
const CLUSTER_DNS_V6: &str = "fd00:96::a";

/// The addresses of what every test starts from, in a cluster without IPv4.
const IN_V6: [(&str, &str); 5] = [
    (AUTHORS, "'fd00:96::1:1'"),
    (SHOP_AUTHORS, "'fd00:96::1:2'"),
    ("addressType: IPv4", "addressType: IPv6"),
    ("[10.244.1.11]", "['fd00:244:1::11']"),
    ("[10.244.1.12]", "['fd00:244:1::12']"),
];

/// The families of a cluster's Services and Pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 alone.
    V4,
    /// Both, IPv4 first.
    Both,
    /// IPv6 alone.
    V6,
}

impl Families {
    /// Where the cluster's DNS server listens.
    pub fn cluster_dns(self) -> &'static str {
        match self {
            Self::V4 | Self::Both => CLUSTER_DNS,
            Self::V6 => CLUSTER_DNS_V6,
        }
    }

    /// The node's own address.
    pub(crate) fn node(self) -> &'static str {
        match self {
            Self::V4 | Self::Both => NODE,
            Self::V6 => NODE_V6,
        }
    }

    /// The networks of the Services.
    pub(crate) fn services(self) -> &'static str {
        match self {
            Self::V4 => "10.96.0.0/16",
            Self::Both => "10.96.0.0/16,fd00:96::/108",
            Self::V6 => "fd00:96::/108",
        }
    }

    /// The networks of all Pods.
    pub(crate) fn pods(self) -> &'static str {
        match self {
            Self::V4 => "10.244.0.0/16",
            Self::Both => "10.244.0.0/16,fd00:244::/32",
            Self::V6 => "fd00:244::/32",
        }
    }

    /// The networks of the node's Pods.
    pub(crate) fn pods_of_node(self) -> &'static [&'static str] {
        match self {
            Self::V4 => &["10.244.1.0/24"],
            Self::Both => &["10.244.1.0/24", "fd00:244:1::/64"],
            Self::V6 => &["fd00:244:1::/64"],
        }
    }

    /// Manifests of IPv4 as they are in this cluster.
    pub(crate) fn translate(self, manifests: &str) -> String {
        let mut text = manifests.to_owned();
        if self == Self::V6 {
            for (four, six) in IN_V6 {
                text = text.replace(four, six);
            }
        }
        text
    }
}

/// An address in the place of a host in a URL or before a port.
pub(crate) fn bracketed(address: &str) -> String {
    match address.contains(':') {
        true => format!("[{address}]"),
        false => address.to_owned(),
    }
}
