//! What can go wrong with routes.

use std::io;

use super::{TakenNet, WIDEST};
use crate::net::IpNet;

/// Why routes could not be read or set.
#[derive(Debug, thiserror::Error)]
pub enum RoutesError {
    /// Netlink could not be reached.
    #[error("opening a netlink socket")]
    Open(#[source] io::Error),
    /// What the machine uses could not be read.
    #[error("reading {what} by netlink")]
    Read {
        /// What was being read.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: Box<rtnetlink::Error>,
    },
    /// A route takes what is not the session's to take.
    #[error("the route {route} is refused: {} is {}{}", theirs.net, theirs.why, via(theirs))]
    Guarded {
        /// The route.
        route: IpNet,
        /// What it would have taken.
        theirs: TakenNet,
    },
    /// A route takes a good part of the Internet.
    #[error("the route {0} is refused: wider than /{WIDEST}")]
    TooWide(IpNet),
    /// A route could not be added.
    #[error("adding the route {net} to {link}")]
    Add {
        /// The route.
        net: IpNet,
        /// The link.
        link: String,
        /// What the kernel said.
        #[source]
        source: Box<rtnetlink::Error>,
    },
    /// A route could not be removed.
    #[error("removing the route {net} from {link}")]
    Remove {
        /// The route.
        net: IpNet,
        /// The link.
        link: String,
        /// What the kernel said.
        #[source]
        source: Box<rtnetlink::Error>,
    },
    /// A test made this step fail.
    #[error("setting routes")]
    Fault(#[from] io::Error),
}

fn via(theirs: &TakenNet) -> String {
    let via = theirs.via.as_ref();
    via.map(|via| format!(" (dev {via})")).unwrap_or_default()
}
