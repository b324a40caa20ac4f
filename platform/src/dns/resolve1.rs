//! The per-link DNS calls of systemd-resolved, and of systemd-networkd, which has the same ones.
//!
//! Thin: each function is one call or property read. What to call in which order is `resolved.rs`.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde::Serialize;
use zbus::zvariant::DynamicType;
use zbus::{OwnedObjectPath, Proxy};

use super::DnsError;
use super::base::{Global, KnownServer};
use super::bus::Bus;
pub(super) use wire::is_named;
use wire::{
    WireAddress, WireLinkServer, WireServer, from_wire, index, is_no_such_link, is_unknown_method,
    to_wire, wire_index,
};

mod wire;

const RESOLVED: &str = "org.freedesktop.resolve1";
const RESOLVED_PATH: &str = "/org/freedesktop/resolve1";
const MANAGER: &str = "org.freedesktop.resolve1.Manager";
const LINK: &str = "org.freedesktop.resolve1.Link";
const NETWORKD: &str = "org.freedesktop.network1";
const NETWORKD_PATH: &str = "/org/freedesktop/network1";
const NETWORKD_MANAGER: &str = "org.freedesktop.network1.Manager";

/// The bit of a link's scopes that says unicast DNS is spoken on it.
const SCOPE_DNS: u64 = 1;

/// Whose manager object it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// systemd-resolved.
    Resolved,
    /// systemd-networkd, for links it manages itself.
    Networkd,
}

impl Peer {
    /// Returns its name on the bus.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Resolved => RESOLVED,
            Self::Networkd => NETWORKD,
        }
    }
}

/// A manager object with the per-link DNS methods, which both daemons have under the same names.
#[derive(Debug, Clone)]
pub struct Manager {
    bus: Bus,
    proxy: Proxy<'static>,
    peer: Peer,
}

/// What systemd-resolved has for one link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LinkState {
    /// The servers, those on another port or with a TLS name left out.
    pub servers: Vec<IpAddr>,
    /// Whether there are servers on another port or with a TLS name.
    pub odd_servers: bool,
    /// The domains, each with whether it is for routing only.
    pub domains: Vec<(String, bool)>,
    /// Whether names without any domain go there.
    pub default_route: bool,
    /// Whether unicast DNS is spoken on the link now.
    pub dns_scope: bool,
}

impl Manager {
    /// Makes the manager of a daemon that runs.
    pub(super) async fn new(bus: &Bus, peer: Peer) -> Result<Self, DnsError> {
        let proxy = match peer {
            Peer::Resolved => bus.proxy(RESOLVED, RESOLVED_PATH, MANAGER).await?,
            Peer::Networkd => bus.proxy(NETWORKD, NETWORKD_PATH, NETWORKD_MANAGER).await?,
        };
        Ok(Self {
            bus: bus.clone(),
            proxy,
            peer,
        })
    }

    /// Sets the servers of a link, by the older method where the newer is unknown.
    pub(super) async fn set_servers(
        &self,
        link: u32,
        servers: &[IpAddr],
    ) -> Result<(), zbus::Error> {
        let wire: Vec<WireServer> = servers
            .iter()
            .map(|server| {
                let (family, octets) = to_wire(*server);
                (family, octets, 0, String::new())
            })
            .collect();
        let newer = self.call("SetLinkDNSEx", &(wire_index(link), wire)).await;
        if !newer.as_ref().is_err_and(is_unknown_method) {
            return newer;
        }
        let wire: Vec<(i32, Vec<u8>)> = servers.iter().map(|server| to_wire(*server)).collect();
        self.call("SetLinkDNS", &(wire_index(link), wire)).await
    }

    /// Replaces the domains of a link.
    pub(super) async fn set_domains(
        &self,
        link: u32,
        domains: &[(String, bool)],
    ) -> Result<(), zbus::Error> {
        self.call("SetLinkDomains", &(wire_index(link), domains))
            .await
    }

    /// Says whether the link takes names without any domain; fine where that is not known yet.
    pub(super) async fn set_default_route(&self, link: u32, yes: bool) -> Result<(), zbus::Error> {
        let set = self
            .call("SetLinkDefaultRoute", &(wire_index(link), yes))
            .await;
        if set.as_ref().is_err_and(is_unknown_method) {
            Ok(())
        } else {
            set
        }
    }

    /// Sets one of the link's protocol modes (`SetLinkLLMNR` and its like).
    pub(super) async fn set_mode(
        &self,
        method: &'static str,
        link: u32,
        mode: &str,
    ) -> Result<(), zbus::Error> {
        self.call(method, &(wire_index(link), mode)).await
    }

    /// Forgets every setting made on the link; fine if the link is gone.
    pub(super) async fn revert(&self, link: u32) -> Result<(), zbus::Error> {
        let method = match self.peer {
            Peer::Resolved => "RevertLink",
            Peer::Networkd => "RevertLinkDNS",
        };
        let reverted = self.call(method, &(wire_index(link),)).await;
        if reverted.as_ref().is_err_and(is_no_such_link) {
            Ok(())
        } else {
            reverted
        }
    }

    /// Empties the cache.
    pub(super) async fn flush_caches(&self) -> Result<(), zbus::Error> {
        self.call("FlushCaches", &()).await
    }

    async fn call<B>(&self, method: &'static str, body: &B) -> Result<(), zbus::Error>
    where
        B: Serialize + DynamicType + Sync,
    {
        self.bus.fault(method)?;
        self.proxy.call(method, body).await
    }

    /// Reads what systemd-resolved thinks of `/etc/resolv.conf`.
    pub async fn resolv_conf_mode(&self) -> Result<String, zbus::Error> {
        self.proxy.get_property("ResolvConfMode").await
    }

    /// Reads one link's settings; `None` if there is no such link.
    pub async fn link_state(&self, link: u32) -> Result<Option<LinkState>, DnsError> {
        let proxy = match self.link(link).await {
            Ok(proxy) => proxy,
            Err(DnsError::Call { source, .. }) if is_no_such_link(&source) => return Ok(None),
            Err(error) => return Err(error),
        };
        let failed = |method| move |source| DnsError::Call { method, source };
        let servers = link_servers(&proxy).await.map_err(failed("Link.DNSEx"))?;
        let domains = proxy
            .get_property("Domains")
            .await
            .map_err(failed("Link.Domains"))?;
        let scopes: u64 = proxy
            .get_property("ScopesMask")
            .await
            .map_err(failed("Link.ScopesMask"))?;
        let plain = |(_, _, port, name): &&WireServer| matches!(port, 0 | 53) && name.is_empty();
        Ok(Some(LinkState {
            servers: servers
                .iter()
                .filter(plain)
                .filter_map(|(family, octets, _, _)| from_wire(*family, octets))
                .collect(),
            odd_servers: !servers.iter().all(|server| plain(&server)),
            domains,
            // Unknown before v240; those have no such setting to be wrong.
            default_route: proxy.get_property("DefaultRoute").await.unwrap_or(false),
            dns_scope: scopes & SCOPE_DNS != 0,
        }))
    }

    /// Reads the servers and domains of all links.
    pub async fn global(&self) -> Result<Global, DnsError> {
        let failed = |method| move |source| DnsError::Call { method, source };
        let servers = self
            .known_servers("DNSEx")
            .await
            .map_err(failed("Manager.DNSEx"))?;
        let links: BTreeSet<u32> = servers
            .iter()
            .map(|server| server.link)
            .filter(|link| *link != 0)
            .collect();
        let mut default_routes = Vec::new();
        for link in links {
            if self
                .link_state(link)
                .await?
                .is_some_and(|state| state.default_route)
            {
                default_routes.push(link);
            }
        }
        Ok(Global {
            servers,
            fallback: self
                .known_servers("FallbackDNSEx")
                .await
                .unwrap_or_default(),
            domains: self.domains().await?,
            default_routes,
        })
    }

    /// Reads the domains of all links: link (0 for global), name, whether for routing only.
    pub(super) async fn domains(&self) -> Result<Vec<(u32, String, bool)>, DnsError> {
        let wire: Vec<(i32, String, bool)> =
            self.proxy
                .get_property("Domains")
                .await
                .map_err(|source| DnsError::Call {
                    method: "Manager.Domains",
                    source,
                })?;
        let mine = |(link, name, routing)| (index(link), name, routing);
        Ok(wire.into_iter().map(mine).collect())
    }

    /// Looks up the addresses of a name as a program would.
    pub(super) async fn resolve_hostname(
        &self,
        name: &str,
        family: i32,
    ) -> Result<Vec<IpAddr>, zbus::Error> {
        let asked = (0i32, name, family, 0u64);
        let (addresses, _, _): (Vec<WireAddress>, String, u64) =
            self.proxy.call("ResolveHostname", &asked).await?;
        Ok(addresses
            .iter()
            .filter_map(|(_, family, octets)| from_wire(*family, octets))
            .collect())
    }

    async fn known_servers(&self, property: &'static str) -> Result<Vec<KnownServer>, zbus::Error> {
        let wire: Vec<WireLinkServer> = self.proxy.get_property(property).await?;
        let known = |(link, family, octets, port, _): WireLinkServer| {
            let address = wire::socket_address(link, family, &octets, port)?;
            let link = index(link);
            Some(KnownServer { link, address })
        };
        Ok(wire.into_iter().filter_map(known).collect())
    }

    async fn link(&self, link: u32) -> Result<Proxy<'static>, DnsError> {
        let path = async {
            self.bus.fault("GetLink")?;
            self.proxy.call("GetLink", &(wire_index(link),)).await
        };
        let path: Result<OwnedObjectPath, zbus::Error> = path.await;
        let path = path.map_err(|source| DnsError::Call {
            method: "GetLink",
            source,
        })?;
        self.bus.proxy(RESOLVED, path.as_str(), LINK).await
    }
}

/// Reads the servers of a link, by the older property where the newer is unknown.
async fn link_servers(link: &Proxy<'static>) -> Result<Vec<WireServer>, zbus::Error> {
    if let Ok(servers) = link.get_property("DNSEx").await {
        return Ok(servers);
    }
    let older: Vec<(i32, Vec<u8>)> = link.get_property("DNS").await?;
    Ok(older
        .into_iter()
        .map(|(family, octets)| (family, octets, 0, String::new()))
        .collect())
}
