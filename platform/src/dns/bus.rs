//! The system bus, and which of the daemons we know are on it.
//!
//! Nothing here starts a service: a peer is only called when its name has an owner. Every call is
//! bounded by [`CALL_TIMEOUT`], and no property is cached.

use std::time::Duration;

use zbus::names::BusName;
use zbus::proxy::CacheProperties;
use zbus::{Connection, Proxy, connection, fdo, proxy};

use super::DnsError;
use super::resolve1::{Manager, Peer};
use crate::fault::Faults;
use crate::sys::Sys;

/// The longest one call may take: a peer that asks a person for permission never answers.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest a lookup through the OS resolver may take: it tries several servers itself.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

const NM: &str = "org.freedesktop.NetworkManager";
const NM_DNS_PATH: &str = "/org/freedesktop/NetworkManager/DnsManager";
const NM_DNS: &str = "org.freedesktop.NetworkManager.DnsManager";

/// A connection to the system bus.
#[derive(Debug, Clone)]
pub struct Bus {
    connection: Connection,
    faults: Faults,
}

impl Bus {
    /// Connects to the system bus.
    pub async fn connect(sys: &Sys) -> Result<Self, DnsError> {
        Self::connect_with(sys, CALL_TIMEOUT).await
    }

    /// Connects for lookups, which take longer than other calls.
    pub(super) async fn connect_for_lookups(sys: &Sys) -> Result<Self, DnsError> {
        Self::connect_with(sys, LOOKUP_TIMEOUT).await
    }

    async fn connect_with(sys: &Sys, timeout: Duration) -> Result<Self, DnsError> {
        let builder = match &sys.bus_address {
            Some(address) => connection::Builder::address(address.as_str()),
            None => connection::Builder::system(),
        };
        let fault = |error: std::io::Error| DnsError::Bus(error.into());
        sys.faults.step("connect to the bus").map_err(fault)?;
        let connecting = builder.method_timeout(timeout).build();
        match tokio::time::timeout(CALL_TIMEOUT, connecting).await {
            Ok(connected) => Ok(Self {
                connection: connected.map_err(DnsError::Bus)?,
                faults: sys.faults.clone(),
            }),
            Err(_) => Err(DnsError::Timeout {
                action: "the greeting on the system bus",
            }),
        }
    }

    /// Returns systemd-resolved, if it runs.
    pub async fn resolved(&self) -> Result<Option<Manager>, DnsError> {
        self.manager(Peer::Resolved).await
    }

    /// Returns systemd-networkd, if it runs.
    pub(super) async fn networkd(&self) -> Result<Option<Manager>, DnsError> {
        self.manager(Peer::Networkd).await
    }

    async fn manager(&self, peer: Peer) -> Result<Option<Manager>, DnsError> {
        let runs = self.runs(peer.name()).await?;
        Ok(if runs {
            Some(Manager::new(self, peer).await?)
        } else {
            None
        })
    }

    /// Reads NetworkManager's DNS mode, if it runs and says so.
    pub async fn network_manager_mode(&self) -> Option<String> {
        if !self.runs(NM).await.ok()? {
            return None;
        }
        self.proxy(NM, NM_DNS_PATH, NM_DNS)
            .await
            .ok()?
            .get_property("Mode")
            .await
            .ok()
    }

    async fn runs(&self, name: &'static str) -> Result<bool, DnsError> {
        let failed = |source| DnsError::Call {
            method: "NameHasOwner",
            source,
        };
        let bus = fdo::DBusProxy::new(&self.connection)
            .await
            .map_err(failed)?;
        let name = BusName::try_from(name).map_err(failed)?;
        bus.name_has_owner(name)
            .await
            .map_err(|error| failed(error.into()))
    }

    /// Returns the connection, for those who listen on it.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Asks whether a call may happen.
    pub(super) fn fault(&self, method: &'static str) -> Result<(), zbus::Error> {
        Ok(self.faults.step(method)?)
    }

    pub(super) async fn proxy(
        &self,
        destination: &'static str,
        path: impl Into<String>,
        interface: &'static str,
    ) -> Result<Proxy<'static>, DnsError> {
        proxy::Builder::new(&self.connection)
            .destination(destination)
            .path(path.into())
            .interface(interface)
            .cache_properties(CacheProperties::No)
            .build()
            .await
            .map_err(|source| DnsError::Call {
                method: "the proxy",
                source,
            })
    }
}
