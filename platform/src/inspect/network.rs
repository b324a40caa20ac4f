//! What the kernel does with packets: its rules, its links, and where an address leads.

use std::net::IpAddr;

use crate::net::IpNet;
use crate::routes::RoutesError;
use crate::routes::netlink::Netlink;

/// A policy rule: which table packets are looked up in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Its place: lower ones come first.
    pub priority: u32,
    /// Whether it is about IPv6.
    pub v6: bool,
    /// The table it looks in.
    pub table: u32,
    /// What it is about, for people; empty if about all packets.
    pub selector: String,
    /// What is in that table that may take addresses: its networks, default routes as `/0`.
    pub networks: Vec<IpNet>,
    /// Whether that table has a route for everything.
    pub has_default: bool,
}

/// Reads the rules that come before the one for the main table, with what is in their tables.
///
/// # Errors
///
/// The kernel does not tell.
pub async fn rules() -> Result<Vec<Rule>, RoutesError> {
    Netlink::open()?.rules_before_main().await
}

/// Reads the names of the links.
///
/// # Errors
///
/// The kernel does not tell.
pub async fn link_names() -> Result<Vec<String>, RoutesError> {
    let links = Netlink::open()?.links().await?;
    Ok(links.into_values().collect())
}

/// Asks the kernel by which link packets to an address leave; `None` if by none.
///
/// # Errors
///
/// The kernel does not tell.
pub async fn way_to(address: IpAddr) -> Result<Option<String>, RoutesError> {
    let netlink = Netlink::open()?;
    let Some(index) = netlink.link_to(address).await? else {
        return Ok(None);
    };
    Ok(netlink.links().await?.get(&index).cloned())
}
