//! The session's link: a TUN device with a /30 that nothing else on this machine uses.
//!
//! Choosing is pure; reading routes and addresses and setting ours goes through netlink. Both
//! addresses of the /30 are the link's: the first is the laptop's, DNS is answered on the second.
//! A client of that resolver is seen coming from the first, through the loopback path.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use futures::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use rtnetlink::{Handle, RouteMessageBuilder};
use tokio::task::JoinHandle;

use crate::host::{Link, LinkSpec};
use crate::net::{IpNet, Ipv4Net};
use crate::tun::Tun;

/// Where a link's /30 is taken from unless the user says otherwise: the upper end of the
/// benchmarking range, which nobody routes and cluster networks do not use.
pub const DEFAULT_RANGE: Ipv4Net = Ipv4Net::known(Ipv4Addr::new(198, 19, 248, 0), 21);

/// The size of a link's network: two usable addresses.
const LINK_PREFIX: u8 = 30;

/// Wider routes are default routes in disguise (full-tunnel VPNs split 0.0.0.0/0 in two or more):
/// they say nothing about who uses an address.
const WIDEST_USED_ROUTE: u8 = 8;

/// How many interface names are tried: more sessions than any machine has.
const MAX_NAMES: u32 = 64;

/// The port of DNS.
const DNS_PORT: u16 = 53;

/// Why a link could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Netlink could not be reached.
    #[error("opening a netlink socket")]
    Open(#[source] io::Error),
    /// The machine's links, addresses or routes could not be read.
    #[error("reading {what} by netlink")]
    Read {
        /// What was being read.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<rtnetlink::Error>,
    },
    /// The range given is smaller than a link.
    #[error("{0} is too small for a link (at least /{LINK_PREFIX})")]
    RangeTooSmall(Ipv4Net),
    /// Every /30 of the range is used by something.
    #[error("no free /{LINK_PREFIX} in {0}: routes, addresses or cluster networks cover it")]
    NoFreeNet(Ipv4Net),
    /// Every interface name is taken.
    #[error("every interface name from kb0 to kb{} is taken", MAX_NAMES - 1)]
    NoFreeName,
    /// The device could not be created.
    #[error("creating the TUN device {name}")]
    Device {
        /// Its name.
        name: String,
        /// What the system said.
        #[source]
        source: tun::Error,
    },
    /// The device has no index.
    #[error("reading the index of {0}")]
    Index(String),
    /// An address could not be given to the link.
    #[error("adding {address} to {name}")]
    Address {
        /// The link.
        name: String,
        /// The address.
        address: Ipv4Addr,
        /// What the kernel said.
        #[source]
        source: Box<rtnetlink::Error>,
    },
    /// A DNS socket could not be bound.
    #[error("listening on {address}/{protocol}")]
    Bind {
        /// Where.
        address: SocketAddr,
        /// `udp` or `tcp`.
        protocol: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

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
pub async fn plan(spec: &LinkSpec) -> Result<LinkPlan, LinkError> {
    let range = spec.cidr.unwrap_or(DEFAULT_RANGE);
    if range.prefix() > LINK_PREFIX {
        return Err(LinkError::RangeTooSmall(range));
    }
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

/// Makes a planned link: device, addresses, sockets.
pub async fn create(plan: LinkPlan) -> Result<Link, LinkError> {
    let LinkPlan { name, net, mtu } = plan;
    let device = |source| LinkError::Device {
        name: name.clone(),
        source,
    };
    let tun = Tun::create(&name, mtu).map_err(device)?;
    let index = tun.index().ok_or_else(|| LinkError::Index(name.clone()))?;
    let address = Ipv4Addr::from_bits(net.address().to_bits() + 1);
    let resolver = Ipv4Addr::from_bits(net.address().to_bits() + 2);
    let netlink = Netlink::open()?;
    for address in [address, resolver] {
        let added = netlink
            .handle
            .address()
            .add(index, IpAddr::V4(address), net.prefix())
            .execute()
            .await;
        let failed = |source| LinkError::Address {
            name: name.clone(),
            address,
            source: Box::new(source),
        };
        added.map_err(failed)?;
    }
    let (udp, tcp) = bind(SocketAddr::from((resolver, DNS_PORT)))?;
    Ok(Link {
        name,
        index,
        address,
        resolver,
        prefix: net.prefix(),
        tun,
        udp,
        tcp,
    })
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

/// A netlink socket and the task that serves it.
struct Netlink {
    handle: Handle,
    task: JoinHandle<()>,
}

impl Netlink {
    fn open() -> Result<Self, LinkError> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(LinkError::Open)?;
        Ok(Self {
            handle,
            task: tokio::spawn(connection),
        })
    }

    async fn link_names(&self) -> Result<BTreeSet<String>, LinkError> {
        let links = self
            .handle
            .link()
            .get()
            .execute()
            .try_collect::<Vec<_>>()
            .await;
        let attributes = links
            .map_err(read("links"))?
            .into_iter()
            .flat_map(|link| link.attributes);
        Ok(attributes
            .filter_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name),
                _ => None,
            })
            .collect())
    }

    /// Reads the IPv4 networks that routes (of every table) and addresses speak of.
    async fn used(&self) -> Result<Vec<IpNet>, LinkError> {
        let every = RouteMessageBuilder::<Ipv4Addr>::new().build();
        let routes = self
            .handle
            .route()
            .get(every)
            .execute()
            .try_collect::<Vec<_>>()
            .await;
        let addresses = self
            .handle
            .address()
            .get()
            .execute()
            .try_collect::<Vec<_>>()
            .await;
        let routes = routes.map_err(read("routes"))?;
        let addresses = addresses.map_err(read("addresses"))?;
        let nets = routes.iter().filter_map(route_net);
        Ok(nets
            .chain(addresses.iter().filter_map(address_net))
            .map(IpNet::V4)
            .collect())
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn read(what: &'static str) -> impl FnOnce(rtnetlink::Error) -> LinkError {
    move |source| LinkError::Read {
        what,
        source: Box::new(source),
    }
}

fn route_net(route: &RouteMessage) -> Option<Ipv4Net> {
    let prefix = route.header.destination_prefix_length;
    let destination = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(address)) => Some(*address),
            _ => None,
        })?;
    Ipv4Net::new(destination, prefix)
        .ok()
        .filter(|net| net.prefix() >= WIDEST_USED_ROUTE)
}

fn address_net(address: &AddressMessage) -> Option<Ipv4Net> {
    if address.header.family != AddressFamily::Inet {
        return None;
    }
    // On a point-to-point link `Local` is ours and `Address` the peer's: both are used.
    let found = address
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Address(IpAddr::V4(address)) => Some(*address),
            _ => None,
        })?;
    Ipv4Net::new(found, address.header.prefix_len).ok()
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

    #[tokio::test]
    async fn a_range_smaller_than_a_link_is_refused() {
        let spec = LinkSpec {
            cidr: Some("10.0.0.0/31".parse().unwrap()),
            avoid: Vec::new(),
            mtu: 1500,
        };
        assert!(matches!(
            plan(&spec).await,
            Err(LinkError::RangeTooSmall(_))
        ));
    }
}
