//! What the kernel says about links, addresses and routes, and the few settings of ours.
//!
//! Thin: one function, one question or order. What to do is `link.rs`.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use futures::TryStreamExt;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};
use tokio::task::JoinHandle;

use super::LinkError;
use crate::net::{IpNet, Ipv4Net};

/// Wider routes are default routes in disguise (full-tunnel VPNs split 0.0.0.0/0 in two or more):
/// they say nothing about who uses an address.
const WIDEST_USED_ROUTE: u8 = 8;

/// The kernel's number for "no such device".
const NO_DEVICE: i32 = 19;

/// A netlink socket and the task that serves it.
pub(super) struct Netlink {
    handle: Handle,
    task: JoinHandle<()>,
}

impl Netlink {
    pub(super) fn open() -> Result<Self, LinkError> {
        let (connection, handle, _) = rtnetlink::new_connection().map_err(LinkError::Open)?;
        Ok(Self {
            handle,
            task: tokio::spawn(connection),
        })
    }

    pub(super) async fn link_names(&self) -> Result<BTreeSet<String>, LinkError> {
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

    /// Tells whether the link is up; `None` if there is no such link.
    pub(super) async fn is_up(&self, index: u32) -> Result<Option<bool>, LinkError> {
        let found: Result<Vec<LinkMessage>, _> = self
            .handle
            .link()
            .get()
            .match_index(index)
            .execute()
            .try_collect()
            .await;
        match found {
            Ok(links) => Ok(links
                .first()
                .map(|link| link.header.flags.contains(LinkFlags::Up))),
            Err(error) if is_no_device(&error) => Ok(None),
            Err(error) => Err(read("the link")(error)),
        }
    }

    /// Brings a link up.
    pub(super) async fn set_up(&self, name: &str, index: u32) -> Result<(), LinkError> {
        let up = LinkUnspec::new_with_index(index).up().build();
        let set = self.handle.link().set(up).execute().await;
        set.map_err(|source| LinkError::Up {
            name: name.to_owned(),
            source: Box::new(source),
        })
    }

    /// Removes the link of that index if it still has that name; tells whether it did.
    pub(super) async fn remove(&self, name: &str, index: u32) -> Result<bool, LinkError> {
        let failed = |source| LinkError::Remove {
            name: name.to_owned(),
            source: Box::new(source),
        };
        let one = self.handle.link().get().match_index(index).execute();
        let found: Result<Vec<LinkMessage>, _> = one.try_collect().await;
        let links = match found {
            Ok(links) => links,
            Err(error) if is_no_device(&error) => return Ok(false),
            Err(error) => return Err(read("the link")(error)),
        };
        let is_it = |attribute: &LinkAttribute| matches!(attribute, LinkAttribute::IfName(is) if is == name);
        if !links.iter().any(|link| link.attributes.iter().any(is_it)) {
            return Ok(false);
        }
        match self.handle.link().del(index).execute().await {
            Ok(()) => Ok(true),
            Err(error) if is_no_device(&error) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Reads the addresses of a link.
    pub(super) async fn addresses(&self, index: u32) -> Result<BTreeSet<IpAddr>, LinkError> {
        let filtered = self.handle.address().get().set_link_index_filter(index);
        let found: Result<Vec<AddressMessage>, _> = filtered.execute().try_collect().await;
        let of_link = |message: &AddressMessage| message.header.index == index;
        Ok(found
            .map_err(read("the link's addresses"))?
            .iter()
            .filter(|message| of_link(message))
            .filter_map(address)
            .collect())
    }

    /// Gives an address to a link.
    pub(super) async fn add_address(
        &self,
        name: &str,
        index: u32,
        address: IpAddr,
        prefix: u8,
    ) -> Result<(), LinkError> {
        let add = self.handle.address().add(index, address, prefix);
        add.execute().await.map_err(|source| LinkError::Address {
            name: name.to_owned(),
            address,
            source: Box::new(source),
        })
    }

    /// Reads the IPv4 networks that routes (of every table) and addresses speak of.
    pub(super) async fn used(&self) -> Result<Vec<IpNet>, LinkError> {
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

fn address_net(message: &AddressMessage) -> Option<Ipv4Net> {
    match address(message)? {
        IpAddr::V4(address) => Ipv4Net::new(address, message.header.prefix_len).ok(),
        IpAddr::V6(_) => None,
    }
}

/// On a point-to-point link `Local` is ours and `Address` the peer's; elsewhere they are equal.
fn address(message: &AddressMessage) -> Option<IpAddr> {
    message
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        })
}

fn is_no_device(error: &rtnetlink::Error) -> bool {
    matches!(error, rtnetlink::Error::NetlinkError(message) if message.raw_code() == -NO_DEVICE)
}
