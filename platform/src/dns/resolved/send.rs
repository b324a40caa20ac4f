//! Sending the plan to whoever manages the link, and seeing that it took.

use std::net::IpAddr;

use super::super::DnsError;
use super::super::bus::Bus;
use super::super::resolve1::{Manager, is_named};
use super::plan::{Plan, difference};
use super::{POLL, Peers, Resolved, call};

impl Resolved {
    /// Sends the servers; a link that systemd-networkd manages is set through it from here on.
    pub(super) async fn send_servers(
        &mut self,
        peers: &mut Peers,
        bus: &Bus,
        servers: &[IpAddr],
    ) -> Result<(), DnsError> {
        let sent = peers.setter().set_servers(self.index, servers).await;
        let busy = sent
            .as_ref()
            .is_err_and(|error| is_named(error, ".LinkBusy"));
        if !busy || self.networkd {
            return sent.map_err(call("SetLinkDNS"));
        }
        peers.networkd = bus.networkd().await?;
        self.networkd = peers.networkd.is_some();
        peers
            .setter()
            .set_servers(self.index, servers)
            .await
            .map_err(call("SetLinkDNS"))
    }

    /// Sends the domains; without the reverse zones if that is too much for resolved.
    pub(super) async fn send_domains(
        &self,
        setter: &Manager,
        plan: &mut Plan,
    ) -> Result<(), DnsError> {
        if plan.clear_first {
            setter
                .set_domains(self.index, &[])
                .await
                .map_err(call("SetLinkDomains"))?;
        }
        let sent = setter.set_domains(self.index, &plan.domains).await;
        if !sent.as_ref().is_err_and(|error| is_named(error, ".E2BIG")) {
            return sent.map_err(call("SetLinkDomains"));
        }
        plan.domains.retain(|(name, _)| !name.ends_with(".arpa"));
        plan.warnings
            .push("systemd-resolved has too many domains: reverse zones are left out".to_owned());
        setter
            .set_domains(self.index, &[])
            .await
            .map_err(call("SetLinkDomains"))?;
        setter
            .set_domains(self.index, &plan.domains)
            .await
            .map_err(call("SetLinkDomains"))
    }

    /// Waits until the link has what was sent and speaks DNS.
    ///
    /// The scope appears once resolved has heard of the link's address, a moment after us; a link
    /// managed by systemd-networkd shows all of it that late.
    pub(super) async fn verify(&self, resolved: &Manager, plan: &Plan) -> Result<(), DnsError> {
        let wrong = |setting| DnsError::NotTaken {
            setting,
            link: self.link.clone(),
        };
        loop {
            let state = resolved
                .link_state(self.index)
                .await?
                .ok_or_else(|| wrong("any setting"))?;
            match difference(&state, plan) {
                Some(setting) if !self.networkd => return Err(wrong(setting)),
                None if state.dns_scope => return Ok(()),
                Some(_) | None => tokio::time::sleep(POLL).await,
            }
        }
    }
}
