//! Looking a name up through systemd-resolved, as `getaddrinfo` with its nss module does.

use std::net::IpAddr;

use super::super::DnsError;
use super::super::bus::Bus;
use super::super::resolve1::is_named;
use crate::sys::Sys;

/// Which addresses are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
    /// Both.
    Any,
}

/// Why a lookup gave no address.
#[derive(Debug, thiserror::Error)]
pub enum LookupError {
    /// The name does not exist.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The name exists, but not with such an address.
    #[error("{0} has no such address")]
    NoData(String),
    /// No answer was had.
    #[error("resolving {name}")]
    Failed {
        /// The name.
        name: String,
        /// What the resolver said.
        #[source]
        source: DnsError,
    },
}

/// Resolves a name through the running systemd-resolved.
pub async fn lookup_through_resolved(
    sys: &Sys,
    name: &str,
    family: Family,
) -> Result<Vec<IpAddr>, LookupError> {
    let failed = |source| LookupError::Failed {
        name: name.to_owned(),
        source,
    };
    let bus = Bus::connect_for_lookups(sys).await.map_err(failed)?;
    let manager = bus
        .resolved()
        .await
        .map_err(failed)?
        .ok_or_else(|| failed(DnsError::NotRunning))?;
    let family = match family {
        Family::Any => 0,
        Family::V4 => 2,
        Family::V6 => 10,
    };
    manager
        .resolve_hostname(name, family)
        .await
        .map_err(|error| {
            if is_named(&error, ".DnsError.NXDOMAIN") {
                LookupError::NotFound(name.to_owned())
            } else if is_named(&error, ".NoSuchRR") {
                LookupError::NoData(name.to_owned())
            } else {
                failed(DnsError::Call {
                    method: "ResolveHostname",
                    source: error,
                })
            }
        })
}
