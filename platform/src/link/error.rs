//! What can go wrong with a link.

use std::io;
use std::net::IpAddr;

use super::{LINK_PREFIX, MAX_AVOIDED, MAX_NAMES};
use crate::net::Ipv4Net;

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
    /// The range to take the link's network from belongs to others.
    #[error("{0} is refused for a link: not in a private network")]
    RangeNotOurs(Ipv4Net),
    /// No link can have that MTU.
    #[error("an MTU of {0} is refused (at least 1280)")]
    Mtu(u16),
    /// More networks to avoid than anybody has.
    #[error("{0} networks to avoid are too many (at most {MAX_AVOIDED})")]
    Avoided(usize),
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
        address: IpAddr,
        /// What the kernel said.
        #[source]
        source: Box<rtnetlink::Error>,
    },
    /// The link could not be brought up.
    #[error("bringing {name} up")]
    Up {
        /// The link.
        name: String,
        /// What the kernel said.
        #[source]
        source: Box<rtnetlink::Error>,
    },
    /// The link could not be removed.
    #[error("removing {name}")]
    Remove {
        /// The link.
        name: String,
        /// What the kernel said.
        #[source]
        source: Box<rtnetlink::Error>,
    },
    /// A test made this step fail.
    #[error("making a link")]
    Fault(#[from] io::Error),
}
