//! Pointing systemd-resolved at the session's link, and taking that back.
//!
//! The plan is pure and keeps clear of what was measured to hurt: more than 256 old and new
//! domains together wipe the link's list, and a domain that only changes between search and
//! routing is not stored, so in both cases the list is emptied first. A link without an explicit
//! default-route setting may get every name of the host, so it is always set to no.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use super::DnsError;
use super::resolve1::{Bus, LinkState, Manager, is_named};
use crate::intent::DnsIntent;
use crate::net::MAX_REVERSE_ZONES;
use crate::sys::Sys;

pub use lookup::{Family, LookupError, lookup_through_resolved};

mod lookup;

/// The longest applying or reverting may take in all.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the link is read again until its DNS is on.
const POLL: Duration = Duration::from_millis(20);

/// The most search and routing domains on our link: far from resolved's 256, and no session has
/// more namespaces than a person names.
const MAX_FORWARD: usize = 32;

/// Above this many old and new domains together the list is emptied first.
const MAX_UNION: usize = 250;

/// Protocols that have no business on the link; DNSSEC and DNS over TLS cannot work there.
const MODES: [&str; 4] = [
    "SetLinkLLMNR",
    "SetLinkMulticastDNS",
    "SetLinkDNSSEC",
    "SetLinkDNSOverTLS",
];

/// A domain and whether it is for routing only.
type Domain = (String, bool);

/// What is to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Whether the link has settings of an earlier session, to be reverted first.
    pub revert_first: bool,
    /// The servers.
    pub servers: Vec<IpAddr>,
    /// Whether an empty list must be sent before the domains.
    pub clear_first: bool,
    /// Search and routing domains, then reverse zones.
    pub domains: Vec<Domain>,
    /// What could not be had.
    pub warnings: Vec<String>,
}

/// Plans the settings of a link.
///
/// `state` is what the link has, `fresh` whether we have not set it yet, `host` the domains of all
/// other links.
pub fn plan(intent: &DnsIntent, state: &LinkState, fresh: bool, host: &[Domain]) -> Plan {
    let mut plan = Plan {
        servers: intent.servers.clone(),
        ..Plan::default()
    };
    plan.revert_first = fresh && !(state.servers.is_empty() && state.domains.is_empty());
    plan.domains = wanted(intent, host, &mut plan.warnings);
    let old: BTreeMap<_, _> = if plan.revert_first {
        BTreeMap::new()
    } else {
        state.domains.iter().cloned().collect()
    };
    let added = plan
        .domains
        .iter()
        .filter(|(name, _)| !old.contains_key(name))
        .count();
    let flipped = |(name, routing): &Domain| old.get(name).is_some_and(|old| old != routing);
    plan.clear_first = old.len() + added > MAX_UNION || plan.domains.iter().any(flipped);
    plan
}

/// Lists the domains in order: search, routes, namespaces, reverse zones; each once.
fn wanted(intent: &DnsIntent, host: &[Domain], warnings: &mut Vec<String>) -> Vec<Domain> {
    let used = |name: &str| host.iter().any(|(used, _)| used == name);
    let (namespaces, refused) = intent.routable_namespaces();
    for (namespace, refusal) in refused {
        warnings.push(format!(
            "names under {namespace:?} are not routed: {refusal}"
        ));
    }
    for name in intent.routes.iter().filter(|name| used(name)) {
        warnings.push(format!("another link has {name:?} too: either may answer"));
    }
    let mut domains: Vec<Domain> = Vec::new();
    let mut add = |name: &str, routing: bool| {
        if !domains.iter().any(|(known, _)| known == name) {
            domains.push((name.to_owned(), routing));
        }
    };
    intent.search.iter().for_each(|name| add(name, false));
    intent.routes.iter().for_each(|name| add(name, true));
    for namespace in namespaces {
        if used(namespace) {
            warnings.push(format!(
                "names under {namespace:?} are not routed: this host uses it already"
            ));
        } else {
            add(namespace, true);
        }
    }
    for (name, _) in domains.drain(MAX_FORWARD.min(domains.len())..) {
        warnings.push(format!(
            "{name:?} is not routed: more than {MAX_FORWARD} domains"
        ));
    }
    let reverse = intent
        .reverse
        .iter()
        .filter(|zone| !used(zone))
        .take(MAX_REVERSE_ZONES);
    domains.extend(reverse.map(|zone| (zone.clone(), true)));
    domains
}

/// One link's DNS in systemd-resolved.
#[derive(Debug)]
pub struct Resolved {
    manager: Manager,
    /// systemd-networkd, when it turned out to own the link.
    networkd: Option<Manager>,
    bus: Bus,
    link: String,
    index: u32,
    fresh: bool,
}

impl Resolved {
    /// Finds the running systemd-resolved.
    pub async fn find(sys: &Sys, link: &str, index: u32) -> Result<Self, DnsError> {
        let bus = Bus::connect(sys).await?;
        let manager = bus.resolved().await?.ok_or(DnsError::NotRunning)?;
        Ok(Self {
            manager,
            networkd: None,
            bus,
            link: link.to_owned(),
            index,
            fresh: true,
        })
    }

    /// Applies the wish and checks that it took; returns warnings.
    pub async fn apply(&mut self, intent: &DnsIntent) -> Result<Vec<String>, DnsError> {
        let applying = tokio::time::timeout(TOTAL_TIMEOUT, self.apply_untimed(intent));
        applying.await.unwrap_or(Err(DnsError::Timeout {
            action: "taking the settings",
        }))
    }

    /// Takes every setting of the link back; harmless when there is none or no link.
    pub async fn revert(&self) -> Result<(), DnsError> {
        let reverting = tokio::time::timeout(TOTAL_TIMEOUT, self.revert_untimed());
        reverting.await.unwrap_or(Err(DnsError::Timeout {
            action: "reverting the link",
        }))
    }

    async fn apply_untimed(&mut self, intent: &DnsIntent) -> Result<Vec<String>, DnsError> {
        let state = self
            .manager
            .link_state(self.index)
            .await?
            .unwrap_or_default();
        let others = self.manager.global().await?.domains.into_iter();
        let others = others.filter(|(link, _, _)| *link != self.index);
        let host: Vec<Domain> = others.map(|(_, name, routing)| (name, routing)).collect();
        let mut plan = plan(intent, &state, self.fresh, &host);
        if plan.revert_first {
            self.revert_untimed().await?;
        }
        self.fresh = false;
        self.send_servers(&plan.servers).await?;
        self.send_domains(&mut plan).await?;
        self.setter()
            .set_default_route(self.index, false)
            .await
            .map_err(call("SetLinkDefaultRoute"))?;
        for method in MODES {
            if let Err(error) = self.setter().set_mode(method, self.index, "no").await {
                plan.warnings.push(format!("{method} failed: {error}"));
            }
        }
        if let Err(error) = self.manager.flush_caches().await {
            plan.warnings.push(format!("FlushCaches failed: {error}"));
        }
        self.verify(&plan).await?;
        Ok(plan.warnings)
    }

    /// Sends the servers; a link that systemd-networkd manages is set through it.
    async fn send_servers(&mut self, servers: &[IpAddr]) -> Result<(), DnsError> {
        let sent = self.setter().set_servers(self.index, servers).await;
        if sent
            .as_ref()
            .is_err_and(|error| is_named(error, ".LinkBusy"))
            && let Some(networkd) = self.bus.networkd().await?
        {
            self.networkd = Some(networkd);
            return self
                .setter()
                .set_servers(self.index, servers)
                .await
                .map_err(call("SetLinkDNS"));
        }
        sent.map_err(call("SetLinkDNS"))
    }

    /// Sends the domains; without the reverse zones if that is too much for resolved.
    async fn send_domains(&self, plan: &mut Plan) -> Result<(), DnsError> {
        let failed = call("SetLinkDomains");
        if plan.clear_first {
            self.setter()
                .set_domains(self.index, &[])
                .await
                .map_err(call("SetLinkDomains"))?;
        }
        let sent = self.setter().set_domains(self.index, &plan.domains).await;
        if !sent.as_ref().is_err_and(|error| is_named(error, ".E2BIG")) {
            return sent.map_err(failed);
        }
        plan.domains.retain(|(name, _)| !name.ends_with(".arpa"));
        plan.warnings
            .push("systemd-resolved has too many domains: reverse zones are left out".to_owned());
        self.setter()
            .set_domains(self.index, &[])
            .await
            .map_err(call("SetLinkDomains"))?;
        self.setter()
            .set_domains(self.index, &plan.domains)
            .await
            .map_err(failed)
    }

    /// Waits until the link has what was sent and speaks DNS.
    ///
    /// The scope appears once resolved has heard of the link's address, a moment after us.
    async fn verify(&self, plan: &Plan) -> Result<(), DnsError> {
        let wrong = |setting| DnsError::NotTaken {
            setting,
            link: self.link.clone(),
        };
        loop {
            let state = self
                .manager
                .link_state(self.index)
                .await?
                .ok_or_else(|| wrong("any setting"))?;
            if state.servers != plan.servers {
                return Err(wrong("the servers"));
            }
            if !same_domains(&state.domains, &plan.domains) {
                return Err(wrong("the domains"));
            }
            if state.default_route {
                return Err(wrong("the default route"));
            }
            if state.dns_scope {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn revert_untimed(&self) -> Result<(), DnsError> {
        if let Some(networkd) = &self.networkd {
            networkd
                .revert(self.index)
                .await
                .map_err(call("RevertLinkDNS"))?;
        }
        match self.manager.revert(self.index).await {
            Err(error) if self.networkd.is_some() && is_named(&error, ".LinkBusy") => {}
            reverted => reverted.map_err(call("RevertLink"))?,
        }
        self.manager
            .flush_caches()
            .await
            .map_err(call("FlushCaches"))
    }

    fn setter(&self) -> &Manager {
        self.networkd.as_ref().unwrap_or(&self.manager)
    }
}

/// Takes back a dead session's settings of a link; true if there was something to do.
pub async fn revert_leftover(sys: &Sys, link: &str, index: u32) -> Result<bool, DnsError> {
    // The link died with its session; an index that now belongs to another link is not ours.
    if super::link_index(link) != Some(index) {
        return Ok(false);
    }
    match Resolved::find(sys, link, index).await {
        Ok(resolved) => resolved.revert().await.map(|()| true),
        Err(DnsError::NotRunning) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Empties the OS resolver's cache, if it has one we know; for names that changed.
pub async fn flush_caches(sys: &Sys) {
    let flush = async {
        if let Some(manager) = Bus::connect(sys).await?.resolved().await? {
            manager.flush_caches().await.map_err(call("FlushCaches"))?;
        }
        Ok::<(), DnsError>(())
    };
    if let Err(error) = flush.await {
        tracing::debug!(%error, "flushing the system's DNS cache failed");
    }
}

fn same_domains(a: &[Domain], b: &[Domain]) -> bool {
    let sorted = |list: &[Domain]| {
        let mut list = list.to_vec();
        list.sort();
        list
    };
    sorted(a) == sorted(b)
}

fn call(method: &'static str) -> impl FnOnce(zbus::Error) -> DnsError {
    move |source| DnsError::Call { method, source }
}

#[cfg(test)]
mod tests;
