//! The link of a session: where it lives and what can go wrong with it.

use crate::net::Ipv4Net;

/// Where a link's /30 is taken from unless the user says otherwise: the upper part of the
/// benchmarking range, which nobody routes and cluster networks do not use.
pub const DEFAULT_RANGE: &str = "198.19.248.0/21";

/// Why a link could not be made.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Every /30 of the range is used by something.
    #[error("no free /30 in {0}")]
    NoFreeNet(Ipv4Net),
}
