//! The IP routes of a session: which networks may lead into its link, and which never.
//!
//! [`plan`] is pure: it takes the networks of the cluster and punches out whatever the machine uses
//! already. Reading what that is (`routes/read.rs`) and setting routes (`routes/netlink.rs`) are thin.
//! No rule, no sysctl and no route of anybody else is ever touched.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::net::{IpNet, Ipv4Net, Ipv6Net};
pub use error::RoutesError;
pub use give::MOST_GIVEN;
pub(crate) use netlink::remove_leftover;
pub(crate) use read::has_no_ipv6;
pub use read::{Known, read_taken, ssh_peer};
use set::AddressSet;

mod error;
mod give;
pub(crate) mod netlink;
mod read;
mod set;
mod ssh;

/// The most routes of a session: a hole in a network costs at most its prefix length in routes, so
/// this is room for some hundred holes; a kernel takes far more.
pub const MAX_ROUTES: usize = 4096;

/// Networks wider than this are no cluster's: they would take a good part of the Internet.
pub const WIDEST: u8 = 8;

/// IPv4 that is never routed: this network, loopback, link-local with the metadata addresses,
/// multicast and reserved.
const NEVER_V4: [(&str, u8); 5] = [
    ("0.0.0.0", 8),
    ("127.0.0.0", 8),
    ("169.254.0.0", 16),
    ("224.0.0.0", 4),
    ("240.0.0.0", 4),
];

/// IPv6 that is never routed: all that means something else (loopback, IPv4 in IPv6, NAT64),
/// link-local and multicast.
const NEVER_V6: [(&str, u8); 3] = [("::", 8), ("fe80::", 10), ("ff00::", 8)];

/// Why a network is not ours to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The user left it out.
    Excluded,
    /// It means something else everywhere.
    Special,
    /// The way to the cluster: its API server, a proxy before it, the manager.
    Cluster,
    /// A gateway of the machine.
    Gateway,
    /// A name server of the machine.
    NameServer,
    /// Somebody at the other end of an SSH connection.
    SshPeer,
    /// A network the machine is in.
    OnLink,
    /// An address of the machine itself.
    Own,
    /// A route that was there before.
    Route,
}

impl Why {
    /// Says in words whose network it is.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Excluded => "left out by --exclude-cidr",
            Self::Special => "reserved",
            Self::Cluster => "the way to the cluster",
            Self::Gateway => "a gateway",
            Self::NameServer => "a name server",
            Self::SshPeer => "an SSH peer",
            Self::OnLink => "a local network",
            Self::Own => "an own address",
            Self::Route => "a route that was there before",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// A network that the machine uses already.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TakenNet {
    /// The network.
    pub net: IpNet,
    /// What for.
    pub why: Why,
    /// By which link, where that is known.
    pub via: Option<String>,
}

/// What the machine uses already.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The networks.
    pub nets: Vec<TakenNet>,
    /// Whether the machine has IPv6 switched off.
    pub no_ipv6: bool,
}

/// An address or network inside a wanted one that is left to whoever has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Hole {
    /// The part of the wanted network.
    pub net: IpNet,
    /// Why it is left alone.
    pub why: Why,
    /// By which link it is reached, where that is known.
    pub via: Option<String>,
}

/// A wanted network and a route of the machine that share addresses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Overlap {
    /// The network that is wanted.
    pub ours: IpNet,
    /// The route that was there before.
    pub theirs: IpNet,
    /// Its link, where that is known.
    pub via: Option<String>,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} overlaps the route {}", self.ours, self.theirs)?;
        match &self.via {
            Some(via) => write!(f, " dev {via}"),
            None => Ok(()),
        }
    }
}

/// What leads into the link, and what does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The routes: the fewest that do it, disjoint, in order.
    pub routes: Vec<IpNet>,
    /// What was left out of the wanted networks, in order.
    pub holes: Vec<Hole>,
    /// The routes that stood in the way, in order.
    pub overlaps: Vec<Overlap>,
    /// Wanted networks of which nothing was left.
    pub covered: Vec<IpNet>,
    /// Wanted networks that are too wide to be taken.
    pub too_wide: Vec<IpNet>,
    /// Wanted networks of IPv6, where the machine has none.
    pub without_ipv6: Vec<IpNet>,
}

/// Plans the routes for `wanted` beside what is `taken`, without what the user excludes.
#[must_use]
pub fn plan(wanted: &[IpNet], taken: &Taken, exclude: &[IpNet]) -> Plan {
    let mut plan = Plan::default();
    let mut kept = Vec::new();
    for net in distinct(wanted) {
        if net.prefix() < WIDEST {
            plan.too_wide.push(net);
        } else if taken.no_ipv6 && matches!(net, IpNet::V6(_)) {
            plan.without_ipv6.push(net);
        } else {
            kept.push(net);
        }
    }
    let excluded = AddressSet::of(exclude);
    let wished = AddressSet::of(&kept).without(&excluded);
    let guarded: Vec<_> = taken.nets.iter().cloned().chain(special()).collect();
    let in_the_way: Vec<_> = guarded
        .iter()
        .filter(|one| wished.meets(&one.net))
        .collect();
    let used = AddressSet::of(in_the_way.iter().map(|one| &one.net));
    plan.routes = wished.without(&used).nets();
    for net in &kept {
        let mine = AddressSet::of([net]).without(&excluded);
        if !mine.is_empty() && mine.without(&used).is_empty() {
            plan.covered.push(*net);
        }
        let met = in_the_way.iter().filter(|one| mine.meets(&one.net));
        for one in met {
            plan.holes.push(hole(net, one));
            if matches!(one.why, Why::Route | Why::OnLink) {
                plan.overlaps.push(overlap(net, one));
            }
        }
        let left_out = exclude.iter().filter(|one| one.overlaps(net));
        plan.holes.extend(left_out.map(|one| Hole {
            net: narrower(net, one),
            why: Why::Excluded,
            via: None,
        }));
    }
    plan.holes.sort();
    plan.holes.dedup();
    plan.overlaps.sort();
    plan.overlaps.dedup();
    plan
}

/// Finds the first route that takes what is not ours to take.
pub fn check(routes: &[IpNet], taken: &Taken) -> Result<(), RoutesError> {
    for route in routes {
        check_scope(route)?;
        if let Some(one) = taken.nets.iter().find(|one| one.net.overlaps(route)) {
            return Err(RoutesError::Guarded {
                route: *route,
                theirs: one.clone(),
            });
        }
    }
    Ok(())
}

/// Refuses what no session may route on any machine.
pub(crate) fn check_scope(route: &IpNet) -> Result<(), RoutesError> {
    if route.prefix() < WIDEST {
        return Err(RoutesError::TooWide(*route));
    }
    match special().find(|one| one.net.overlaps(route)) {
        Some(theirs) => Err(RoutesError::Guarded {
            route: *route,
            theirs,
        }),
        None => Ok(()),
    }
}

/// Tells whether an address may be routed at all beside what is taken.
#[must_use]
pub fn is_free(address: std::net::IpAddr, taken: &Taken) -> bool {
    if address.is_ipv6() && taken.no_ipv6 {
        return false;
    }
    let mut guarded = taken.nets.iter().cloned().chain(special());
    !guarded.any(|one| one.net.contains(address))
}

fn special() -> impl Iterator<Item = TakenNet> {
    let four = NEVER_V4.iter().filter_map(|(address, prefix)| {
        let net = Ipv4Net::new(address.parse().ok()?, *prefix).ok()?;
        Some(IpNet::V4(net))
    });
    let six = NEVER_V6.iter().filter_map(|(address, prefix)| {
        let net = Ipv6Net::new(address.parse().ok()?, *prefix).ok()?;
        Some(IpNet::V6(net))
    });
    four.chain(six).map(|net| TakenNet {
        net,
        why: Why::Special,
        via: None,
    })
}

fn distinct(nets: &[IpNet]) -> Vec<IpNet> {
    let set: std::collections::BTreeSet<_> = nets.iter().copied().collect();
    set.into_iter().collect()
}

fn hole(ours: &IpNet, theirs: &TakenNet) -> Hole {
    Hole {
        net: narrower(ours, &theirs.net),
        why: theirs.why,
        via: theirs.via.clone(),
    }
}

fn overlap(ours: &IpNet, theirs: &TakenNet) -> Overlap {
    Overlap {
        ours: *ours,
        theirs: theirs.net,
        via: theirs.via.clone(),
    }
}

/// Of two networks that overlap, one lies in the other.
fn narrower(one: &IpNet, two: &IpNet) -> IpNet {
    if one.prefix() >= two.prefix() {
        *one
    } else {
        *two
    }
}

#[cfg(test)]
mod tests;
