//! The OS resolver: who resolves names here, by which servers, and how ours joins them.
//!
//! Reading is [`read_host_dns`]; setting is [`resolved::Resolved`]. `/etc/resolv.conf` is never
//! written here, no service is started, and no setting of another link is touched.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::net::{AddressFamily, SocketType, netdevice};

use crate::fs::{FsError, RootFs};
use crate::host::HostDns;
use crate::sys::Sys;
use bus::Bus;
use detect::Probes;

pub mod base;
pub mod bus;
pub mod detect;
pub mod resolv_conf;
pub mod resolve1;
pub mod resolved;

/// Why the OS resolver could not be read or set.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The system bus could not be reached.
    #[error("connecting to the system bus")]
    Bus(#[source] zbus::Error),
    /// A call on the bus failed.
    #[error("calling {method}")]
    Call {
        /// The method or property.
        method: &'static str,
        /// What the other side said.
        #[source]
        source: zbus::Error,
    },
    /// systemd-resolved is not running, and we do not start services.
    #[error("systemd-resolved is not running")]
    NotRunning,
    /// The link was removed.
    #[error("link {0} is gone")]
    LinkGone(String),
    /// The whole operation took too long.
    #[error("systemd-resolved did not finish {action} in time")]
    Timeout {
        /// What was being done.
        action: &'static str,
    },
    /// A setting reads back differently from what was set.
    #[error("systemd-resolved did not take over {setting} of {link}")]
    NotTaken {
        /// The setting.
        setting: &'static str,
        /// The link.
        link: String,
    },
    /// A file could not be read.
    #[error(transparent)]
    File(#[from] FsError),
}

/// Reads who resolves names on this machine and by which servers.
///
/// Call it before the session's own link is configured; links named `kb…` are passed over.
pub async fn read_host_dns(sys: &Sys) -> Result<HostDns, DnsError> {
    let fs = RootFs::new(sys);
    let file = |path: &str| fs.read(Path::new(path)).map(Option::unwrap_or_default);
    let resolv_conf = resolv_conf::parse(&file("/etc/resolv.conf")?);
    let bus = Bus::connect(sys).await.ok();
    let resolved = match &bus {
        Some(bus) => bus.resolved().await?,
        None => None,
    };
    let probes = Probes {
        bus: bus.is_some(),
        resolved: resolved.is_some(),
        nss: detect::nss_hosts(&file("/etc/nsswitch.conf")?),
        nameservers: resolv_conf
            .nameservers
            .iter()
            .map(|server| server.address)
            .collect(),
        resolv_conf_mode: match &resolved {
            Some(resolved) => resolved.resolv_conf_mode().await.ok(),
            None => None,
        },
        network_manager: match &bus {
            Some(bus) => bus.network_manager_mode().await,
            None => None,
        },
    };
    let decision = detect::decide(&probes);
    let global = match &resolved {
        Some(resolved) => Some(resolved.global().await?),
        None => None,
    };
    let backup = resolv_conf::parse(&file("/run/systemd/resolve/resolv.conf")?);
    let mut sources = base::Sources {
        global,
        resolv_conf,
        backup,
        ..base::Sources::default()
    };
    sources.links = sources
        .indexes()
        .into_iter()
        .filter_map(|index| Some((index, link_name(index)?)))
        .collect();
    let named = sources
        .scopes()
        .into_iter()
        .filter_map(|name| Some((link_index(&name)?, name)));
    sources.links.extend(named.collect::<Vec<_>>());
    let base::Base { servers, search } = base::choose(&sources);
    Ok(HostDns {
        mode: decision.mode,
        reasons: decision.reasons,
        servers,
        search,
    })
}

/// Returns the index of the link with this name.
fn link_index(name: &str) -> Option<u32> {
    netdevice::name_to_index(link_socket()?, name).ok()
}

/// Returns the name of the link with this index.
fn link_name(index: u32) -> Option<String> {
    netdevice::index_to_name(link_socket()?, index).ok()
}

/// Interfaces are asked for through any socket of the right network namespace.
fn link_socket() -> Option<OwnedFd> {
    rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).ok()
}
