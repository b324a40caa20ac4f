//! The session's link: a TUN device with a /30 that nothing else on this machine uses.
//!
//! Choosing is pure; reading routes and addresses and setting ours is `link/netlink.rs`. The first
//! address of the /30 is the laptop's. The second is nobody's on this machine: packets for it leave
//! by the link, and whoever reads the device answers DNS there.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// The length of the link's IPv6 address as a network: it alone.
const LINK_PREFIX_V6: u8 = 128;

/// Where IPv6 addresses of links are taken from: a unique local /64, its 40 bits drawn once. The
/// rest is the link's IPv4 address, which nobody else on the machine has.
const LINK_V6: [u16; 4] = [0xfd6f, 0x9a31, 0x77c4, 0x6b62];

/// What is tried in the place of an MTU that a system refuses: what utun devices take, then what
/// every device takes.
const SMALLER_MTUS: [u16; 2] = [4064, 1500];

/// The link that is to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkPlan {
    /// Its name.
    pub name: String,
    /// Its network.
    pub net: Ipv4Net,
    /// Its MTU, if the system takes it.
    pub mtu: u16,
    /// Its IPv6 address, if it is to have one.
    pub address6: Option<Ipv6Addr>,
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
        address6: spec.v6.then(|| address_v6(net)),
    })
}

/// Returns the range of a wish, if the wish is one that may be had at all.
fn checked(spec: &LinkSpec) -> Result<Ipv4Net, LinkError> {
    let LinkSpec {
        cidr, avoid, mtu, ..
    } = spec;
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

/// Makes a planned link: device and addresses.
pub async fn create(plan: LinkPlan, faults: &Faults) -> Result<Link, LinkError> {
    let Device {
        tun,
        index,
        mtu,
        address6,
    } = create_device(&plan, faults).await?;
    let (address, resolver) = plan.addresses();
    Ok(Link {
        name: plan.name,
        index,
        address,
        address6,
        resolver,
        prefix: plan.net.prefix(),
        mtu,
        tun,
    })
}

/// A device with its addresses.
#[derive(Debug)]
pub struct Device {
    /// The device.
    pub tun: Tun,
    /// Its interface index.
    pub index: u32,
    /// The MTU that the system took.
    pub mtu: u16,
    /// The IPv6 address, if one was planned and the machine has IPv6.
    pub address6: Option<Ipv6Addr>,
}

/// Makes a planned device with its addresses.
pub async fn create_device(plan: &LinkPlan, faults: &Faults) -> Result<Device, LinkError> {
    let name = &plan.name;
    faults.step("create the device")?;
    let (tun, mtu) = open_device(name, plan.mtu)?;
    let index = tun.index().ok_or_else(|| LinkError::Index(name.clone()))?;
    let netlink = Netlink::open()?;
    faults.step("add an address")?;
    let (first, _) = plan.addresses();
    netlink
        .add_address(name, index, first.into(), plan.net.prefix())
        .await?;
    let address6 = match plan.address6 {
        Some(address) => add_v6(&netlink, name, index, address).await,
        None => None,
    };
    Ok(Device {
        tun,
        index,
        mtu,
        address6,
    })
}

/// Opens a device with this MTU, or the next smaller one that the system takes.
fn open_device(name: &str, mtu: u16) -> Result<(Tun, u16), LinkError> {
    let failed = |source| LinkError::Device {
        name: name.to_owned(),
        source,
    };
    let error = match Tun::create(name, mtu) {
        Ok(tun) => return Ok((tun, mtu)),
        Err(error) => error,
    };
    let smaller = SMALLER_MTUS.into_iter().filter(|smaller| *smaller < mtu);
    for smaller in smaller {
        if let Ok(tun) = Tun::create(name, smaller) {
            tracing::info!(mtu = smaller, %error, "smaller MTU taken");
            return Ok((tun, smaller));
        }
    }
    Err(failed(error))
}

/// Gives a link that was made without one the IPv6 address that goes with its network, where the
/// machine has IPv6: the cluster's came later.
pub async fn give_v6(plan: &mut LinkPlan, index: u32) -> Result<(), LinkError> {
    if plan.address6.is_none() {
        let netlink = Netlink::open()?;
        plan.address6 = add_v6(&netlink, &plan.name, index, address_v6(plan.net)).await;
    }
    Ok(())
}

/// Gives the link its IPv6 address. A machine without IPv6 goes on without.
async fn add_v6(netlink: &Netlink, name: &str, index: u32, address: Ipv6Addr) -> Option<Ipv6Addr> {
    let added = netlink
        .add_address(name, index, address.into(), LINK_PREFIX_V6)
        .await;
    match added {
        Ok(()) => Some(address),
        Err(error) => {
            tracing::info!(%error, "no IPv6 on the link");
            None
        }
    }
}

/// The IPv6 address that goes with a link's network.
fn address_v6(net: Ipv4Net) -> Ipv6Addr {
    let [a, b, c, d] = LINK_V6;
    let first = net.address().to_bits() + 1;
    let [one, two, three, four] = first.to_be_bytes();
    let low = [
        u16::from_be_bytes([one, two]),
        u16::from_be_bytes([three, four]),
    ];
    Ipv6Addr::new(a, b, c, d, 0, 0, low[0], low[1])
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
    for (address, prefix) in plan.own() {
        if there.contains(&address) {
            continue;
        }
        let added = netlink
            .add_address(&plan.name, index, address, prefix)
            .await;
        match added {
            Ok(()) => repairs.push(format!("{address} put back on {}", plan.name)),
            Err(error) if address.is_ipv4() => return Err(error),
            // Somebody turned IPv6 off; what goes over IPv4 goes on.
            Err(error) => tracing::debug!(%error, "no IPv6 on the link"),
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

    /// Returns the plan of the link as it was made.
    #[must_use]
    pub fn made(self, mtu: u16, address6: Option<Ipv6Addr>) -> Self {
        Self {
            mtu,
            address6,
            ..self
        }
    }

    /// Returns the addresses that are the link's, with their prefix lengths.
    fn own(&self) -> impl Iterator<Item = (IpAddr, u8)> {
        let first = (self.addresses().0.into(), self.net.prefix());
        let v6 = self
            .address6
            .map(|address| (address.into(), LINK_PREFIX_V6));
        [Some(first), v6].into_iter().flatten()
    }
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

    #[test]
    fn f8_each_link_has_an_ipv6_address_of_its_own() {
        let first = address_v6("198.19.248.0/30".parse().unwrap());
        let second = address_v6("198.19.248.4/30".parse().unwrap());

        assert_eq!(first.to_string(), "fd6f:9a31:77c4:6b62::c613:f801");
        assert_ne!(first, second);
    }

    fn wish(cidr: &str) -> LinkSpec {
        LinkSpec {
            cidr: Some(cidr.parse().unwrap()),
            avoid: Vec::new(),
            mtu: 1500,
            v6: false,
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
