//! The DNS settings of the session's link: journalled, set once, sent again when they drifted.

use super::{LocalHost, OpenLink};
use crate::dns::DnsError;
use crate::dns::resolved::Resolved;
use crate::host::{Applied, HostError};
use crate::intent::DnsIntent;
use crate::journal::Change;

/// The DNS settings of the link.
#[derive(Debug)]
pub(super) struct LinkDns {
    resolved: Resolved,
    seq: u64,
    /// What was last sent, with its warnings; `None` makes the next `apply` send everything.
    applied: Option<(DnsIntent, Vec<String>)>,
}

impl LinkDns {
    pub(super) fn forget(&mut self) {
        self.applied = None;
    }
}

impl LocalHost {
    pub(super) async fn apply_dns(
        &mut self,
        intent: Option<&DnsIntent>,
        applied: &mut Applied,
    ) -> Result<(), HostError> {
        let Some(intent) = intent else {
            applied.changes.extend(self.revert_dns().await?);
            return Ok(());
        };
        if self.dns.is_none() {
            self.dns = Some(self.start_dns().await?);
        }
        let Some(dns) = &mut self.dns else {
            return Err(HostError::NoLink);
        };
        let current = dns.applied.take();
        if let Some((known, warnings)) = current.filter(|(known, _)| known == intent) {
            applied.warnings.extend(warnings.iter().cloned());
            dns.applied = Some((known, warnings));
            return Ok(());
        }
        let warnings = dns.resolved.apply(intent).await.map_err(HostError::Dns)?;
        applied.warnings.extend(warnings.iter().cloned());
        applied.changes.push(dns_change(intent));
        dns.applied = Some((intent.clone(), warnings));
        let seq = dns.seq;
        self.journalled(move |journal| journal.done(seq)).await
    }

    /// Compares the link's settings with the wish and sends them again if they differ.
    pub(super) async fn verify_dns(&mut self, repairs: &mut Vec<String>) -> Result<(), HostError> {
        let Some(intent) = self.wanted.dns.clone() else {
            return Ok(());
        };
        if let Some(dns) = &mut self.dns
            && dns
                .applied
                .as_ref()
                .is_some_and(|(known, _)| *known == intent)
        {
            let differs = dns.resolved.difference().await;
            match differs.map_err(HostError::Dns)? {
                None => return Ok(()),
                Some(setting) => {
                    tracing::info!(setting, "the link's DNS settings were changed by someone");
                    dns.forget();
                }
            }
        }
        let mut applied = Applied::default();
        self.apply_dns(Some(&intent), &mut applied).await?;
        repairs.extend(applied.changes);
        Ok(())
    }

    pub(super) async fn revert_dns(&mut self) -> Result<Option<String>, HostError> {
        let Some(dns) = &mut self.dns else {
            return Ok(None);
        };
        dns.forget();
        dns.resolved.revert().await.map_err(HostError::Dns)?;
        let seq = dns.seq;
        self.journalled(move |journal| journal.undone(seq)).await?;
        self.dns = None;
        Ok(Some("DNS settings of the link reverted".to_owned()))
    }

    /// Reverts the settings at the end of a session. Without a bus there is nobody to tell, but the
    /// settings go with the link.
    pub(super) async fn end_dns(&mut self) -> Result<Option<String>, HostError> {
        match self.revert_dns().await {
            Err(HostError::Dns(DnsError::Bus(error))) if self.link.is_some() => {
                tracing::warn!(%error, "the link's DNS settings stay until the link goes");
                self.drop_dns().await.map(|()| None)
            }
            reverted => reverted,
        }
    }

    /// Forgets the settings of a link that is gone, as systemd-resolved has.
    pub(super) async fn drop_dns(&mut self) -> Result<(), HostError> {
        if let Some(LinkDns { seq, .. }) = self.dns.take() {
            self.journalled(move |journal| journal.undone(seq)).await?;
        }
        Ok(())
    }

    /// Journals that our link's settings will change.
    async fn start_dns(&self) -> Result<LinkDns, HostError> {
        let OpenLink { plan, index, .. } = self.link.as_ref().ok_or(HostError::NoLink)?;
        let change = Change::LinkDns {
            name: plan.name.clone(),
            index: *index,
        };
        Ok(LinkDns {
            seq: self.intend(change).await?,
            resolved: Resolved::new(&self.sys, &plan.name, *index),
            applied: None,
        })
    }
}

fn dns_change(intent: &DnsIntent) -> String {
    let domains = intent
        .routes
        .iter()
        .chain(&intent.namespaces)
        .chain(&intent.search);
    let domains: Vec<_> = domains.map(String::as_str).collect();
    format!("DNS of the link set for {}", domains.join(", "))
}
