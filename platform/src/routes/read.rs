//! Reading what the machine uses already: its routes, gateways, networks and SSH peers.
//!
//! What the kernel does not know (name servers, the way to the cluster) is handed in.

use std::net::IpAddr;
use std::path::Path;

use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteProtocol, RouteType, RouteVia,
};

use super::netlink::{MAIN, Netlink, destination, oif, table};
use super::{RoutesError, Taken, TakenNet, Why, ssh};
use crate::net::IpNet;
use crate::sys::Sys;

/// Wider routes are default routes in disguise (full-tunnel VPNs split 0.0.0.0/0 in two or more,
/// the Internet is 2000::/3): they say nothing about who uses an address.
const WIDEST_USED_V4: u8 = 8;
/// Unique local addresses, as one route, are still somebody's.
const WIDEST_USED_V6: u8 = 7;

/// The table of default routes that a machine without rules of its own looks at, too.
const DEFAULT_TABLE: u32 = 253;

/// What else is known to be taken, and what of the machine is ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// The machine's name servers.
    pub name_servers: Vec<IpAddr>,
    /// SSH peers known otherwise, by `SSH_CONNECTION` say.
    pub peers: Vec<IpAddr>,
    /// The addresses of the way to the cluster.
    pub cluster: Vec<IpAddr>,
    /// The session's own link: its routes are not in the way.
    pub link: Option<u32>,
    /// The routes in force on it: connections to there go through the session.
    pub ours: Vec<IpNet>,
}

/// Reads the peer that `SSH_CONNECTION` names.
#[must_use]
pub fn ssh_peer(variable: &str) -> Option<IpAddr> {
    ssh::of_variable(variable)
}

/// Reads what the machine uses already.
pub async fn read_taken(sys: &Sys, known: &Known) -> Result<Taken, RoutesError> {
    sys.faults.step("read routes")?;
    let netlink = Netlink::open()?;
    let (links, tables) = (netlink.links().await?, netlink.tables().await?);
    let mut nets = Vec::new();
    for route in netlink.routes().await? {
        let link = oif(&route);
        let counts =
            [MAIN, DEFAULT_TABLE].contains(&table(&route)) || tables.contains(&table(&route));
        let is_own = link.is_some() && link == known.link;
        if is_own || !counts || route.header.flags.contains(RouteFlags::Cloned) {
            continue;
        }
        let via = link.and_then(|index| links.get(&index)).cloned();
        nets.extend(of_route(&route, via));
    }
    let hosts = |addresses: &[IpAddr], why| -> Vec<TakenNet> {
        addresses
            .iter()
            .filter_map(|&address| host(address, why, None))
            .collect()
    };
    nets.extend(hosts(&known.name_servers, Why::NameServer));
    nets.extend(hosts(&known.cluster, Why::Cluster));
    nets.extend(hosts(&known.peers, Why::SshPeer));
    let peers = ssh_peers(sys);
    let through_us = |peer: &IpAddr| known.ours.iter().any(|net| net.contains(*peer));
    let others: Vec<_> = peers.into_iter().filter(|peer| !through_us(peer)).collect();
    nets.extend(hosts(&others, Why::SshPeer));
    nets.sort();
    nets.dedup();
    Ok(Taken {
        nets,
        no_ipv6: has_no_ipv6(sys),
    })
}

/// What a route says about who uses which addresses.
fn of_route(route: &RouteMessage, via: Option<String>) -> Vec<TakenNet> {
    let mut taken: Vec<_> = gateways(route)
        .into_iter()
        .filter_map(|gateway| host(gateway, Why::Gateway, via.clone()))
        .collect();
    let Some(net) = destination(route).filter(is_used) else {
        return taken;
    };
    let why = match route.header.kind {
        RouteType::Local => Why::Own,
        RouteType::Broadcast | RouteType::Multicast | RouteType::Anycast => return taken,
        _ if route.header.protocol == RouteProtocol::Kernel => Why::OnLink,
        _ => Why::Route,
    };
    taken.push(TakenNet { net, why, via });
    taken
}

fn is_used(net: &IpNet) -> bool {
    let widest = match net {
        IpNet::V4(_) => WIDEST_USED_V4,
        IpNet::V6(_) => WIDEST_USED_V6,
    };
    net.prefix() >= widest
}

fn gateways(route: &RouteMessage) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for attribute in &route.attributes {
        found.extend(gateway(attribute));
        if let RouteAttribute::MultiPath(hops) = attribute {
            let attributes = hops.iter().flat_map(|hop| &hop.attributes);
            found.extend(attributes.filter_map(gateway));
        }
    }
    found
}

fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(RouteAddress::Inet(four))
        | RouteAttribute::Via(RouteVia::Inet(four)) => Some((*four).into()),
        RouteAttribute::Gateway(RouteAddress::Inet6(six))
        | RouteAttribute::Via(RouteVia::Inet6(six)) => Some((*six).into()),
        _ => None,
    }
}

fn host(address: IpAddr, why: Why, via: Option<String>) -> Option<TakenNet> {
    let address = address.to_canonical();
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    let net = IpNet::new(address, prefix).ok()?;
    Some(TakenNet { net, why, via })
}

/// Whoever may not read the tables has no peers to protect but those of its variable.
fn ssh_peers(sys: &Sys) -> Vec<IpAddr> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let texts = tables.iter().filter_map(|path| read(sys, path));
    texts.flat_map(|text| ssh::of_table(&text)).collect()
}

/// A link made now gets what `default` says; `all` counts for every link.
pub(crate) fn has_no_ipv6(sys: &Sys) -> bool {
    if !sys.path("/proc/sys/net/ipv6").exists() {
        return true;
    }
    ["all", "default"].iter().any(|which| {
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        read(sys, &path).is_some_and(|text| text.trim() == "1")
    })
}

fn read(sys: &Sys, path: &str) -> Option<String> {
    std::fs::read_to_string(sys.path(Path::new(path))).ok()
}
