//! The session's link: a TUN device with a /30 that nothing else on this machine uses.
//!
//! Choosing is pure; reading routes and addresses and setting ours is `link/netlink.rs`. Both
//! addresses of the /30 are the link's: the first is the laptop's, DNS is answered on the second.
//! A client of that resolver is seen coming from the first, through the loopback path.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use crate::fault::Faults;
use crate::host::{Link, LinkSpec};
use crate::net::{IpNet, Ipv4Net};
use crate::tun::Tun;
pub use error::LinkError;
use netlink::Netlink;

mod error;
mod netlink;

/// Where a link's /30 is taken from unless the user says otherwise: the upper end of the
/// benchmarking range, which nobody routes and cluster networks do not use.
pub const DEFAULT_RANGE: Ipv4Net = Ipv4Net::known(Ipv4Addr::new(198, 19, 248, 0), 21);

/// Where a link's network may lie: in blocks that nobody has on the internet.
const ALLOWED: [Ipv4Net; 5] = [
    Ipv4Net::known(Ipv4Addr::new(10, 0, 0, 0), 8),
    Ipv4Net::known(Ipv4Addr::new(100, 64, 0, 0), 10),
    Ipv4Net::known(Ipv4Addr::new(172, 16, 0, 0), 12),
    Ipv4Net::known(Ipv4Addr::new(192, 168, 0, 0), 16),
    Ipv4Net::known(Ipv4Addr::new(198, 18, 0, 0), 15),
];

/// The smallest MTU, which IPv6 needs, and the biggest: an IP packet is no longer.
const MTUS: std::ops::RangeInclusive<u16> = 1280..=u16::MAX;

/// The most networks to be avoided: a cluster has a handful, a mesh of them a few hundred.
const MAX_AVOIDED: usize = 4096;

/// The size of a link's network: two usable addresses.
const LINK_PREFIX: u8 = 30;

/// How many interface names are tried: more sessions than any machine has.
const MAX_NAMES: u32 = 64;

/// The port of DNS.
const DNS_PORT: u16 = 53;

/// The link that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkPlan {
    /// Its name.
    pub name: String,
    /// Its network.
    pub net: Ipv4Net,
    /// Its MTU.
    pub mtu: u16,
}

/// Chooses the first /30 of `range` that overlaps nothing in `used`.
pub fn choose_net(range: Ipv4Net, used: &[IpNet]) -> Option<Ipv4Net> {
    range
        .subnets(LINK_PREFIX)
        .find(|net| !used.iter().any(|used| used.overlaps(&IpNet::V4(*net))))
}

/// Chooses the first free name of `kb0`, `kb1` and so on.
pub fn choose_name(taken: &BTreeSet<String>) -> Option<String> {
    (0..MAX_NAMES)
        .map(|number| format!("kb{number}"))
        .find(|name| !taken.contains(name))
}

/// Plans a link from what the machine uses now.
pub async fn plan(spec: &LinkSpec, faults: &Faults) -> Result<LinkPlan, LinkError> {
    let range = checked(spec)?;
    faults.step("read routes")?;
    let netlink = Netlink::open()?;
    let name = choose_name(&netlink.link_names().await?).ok_or(LinkError::NoFreeName)?;
    let mut used = netlink.used().await?;
    used.extend(&spec.avoid);
    let net = choose_net(range, &used).ok_or(LinkError::NoFreeNet(range))?;
    Ok(LinkPlan {
        name,
        net,
        mtu: spec.mtu,
    })
}

/// Returns the range of a wish, if the wish is one that may be had at all.
fn checked(spec: &LinkSpec) -> Result<Ipv4Net, LinkError> {
    let LinkSpec { cidr, avoid, mtu } = spec;
    let range = cidr.unwrap_or(DEFAULT_RANGE);
    let is_in =
        |block: &Ipv4Net| block.prefix() <= range.prefix() && block.contains(range.address());
    if range.prefix() > LINK_PREFIX {
        Err(LinkError::RangeTooSmall(range))
    } else if !ALLOWED.iter().any(is_in) {
        Err(LinkError::RangeNotOurs(range))
    } else if !MTUS.contains(mtu) {
        Err(LinkError::Mtu(*mtu))
    } else if avoid.len() > MAX_AVOIDED {
        Err(LinkError::Avoided(avoid.len()))
    } else {
        Ok(range)
    }
}

/// Makes a planned link: device, addresses, sockets.
pub async fn create(plan: LinkPlan, faults: &Faults) -> Result<Link, LinkError> {
    let (tun, index) = create_device(&plan, faults).await?;
    let (address, resolver) = plan.addresses();
    faults.step("bind sockets")?;
    let (udp, tcp) = bind(SocketAddr::from((resolver, DNS_PORT)))?;
    Ok(Link {
        name: plan.name,
        index,
        address,
        resolver,
        prefix: plan.net.prefix(),
        tun,
        udp,
        tcp,
    })
}

/// Makes a planned device with its addresses; sockets bound to these before work again.
pub async fn create_device(plan: &LinkPlan, faults: &Faults) -> Result<(Tun, u32), LinkError> {
    let LinkPlan { name, net, mtu } = plan;
    faults.step("create the device")?;
    let tun = Tun::create(name, *mtu).map_err(|source| LinkError::Device {
        name: name.clone(),
        source,
    })?;
    let index = tun.index().ok_or_else(|| LinkError::Index(name.clone()))?;
    let netlink = Netlink::open()?;
    let (first, second) = plan.addresses();
    for address in [first, second] {
        faults.step("add an address")?;
        netlink
            .add_address(name, index, address, net.prefix())
            .await?;
    }
    Ok((tun, index))
}

/// How a link was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Condition {
    /// Whole, after these repairs, one readable phrase each.
    Whole(Vec<String>),
    /// Somebody removed it.
    Gone,
}

/// Brings a link that still exists back up, and its addresses back.
pub async fn mend(plan: &LinkPlan, index: u32) -> Result<Condition, LinkError> {
    let netlink = Netlink::open()?;
    let Some(up) = netlink.is_up(index).await? else {
        return Ok(Condition::Gone);
    };
    let mut repairs = Vec::new();
    if !up {
        netlink.set_up(&plan.name, index).await?;
        repairs.push(format!("link {} brought up", plan.name));
    }
    let there = netlink.addresses(index).await?;
    let (first, second) = plan.addresses();
    for address in [first, second] {
        if !there.contains(&address) {
            netlink
                .add_address(&plan.name, index, address, plan.net.prefix())
                .await?;
            repairs.push(format!("{address} put back on {}", plan.name));
        }
    }
    Ok(Condition::Whole(repairs))
}

/// Removes a link, whoever still holds its device; tells whether it was there.
pub async fn remove(plan: &LinkPlan, index: u32, faults: &Faults) -> Result<bool, LinkError> {
    faults.step_without_space("remove the link")?;
    Netlink::open()?.remove(&plan.name, index).await
}

impl LinkPlan {
    /// Returns the laptop's address and the resolver's.
    pub fn addresses(&self) -> (Ipv4Addr, Ipv4Addr) {
        let net = self.net.address().to_bits();
        (Ipv4Addr::from_bits(net + 1), Ipv4Addr::from_bits(net + 2))
    }
}

fn bind(address: SocketAddr) -> Result<(UdpSocket, TcpListener), LinkError> {
    let failed = |protocol| {
        move |source| LinkError::Bind {
            address,
            protocol,
            source,
        }
    };
    let udp = UdpSocket::bind(address).map_err(failed("udp"))?;
    udp.set_nonblocking(true).map_err(failed("udp"))?;
    let tcp = TcpListener::bind(address).map_err(failed("tcp"))?;
    tcp.set_nonblocking(true).map_err(failed("tcp"))?;
    Ok((udp, tcp))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn chosen(range: &str, used: &[&str]) -> Option<String> {
        let used: Vec<_> = used.iter().map(|text| net(text)).collect();
        choose_net(range.parse().unwrap(), &used).map(|net| net.to_string())
    }

    #[test]
    fn the_first_free_net_of_the_range_is_chosen() {
        for (range, used, expected) in [
            ("198.19.248.0/21", vec![], Some("198.19.248.0/30")),
            (
                "198.19.248.0/21",
                vec!["198.19.248.0/30"],
                Some("198.19.248.4/30"),
            ),
            (
                "198.19.248.0/21",
                vec!["198.19.248.5/32", "198.19.248.0/31"],
                Some("198.19.248.8/30"),
            ),
            (
                "198.19.248.0/21",
                vec!["198.19.248.0/24", "fd00::/8", "10.0.0.0/8"],
                Some("198.19.249.0/30"),
            ),
            ("198.19.248.0/21", vec!["198.18.0.0/15"], None),
            ("10.9.9.0/30", vec![], Some("10.9.9.0/30")),
            ("10.9.9.0/30", vec!["10.9.9.3/32"], None),
        ] {
            assert_eq!(
                chosen(range, &used).as_deref(),
                expected,
                "{range} {used:?}"
            );
        }
    }

    #[test]
    fn the_first_free_name_is_chosen() {
        let taken = ["lo", "kb0", "kb1", "kb3"].map(str::to_owned).into();
        assert_eq!(choose_name(&taken).as_deref(), Some("kb2"));
        let all = (0..MAX_NAMES).map(|number| format!("kb{number}")).collect();
        assert_eq!(choose_name(&all), None);
    }

    fn wish(cidr: &str) -> LinkSpec {
        LinkSpec {
            cidr: Some(cidr.parse().unwrap()),
            avoid: Vec::new(),
            mtu: 1500,
        }
    }

    #[tokio::test]
    async fn a_range_smaller_than_a_link_is_refused() {
        assert!(matches!(
            plan(&wish("10.0.0.0/31"), &Faults::default()).await,
            Err(LinkError::RangeTooSmall(_))
        ));
    }

    #[test]
    fn a_link_lies_in_a_private_network_or_nowhere() {
        for cidr in [
            "10.0.0.0/8",
            "10.9.9.0/30",
            "172.16.0.0/12",
            "198.19.248.0/21",
        ] {
            assert!(checked(&wish(cidr)).is_ok(), "{cidr}");
        }
        for cidr in [
            "0.0.0.0/0",
            "8.8.8.0/24",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "10.0.0.0/7",
            "172.0.0.0/8",
            "224.0.0.0/4",
        ] {
            let refused = checked(&wish(cidr));
            assert!(matches!(refused, Err(LinkError::RangeNotOurs(_))), "{cidr}");
        }
    }

    #[test]
    fn a_wish_for_an_impossible_mtu_or_without_bounds_is_refused() {
        let mtu = |mtu| {
            checked(&LinkSpec {
                mtu,
                ..wish("10.0.0.0/8")
            })
        };
        assert!(matches!(mtu(0), Err(LinkError::Mtu(0))));
        assert!(matches!(mtu(1279), Err(LinkError::Mtu(1279))));
        assert!(mtu(1280).is_ok());
        let avoid = vec![net("10.96.0.0/12"); MAX_AVOIDED + 1];
        let refused = checked(&LinkSpec {
            avoid,
            ..wish("10.0.0.0/8")
        });
        assert!(matches!(refused, Err(LinkError::Avoided(4097))));
    }
}
