//! The per-link DNS calls of systemd-resolved, and of systemd-networkd, which has the same ones.
//!
//! Thin: each function is one call or property read. What to call in which order is `resolved.rs`.

use std::net::IpAddr;

use serde::Serialize;
use zbus::Proxy;
use zbus::zvariant::DynamicType;

use super::DnsError;
use super::bus::Bus;
pub(super) use wire::is_named;
use wire::{WireServer, is_no_such_link, is_unknown_method, to_wire, wire_index};

mod read;
mod wire;

const RESOLVED: &str = "org.freedesktop.resolve1";
const RESOLVED_PATH: &str = "/org/freedesktop/resolve1";
const MANAGER: &str = "org.freedesktop.resolve1.Manager";
const LINK: &str = "org.freedesktop.resolve1.Link";
const NETWORKD: &str = "org.freedesktop.network1";
const NETWORKD_PATH: &str = "/org/freedesktop/network1";
const NETWORKD_MANAGER: &str = "org.freedesktop.network1.Manager";

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
}
