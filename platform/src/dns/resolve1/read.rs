//! What systemd-resolved says: about one link, about all, about a name.

use std::collections::BTreeSet;
use std::net::IpAddr;

use zbus::{OwnedObjectPath, Proxy};

use super::super::DnsError;
use super::super::base::{Global, KnownServer};
use super::wire::{
    self, WireAddress, WireLinkServer, WireServer, from_wire, index, is_no_such_link, wire_index,
};
use super::{LINK, LinkState, Manager, RESOLVED};

/// The bit of a link's scopes that says unicast DNS is spoken on it.
const SCOPE_DNS: u64 = 1;

impl Manager {
    /// Reads what systemd-resolved thinks of `/etc/resolv.conf`.
    pub async fn resolv_conf_mode(&self) -> Result<String, zbus::Error> {
        self.proxy.get_property("ResolvConfMode").await
    }

    /// Reads a setting for all links that is a word; `None` where it is too old to have it.
    pub(crate) async fn setting(&self, name: &'static str) -> Option<String> {
        self.proxy.get_property(name).await.ok()
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
    pub(in crate::dns) async fn domains(&self) -> Result<Vec<(u32, String, bool)>, DnsError> {
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
    pub(in crate::dns) async fn resolve_hostname(
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
