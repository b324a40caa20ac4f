//! `LocalHost`: a root process changing its own machine.
//!
//! It orders and journals; what each change is, is decided in `link`, `dns`, `routes` and `hosts`. If it is
//! dropped without `undo`, the journal stays and [`crate::recover::recover`] finds it.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::claims::registry::Entry;
use crate::claims::{Claimant, Claims, Withheld};
use crate::fs::make_dir;
use crate::host::{Applied, Host, HostError, Link, LinkSpec, Undone, Verified};
use crate::hosts::file::HostsFile;
use crate::intent::{DnsIntent, HostsLine, Intent, IntentError};
use crate::journal::{Change, Journal};
use crate::link::{self, LinkPlan};
use crate::recover::{self, Recovered};
use crate::sys::{SessionId, Sys};
use dns::LinkDns;
use files::Files;
use routes::LinkRoutes;
use sharing::Wish;

mod dns;
mod files;
mod routes;
mod sharing;
mod verify;

/// This machine, for one session.
#[derive(Debug)]
pub struct LocalHost {
    sys: Sys,
    session: SessionId,
    files: Arc<Mutex<Files>>,
    link: Option<OpenLink>,
    dns: Option<LinkDns>,
    routes: Option<LinkRoutes>,
    /// What the last `apply` asked for.
    wanted: Wanted,
    /// What the session has for itself.
    claims: Arc<Mutex<Option<Entry>>>,
}

/// The wish that `verify` holds the machine against.
#[derive(Debug, Default)]
struct Wanted {
    /// As the session asked for it.
    asked: Intent,
    /// Who had come before when the rest was made of it.
    earlier: Vec<Claimant>,
    dns: Option<DnsIntent>,
    hosts: Arc<Vec<HostsLine>>,
    withheld: Option<Withheld>,
}

/// The link that was handed out.
#[derive(Debug)]
struct OpenLink {
    plan: LinkPlan,
    index: u32,
    seq: u64,
}

impl LocalHost {
    /// Starts the journal of a session.
    pub fn new(sys: Sys, session: SessionId) -> Result<Self, HostError> {
        make_dir(&sys.runtime_dir, 0o755, &sys.faults).map_err(HostError::Files)?;
        let journal = Journal::create(&sys, &session).map_err(HostError::Journal)?;
        let hosts = HostsFile::new(&sys, session.clone(), None);
        Ok(Self {
            sys,
            files: Arc::new(Mutex::new(Files::new(journal, hosts))),
            link: None,
            dns: None,
            routes: None,
            wanted: Wanted::default(),
            session,
            claims: Arc::default(),
        })
    }

    /// Makes the next `apply` send the DNS settings again even if the wish is the same.
    pub fn forget_dns(&mut self) {
        if let Some(dns) = &mut self.dns {
            dns.forget();
        }
    }
}

impl Host for LocalHost {
    async fn recover(&mut self) -> Result<Vec<Recovered>, HostError> {
        recover::recover(&self.sys).await
    }

    async fn claim(&mut self, claims: &Claims) -> Result<(), HostError> {
        self.claim_for_itself(claims).await
    }

    async fn open(&mut self, spec: &LinkSpec) -> Result<Link, HostError> {
        self.leave_link().await?;
        // Another session may be about to take the same name and network.
        let _machine = self.lock_machine().await?;
        let mut spec = spec.clone();
        spec.avoid.extend(self.networks_of_others().await?);
        let plan = link::plan(&spec, &self.sys.faults)
            .await
            .map_err(HostError::Link)?;
        let seq = self.intend_link(&plan).await?;
        match link::create(plan.clone(), &self.sys.faults).await {
            Ok(link) => {
                let index = link.index;
                let plan = plan.made(link.mtu, link.address6);
                self.link = Some(OpenLink { plan, index, seq });
                self.journalled(move |journal| journal.done(seq)).await?;
                Ok(link)
            }
            Err(error) => {
                self.journalled(move |journal| journal.undone(seq)).await?;
                Err(HostError::Link(error))
            }
        }
    }

    async fn apply(&mut self, intent: &Intent) -> Result<Applied, HostError> {
        // What was found valid once is not looked through again: it may be 10,000 lines.
        if intent.dns == self.wanted.asked.dns && intent.hosts == self.wanted.asked.hosts {
            let asked = &mut self.wanted.asked;
            if intent.routes != asked.routes || intent.given != asked.given {
                let only = Intent::default()
                    .with_routes(intent.routes.clone())
                    .and_then(|only| only.with_given(intent.given.clone()))
                    .map_err(HostError::Intent)?;
                (asked.routes, asked.given) = (only.routes, only.given);
            }
            self.share(Wish::Unchanged).await?;
        } else {
            self.wanted.asked = self.admitted(intent).map_err(HostError::Intent)?;
            self.share(Wish::Changed).await?;
        }
        let dns = self.wanted.dns.clone();
        let mut applied = Applied {
            withheld: self.wanted.withheld.clone(),
            ..Applied::default()
        };
        // Routes that cannot be had now must not keep names from resolving.
        let routed = self.apply_routes(&mut applied).await;
        // DNS that cannot be set now must not keep names out of the hosts file.
        let set = self.apply_dns(dns.as_ref(), &mut applied).await;
        let written = self.write_hosts(Arc::clone(&self.wanted.hosts)).await;
        // The first to be told: whoever hears of DNS alone knows that the routes are set.
        routed?;
        set?;
        let written = written?;
        if written.changed {
            applied
                .changes
                .push(format!("{} lines in the hosts file", written.lines));
        }
        applied.conflicts = written.conflicts;
        Ok(applied)
    }

    async fn verify(&mut self) -> Verified {
        self.verify_all().await
    }

    async fn undo(&mut self) -> Result<Undone, HostError> {
        self.wanted = Wanted::default();
        let mut undone = Undone::default();
        if self.blocking(|files| Ok(files.has_ended())).await? {
            return Ok(undone);
        }
        // One failure must not keep the rest from being undone.
        let dns = self.end_dns().await;
        let routes = self.revert_routes().await;
        let link = self.remove_link().await;
        let all = dns.is_ok() && routes.is_ok();
        let hosts = self.blocking(move |files| files.end(all)).await;
        // Only now: whoever is next finds nothing of ours in the way.
        self.give_up().await?;
        undone.changes.extend(dns?);
        undone.changes.extend(routes?);
        undone.changes.extend(hosts?);
        undone.changes.extend(link);
        Ok(undone)
    }
}

impl LocalHost {
    /// Returns a wish that is acceptable as a whole; nothing of any other is done.
    fn admitted(&self, intent: &Intent) -> Result<Intent, IntentError> {
        let intent = intent.clone().checked()?;
        // Names of this machine are sent to the session alone.
        if let (Some(dns), Some(OpenLink { plan, .. })) = (&intent.dns, &self.link) {
            let (_, resolver) = plan.addresses();
            dns.check_server(resolver.into())?;
        }
        Ok(intent)
    }

    /// Journals that a link will be made.
    async fn intend_link(&self, plan: &LinkPlan) -> Result<u64, HostError> {
        let name = plan.name.clone();
        self.intend(Change::Link { name }).await
    }

    /// Ends an earlier link: a session has one.
    async fn leave_link(&mut self) -> Result<(), HostError> {
        let Some(OpenLink { seq, .. }) = self.link else {
            return Ok(());
        };
        self.revert_dns().await?;
        // The link goes, and its routes with it.
        self.drop_routes().await?;
        self.remove_link().await;
        // The link is gone, and its routes with it.
        self.drop_routes().await?;
        self.journalled(move |journal| journal.undone(seq)).await
    }

    /// Removes the link, also if somebody still holds its device.
    async fn remove_link(&mut self) -> Option<String> {
        let OpenLink { plan, index, .. } = self.link.take()?;
        if let Err(error) = link::remove(&plan, index, &self.sys.faults).await {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(error, "the link stays until its device is closed");
        }
        Some(format!("link {} removed", plan.name))
    }
}

#[cfg(test)]
mod tests;
