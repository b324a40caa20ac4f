//! What the kernel says about routes and rules, and the routes of ours.
//!
//! Thin: one function, one question or order. What is to be set is `routes.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use futures::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope,
};
use rtnetlink::packet_route::rule::{RuleAttribute, RuleFlags, RuleMessage};
use rtnetlink::{Handle, IpVersion, RouteMessageBuilder};
use tokio::task::JoinHandle;

use super::RoutesError;
use crate::inspect::Rule;
use crate::net::{IpNet, Ipv4Net, Ipv6Net};

/// The protocol number our routes carry (`ip route show proto 107`): nobody's in iproute2's list.
pub(crate) const PROTOCOL: u8 = 107;

/// The kernel's numbers for: no such process (route), no such device, no such family of addresses.
const NO_ROUTE: i32 = 3;
const NO_DEVICE: i32 = 19;
const NO_FAMILY: i32 = 97;

/// A netlink socket and the task that serves it.
pub(crate) struct Netlink {
    handle: Handle,
    task: JoinHandle<()>,
}

impl Netlink {
    pub(crate) fn open() -> Result<Self, RoutesError> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(RoutesError::Open)?;
        Ok(Self {
            handle,
            task: tokio::spawn(connection),
        })
    }

    /// Reads the routes of both families and every table.
    pub(super) async fn routes(&self) -> Result<Vec<RouteMessage>, RoutesError> {
        let mut all = Vec::new();
        for every in [
            RouteMessageBuilder::<Ipv4Addr>::new().build(),
            RouteMessageBuilder::<Ipv6Addr>::new().build(),
        ] {
            let found = self.handle.route().get(every).execute();
            all.extend(
                found
                    .try_collect::<Vec<_>>()
                    .await
                    .map_err(read("routes"))?,
            );
        }
        Ok(all)
    }

    /// Reads the tables that a rule sends packets to.
    pub(super) async fn tables(&self) -> Result<BTreeSet<u32>, RoutesError> {
        let mut tables = BTreeSet::new();
        for version in [IpVersion::V4, IpVersion::V6] {
            let found = self.handle.rule().get(version).execute();
            let rules: Vec<RuleMessage> = match found.try_collect().await {
                // Of a family that the kernel was started without.
                Err(error) if code(&error) == Some(NO_FAMILY) => Vec::new(),
                found => found.map_err(read("rules"))?,
            };
            tables.extend(rules.iter().map(table_of_rule));
        }
        Ok(tables)
    }

    /// Reads the rules before the one for the main table, with the networks of their tables.
    pub(crate) async fn rules_before_main(&self) -> Result<Vec<Rule>, RoutesError> {
        let routes = self.routes().await?;
        let mut all = Vec::new();
        for version in [IpVersion::V4, IpVersion::V6] {
            let v6 = matches!(version, IpVersion::V6);
            let found = self.handle.rule().get(version).execute();
            let found: Vec<RuleMessage> = found.try_collect().await.map_err(read("rules"))?;
            let main = found.iter().filter(|rule| table_of_rule(rule) == MAIN);
            let main = main.map(priority).min().unwrap_or(u32::MAX);
            let before = found.iter().filter(|rule| priority(rule) < main);
            let before = before.filter(|rule| ![LOCAL, 0].contains(&table_of_rule(rule)));
            all.extend(before.map(|rule| described(rule, v6, &routes)));
        }
        all.sort();
        Ok(all)
    }

    /// Reads the names of the links.
    pub(crate) async fn links(&self) -> Result<BTreeMap<u32, String>, RoutesError> {
        let found = self.handle.link().get().execute();
        let links: Vec<_> = found.try_collect().await.map_err(read("links"))?;
        let named = links.into_iter().filter_map(|link| {
            let index = link.header.index;
            link.attributes
                .into_iter()
                .find_map(|attribute| match attribute {
                    LinkAttribute::IfName(name) => Some((index, name)),
                    _ => None,
                })
        });
        Ok(named.collect())
    }

    /// Reads the routes of ours on a link.
    pub(crate) async fn ours(&self, link: u32) -> Result<BTreeSet<IpNet>, RoutesError> {
        let all = self.routes().await?;
        let ours = all
            .iter()
            .filter(|route| is_ours(route) && oif(route) == Some(link));
        Ok(ours.filter_map(destination).collect())
    }

    /// Tells whether a link of this name has this index.
    async fn is_link(&self, name: &str, index: u32) -> Result<bool, RoutesError> {
        let links = self.links().await?;
        Ok(links.get(&index).is_some_and(|found| found == name))
    }

    /// Asks the kernel by which link packets to an address leave.
    pub(crate) async fn link_to(&self, address: IpAddr) -> Result<Option<u32>, RoutesError> {
        let asked = match address {
            IpAddr::V4(four) => RouteMessageBuilder::<Ipv4Addr>::new()
                .destination_prefix(four, 32)
                .build(),
            IpAddr::V6(six) => RouteMessageBuilder::<Ipv6Addr>::new()
                .destination_prefix(six, 128)
                .build(),
        };
        match self.handle.route().get(asked).execute().try_next().await {
            Ok(found) => Ok(found.as_ref().and_then(oif)),
            // No way there is an answer, too.
            Err(rtnetlink::Error::NetlinkError(_)) => Ok(None),
            Err(error) => Err(read("a route")(error)),
        }
    }

    /// Adds a route of ours; one of somebody else in its place stays and is an error.
    pub(crate) async fn add(&self, net: IpNet, name: &str, link: u32) -> Result<(), RoutesError> {
        let added = self.handle.route().add(message(net, link)).execute().await;
        added.map_err(|source| RoutesError::Add {
            net,
            link: name.to_owned(),
            source: Box::new(source),
        })
    }

    /// Removes a route of ours; one that is gone already is fine.
    pub(crate) async fn remove(
        &self,
        net: IpNet,
        name: &str,
        link: u32,
    ) -> Result<(), RoutesError> {
        let removed = self.handle.route().del(message(net, link)).execute().await;
        match removed {
            Err(source) if !matches!(code(&source), Some(NO_ROUTE | NO_DEVICE)) => {
                Err(RoutesError::Remove {
                    net,
                    link: name.to_owned(),
                    source: Box::new(source),
                })
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl Drop for Netlink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Removes every route of ours from a link that outlived its session; returns their number.
pub(crate) async fn remove_leftover(name: &str, index: u32) -> Result<usize, RoutesError> {
    let netlink = Netlink::open()?;
    if !netlink.is_link(name, index).await? {
        return Ok(0);
    }
    let left = netlink.ours(index).await?;
    for net in &left {
        netlink.remove(*net, name, index).await?;
    }
    Ok(left.len())
}

/// A route of ours, as it is added and as it is told apart when it is removed.
fn message(net: IpNet, link: u32) -> RouteMessage {
    match net {
        IpNet::V4(net) => RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(net.address(), net.prefix())
            .output_interface(link)
            .scope(RouteScope::Link)
            .protocol(RouteProtocol::Other(PROTOCOL))
            .build(),
        IpNet::V6(net) => RouteMessageBuilder::<Ipv6Addr>::new()
            .destination_prefix(net.address(), net.prefix())
            .output_interface(link)
            .protocol(RouteProtocol::Other(PROTOCOL))
            .build(),
    }
}

/// Tells whether a route carries our protocol number.
pub(crate) fn is_ours(route: &RouteMessage) -> bool {
    route.header.protocol == RouteProtocol::Other(PROTOCOL)
}

/// Returns the index of the link a route leads to.
pub(crate) fn oif(route: &RouteMessage) -> Option<u32> {
    route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Oif(index) => Some(*index),
            _ => None,
        })
}

/// Returns the table of a route; big numbers do not fit into the header.
pub(crate) fn table(route: &RouteMessage) -> u32 {
    let of_attribute = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Table(table) => Some(*table),
            _ => None,
        });
    of_attribute.unwrap_or_else(|| route.header.table.into())
}

fn priority(rule: &RuleMessage) -> u32 {
    let named = rule
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RuleAttribute::Priority(priority) => Some(*priority),
            _ => None,
        });
    named.unwrap_or_default()
}

/// Puts a rule into words, with what its table has for its family.
fn described(rule: &RuleMessage, v6: bool, routes: &[RouteMessage]) -> Rule {
    let mut words = Vec::new();
    for attribute in &rule.attributes {
        match attribute {
            RuleAttribute::Source(address) => {
                words.push(format!("from {address}/{}", rule.header.src_len));
            }
            RuleAttribute::Destination(address) => {
                words.push(format!("to {address}/{}", rule.header.dst_len));
            }
            RuleAttribute::Iifname(name) => words.push(format!("iif {name}")),
            RuleAttribute::Oifname(name) => words.push(format!("oif {name}")),
            RuleAttribute::FwMark(mark) => words.push(format!("fwmark {mark:#x}")),
            RuleAttribute::UidRange(_) => words.push("of some users".to_owned()),
            _ => {}
        }
    }
    if rule.header.flags.contains(RuleFlags::Invert) {
        words.insert(0, "not".to_owned());
    }
    let number = table_of_rule(rule);
    let family = if v6 {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    };
    let of_table = routes
        .iter()
        .filter(|route| table(route) == number && route.header.address_family == family);
    let (some, default): (Vec<_>, Vec<_>) =
        of_table.partition(|route| route.header.destination_prefix_length > 0);
    Rule {
        priority: priority(rule),
        v6,
        table: number,
        selector: words.join(" "),
        networks: some.into_iter().filter_map(destination).collect(),
        has_default: !default.is_empty(),
    }
}

fn table_of_rule(rule: &RuleMessage) -> u32 {
    let of_attribute = rule
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RuleAttribute::Table(table) => Some(*table),
            _ => None,
        });
    of_attribute.unwrap_or_else(|| rule.header.table.into())
}

/// Returns the network of a route; a default route has no attribute for it.
pub(super) fn destination(route: &RouteMessage) -> Option<IpNet> {
    let prefix = route.header.destination_prefix_length;
    let address = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::Destination(address) => Some(address),
            _ => None,
        })?;
    match address {
        RouteAddress::Inet(four) => Ipv4Net::new(*four, prefix).ok().map(IpNet::V4),
        RouteAddress::Inet6(six) => Ipv6Net::new(*six, prefix).ok().map(IpNet::V6),
        _ => None,
    }
}

/// The table of the machine's own addresses, which comes before all.
const LOCAL: u32 = 255;

/// The table of the machine's own routes.
pub(super) const MAIN: u32 = RouteHeader::RT_TABLE_MAIN as u32;

fn code(error: &rtnetlink::Error) -> Option<i32> {
    match error {
        rtnetlink::Error::NetlinkError(message) => Some(-message.raw_code()),
        _ => None,
    }
}

fn read(what: &'static str) -> impl FnOnce(rtnetlink::Error) -> RoutesError {
    move |source| RoutesError::Read {
        what,
        source: Box::new(source),
    }
}
