//! Pointing systemd-resolved at the session's link, and taking that back.
//!
//! A link without an explicit default-route setting may get every name of the host, so it is
//! always set to no.

use std::time::Duration;

use super::DnsError;
use super::bus::Bus;
use super::resolve1::{LinkState, Manager, is_named};
use crate::intent::DnsIntent;
use crate::sys::Sys;

pub use lookup::{Family, LookupError, lookup_through_resolved};
use plan::difference;
pub use plan::{Domain, Plan, plan};

mod lookup;
mod plan;
mod send;

/// The longest applying or reverting may take in all.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the link is read again until its DNS is on.
const POLL: Duration = Duration::from_millis(20);

/// Protocols that have no business on the link; DNSSEC and DNS over TLS cannot work there.
const MODES: [&str; 4] = [
    "SetLinkLLMNR",
    "SetLinkMulticastDNS",
    "SetLinkDNSSEC",
    "SetLinkDNSOverTLS",
];

/// One link's DNS in systemd-resolved.
///
/// It holds no connection: daemons and the bus itself may be restarted between two calls.
#[derive(Debug)]
pub struct Resolved {
    sys: Sys,
    link: String,
    index: u32,
    /// Whether nothing was set by us yet.
    fresh: bool,
    /// What was sent and taken over last; less than wished, perhaps.
    sent: Option<Plan>,
    /// Whether the link turned out to be managed by systemd-networkd.
    networkd: bool,
}

/// The daemons, for one operation.
struct Peers {
    resolved: Manager,
    networkd: Option<Manager>,
}

impl Peers {
    /// Returns whoever sets the link's DNS.
    fn setter(&self) -> &Manager {
        self.networkd.as_ref().unwrap_or(&self.resolved)
    }
}

impl Resolved {
    /// Makes the view of a link; nothing is called yet.
    pub fn new(sys: &Sys, link: &str, index: u32) -> Self {
        Self {
            sys: sys.clone(),
            link: link.to_owned(),
            index,
            fresh: true,
            sent: None,
            networkd: false,
        }
    }

    /// Applies the wish and checks that it took; returns warnings.
    pub async fn apply(&mut self, intent: &DnsIntent) -> Result<Vec<String>, DnsError> {
        let applying = tokio::time::timeout(TOTAL_TIMEOUT, self.apply_untimed(intent));
        applying.await.unwrap_or(Err(DnsError::Timeout {
            action: "taking the settings",
        }))
    }

    /// Plans the settings of a link that is not there yet, without changing anything.
    pub async fn preview(&self, intent: &DnsIntent) -> Result<Plan, DnsError> {
        let planning = async {
            let (peers, _) = self.peers().await?.ok_or(DnsError::NotRunning)?;
            let host = self.host_domains(&peers).await?;
            Ok(plan(intent, &LinkState::default(), true, &host))
        };
        let planning = tokio::time::timeout(TOTAL_TIMEOUT, planning);
        planning.await.unwrap_or(Err(DnsError::Timeout {
            action: "showing the settings",
        }))
    }

    /// Takes every setting of the link back; harmless when there is none, no link or no resolved.
    pub async fn revert(&self) -> Result<(), DnsError> {
        let reverting = async {
            match self.peers().await? {
                Some((peers, bus)) => self.revert_by(&peers, &bus).await,
                // Its memory of the link ends with the link.
                None => Ok(()),
            }
        };
        let reverting = tokio::time::timeout(TOTAL_TIMEOUT, reverting);
        reverting.await.unwrap_or(Err(DnsError::Timeout {
            action: "reverting the link",
        }))
    }

    async fn peers(&self) -> Result<Option<(Peers, Bus)>, DnsError> {
        let bus = Bus::connect(&self.sys).await?;
        let Some(resolved) = bus.resolved().await? else {
            return Ok(None);
        };
        let networkd = if self.networkd {
            bus.networkd().await?
        } else {
            None
        };
        Ok(Some((Peers { resolved, networkd }, bus)))
    }

    /// Names the first setting of the link that is not as it was sent, without changing anything.
    pub async fn difference(&self) -> Result<Option<&'static str>, DnsError> {
        let comparing = async {
            let (peers, _) = self.peers().await?.ok_or(DnsError::NotRunning)?;
            let state = peers.resolved.link_state(self.index).await?;
            Ok(match (&state, &self.sent) {
                (Some(state), Some(sent)) => difference(state, sent),
                (None, _) | (_, None) => Some("every setting"),
            })
        };
        let comparing = tokio::time::timeout(TOTAL_TIMEOUT, comparing);
        comparing.await.unwrap_or(Err(DnsError::Timeout {
            action: "showing the settings",
        }))
    }

    async fn apply_untimed(&mut self, intent: &DnsIntent) -> Result<Vec<String>, DnsError> {
        let (mut peers, bus) = self.peers().await?.ok_or(DnsError::NotRunning)?;
        let state = self.known_link(&peers.resolved).await?;
        let host = self.host_domains(&peers).await?;
        let mut plan = plan(intent, &state, self.fresh, &host);
        if plan.revert_first {
            self.revert_by(&peers, &bus).await?;
        }
        self.fresh = false;
        self.sent = None;
        self.send_servers(&mut peers, &bus, &plan.servers).await?;
        let setter = peers.setter();
        self.send_domains(setter, &mut plan).await?;
        setter
            .set_default_route(self.index, false)
            .await
            .map_err(call("SetLinkDefaultRoute"))?;
        for method in MODES {
            if let Err(error) = setter.set_mode(method, self.index, "no").await {
                plan.warnings.push(format!("{method} failed: {error}"));
            }
        }
        flush(&peers.resolved).await;
        self.verify(&peers.resolved, &plan).await?;
        let warnings = plan.warnings.clone();
        self.sent = Some(plan);
        Ok(warnings)
    }

    /// Returns the link's state once systemd-resolved has heard of the link, a moment after the
    /// kernel made it.
    async fn known_link(&self, resolved: &Manager) -> Result<LinkState, DnsError> {
        loop {
            if let Some(state) = resolved.link_state(self.index).await? {
                return Ok(state);
            }
            if super::link_name(self.index).is_none() {
                return Err(DnsError::LinkGone(self.link.clone()));
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Reads the domains of every other link.
    async fn host_domains(&self, peers: &Peers) -> Result<Vec<Domain>, DnsError> {
        let all = peers.resolved.domains().await?.into_iter();
        let others = all.filter(|(link, _, _)| *link != self.index);
        Ok(others.map(|(_, name, routing)| (name, routing)).collect())
    }

    /// Reverts the link by whoever manages it, which may only now turn out.
    async fn revert_by(&self, peers: &Peers, bus: &Bus) -> Result<(), DnsError> {
        let mut networkd = peers.networkd.clone();
        match peers.resolved.revert(self.index).await {
            Err(error) if is_named(&error, ".LinkBusy") => {
                if networkd.is_none() {
                    networkd = bus.networkd().await?;
                }
                if networkd.is_none() {
                    return Err(call("RevertLink")(error));
                }
            }
            reverted => reverted.map_err(call("RevertLink"))?,
        }
        if let Some(networkd) = networkd {
            let reverted = networkd.revert(self.index).await;
            reverted.map_err(call("RevertLinkDNS"))?;
        }
        flush(&peers.resolved).await;
        Ok(())
    }
}

/// Empties the cache; a stale entry is a smaller evil than a failed connect.
async fn flush(resolved: &Manager) {
    if let Err(error) = resolved.flush_caches().await {
        tracing::debug!(%error, "flushing the system's DNS cache failed");
    }
}

/// Takes back a dead session's settings of a link; true if there was something to do.
pub async fn revert_leftover(sys: &Sys, link: &str, index: u32) -> Result<bool, DnsError> {
    // The link died with its session; an index that now belongs to another link is not ours.
    if super::link_index(link) != Some(index) {
        return Ok(false);
    }
    Resolved::new(sys, link, index)
        .revert()
        .await
        .map(|()| true)
}

/// Empties the OS resolver's cache, if it has one we know; for names that changed.
pub async fn flush_caches(sys: &Sys) {
    let found = async { Bus::connect(sys).await?.resolved().await };
    match found.await {
        Ok(Some(resolved)) => flush(&resolved).await,
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, "finding the system's DNS cache failed"),
    }
}

fn call(method: &'static str) -> impl FnOnce(zbus::Error) -> DnsError {
    move |source| DnsError::Call { method, source }
}
