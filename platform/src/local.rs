//! `LocalHost`: a root process changing its own machine.
//!
//! It orders and journals; what each change is, is decided in `link`, `dns` and `hosts`. If it is
//! dropped without `undo`, the journal stays and [`crate::recover::recover`] finds it.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::dns::resolved::Resolved;
use crate::fs::{FsError, Lock, make_dir};
use crate::host::{Applied, Host, HostError, Link, LinkSpec, Undone};
use crate::hosts::file::{HostsFile, Written};
use crate::intent::{DnsIntent, HostsLine, Intent};
use crate::journal::{Change, Journal, JournalError};
use crate::link;
use crate::sys::{SessionId, Sys};

/// This machine, for one session; at most one exists per machine.
#[derive(Debug)]
pub struct LocalHost {
    sys: Sys,
    files: Arc<Mutex<Files>>,
    link: Option<OpenLink>,
    dns: Option<LinkDns>,
    /// Held until drop.
    _lock: Lock,
}

/// What is worked on by blocking calls, on a thread of its own.
struct Files {
    /// `None` after `undo`.
    journal: Option<Journal>,
    hosts: HostsFile,
}

/// The link that was handed out.
#[derive(Debug)]
struct OpenLink {
    name: String,
    index: u32,
    seq: u64,
}

/// The DNS settings of the link.
#[derive(Debug)]
struct LinkDns {
    resolved: Resolved,
    seq: u64,
    /// What is known to be in force; `None` forces the next `apply` to send everything again.
    applied: Option<(DnsIntent, Vec<String>)>,
}

impl LocalHost {
    /// Takes the machine for one session and starts its journal.
    pub fn new(sys: Sys, session: SessionId) -> Result<Self, HostError> {
        make_dir(&sys.runtime_dir, 0o755).map_err(HostError::Files)?;
        let path = sys.session_lock();
        let Some(mut lock) = Lock::try_acquire(&path).map_err(HostError::Files)? else {
            let pid = Lock::signature(&path).and_then(|text| text.trim().parse().ok());
            return Err(HostError::Busy {
                pid: pid.unwrap_or(0),
            });
        };
        let signed = lock.sign(&format!("{}\n", std::process::id()));
        signed
            .map_err(FsError::io("signing", &path))
            .map_err(HostError::Files)?;
        let journal =
            Journal::create(&sys.journal(&session), &session).map_err(HostError::Journal)?;
        let hosts = HostsFile::new(&sys, session, None);
        let files = Arc::new(Mutex::new(Files {
            journal: Some(journal),
            hosts,
        }));
        Ok(Self {
            sys,
            files,
            link: None,
            dns: None,
            _lock: lock,
        })
    }

    /// Makes the next `apply` send the DNS settings again even if the wish is the same, for when
    /// systemd-resolved was restarted or the link changed.
    pub fn forget_dns(&mut self) {
        if let Some(dns) = &mut self.dns {
            dns.applied = None;
        }
    }

    async fn apply_dns(
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

    /// Journals that our link's settings will change.
    async fn start_dns(&self) -> Result<LinkDns, HostError> {
        let OpenLink { name, index, .. } = self.link.as_ref().ok_or(HostError::NoLink)?;
        let resolved = Resolved::new(&self.sys, name, *index);
        let change = Change::LinkDns {
            name: name.clone(),
            index: *index,
        };
        let seq = self
            .journalled(move |journal| journal.intend(change))
            .await?;
        Ok(LinkDns {
            resolved,
            seq,
            applied: None,
        })
    }

    async fn revert_dns(&mut self) -> Result<Option<String>, HostError> {
        let Some(dns) = &self.dns else {
            return Ok(None);
        };
        dns.resolved.revert().await.map_err(HostError::Dns)?;
        let seq = dns.seq;
        self.journalled(move |journal| journal.undone(seq)).await?;
        self.dns = None;
        Ok(Some("DNS settings of the link reverted".to_owned()))
    }

    async fn write_hosts(&self, lines: Vec<HostsLine>) -> Result<Written, HostError> {
        self.blocking(move |files| {
            let journal = files.journal.as_mut().ok_or(HostError::Ended)?;
            files.hosts.write(&lines, journal).map_err(HostError::Hosts)
        })
        .await
    }

    async fn journalled<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Journal) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, HostError> {
        self.blocking(|files| {
            let journal = files.journal.as_mut().ok_or(HostError::Ended)?;
            work(journal).map_err(HostError::Journal)
        })
        .await
    }

    /// Runs file work where it may block.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Files) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let files = Arc::clone(&self.files);
        let done = tokio::task::spawn_blocking(move || work(&mut files.lock())).await;
        done.unwrap_or(Err(HostError::Worker))
    }
}

impl Host for LocalHost {
    async fn open(&mut self, spec: &LinkSpec) -> Result<Link, HostError> {
        let plan = link::plan(spec).await.map_err(HostError::Link)?;
        let change = Change::Link {
            name: plan.name.clone(),
        };
        let seq = self
            .journalled(move |journal| journal.intend(change))
            .await?;
        match link::create(plan).await {
            Ok(link) => {
                self.link = Some(OpenLink {
                    name: link.name.clone(),
                    index: link.index,
                    seq,
                });
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
        let Intent { dns, hosts } = intent.clone().checked().map_err(HostError::Intent)?;
        let mut applied = Applied::default();
        self.apply_dns(dns.as_ref(), &mut applied).await?;
        let written = self.write_hosts(hosts).await?;
        if written.changed {
            applied
                .changes
                .push(format!("{} lines in the hosts file", written.lines));
        }
        applied.conflicts = written.conflicts;
        Ok(applied)
    }

    async fn undo(&mut self) -> Result<Undone, HostError> {
        let mut undone = Undone::default();
        if self.blocking(|files| Ok(files.journal.is_none())).await? {
            return Ok(undone);
        }
        // One failure must not keep the rest from being undone.
        let dns = self.revert_dns().await;
        let hosts = self.write_hosts(Vec::new()).await;
        undone.changes.extend(dns?);
        if hosts?.changed {
            undone
                .changes
                .push("lines removed from the hosts file".to_owned());
        }
        if let Some(OpenLink { name, seq, .. }) = self.link.take() {
            self.journalled(move |journal| journal.undone(seq)).await?;
            undone.changes.push(format!("link {name} released"));
        }
        self.blocking(|files| match files.journal.take() {
            Some(journal) => journal.close().map_err(HostError::Journal),
            None => Ok(()),
        })
        .await?;
        Ok(undone)
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

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("journal", &self.journal)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
