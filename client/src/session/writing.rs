//! Writing what the session wants of the machine: DNS settings and hosts lines.

use std::net::Ipv4Addr;
use std::sync::Arc;

use kubebridge_platform::host::{Applied, Host, Kind};
use kubebridge_platform::intent::Intent;
use tokio::time::Instant;

use super::hosts::HostsKeeper;
use super::os::{Os, host_failure};
use super::parts::{Parts, SECOND_LOOK};
use super::steps::missing;
use crate::apply::{DnsPlan, HostsPolicy, dns_plan, networks};
use crate::before::Lookback;
use crate::cli::Mode;
use crate::failure::{Exit, Failure};
use crate::status::board::Followed;
use crate::zones::{ZoneNames, Zones};

impl<O: Os> Parts<'_, O> {
    /// Applies the intent and passes on what the host has to say about it.
    pub(super) async fn apply(&mut self) -> Result<Vec<String>, Failure> {
        let Some(host) = &mut self.host else {
            return Ok(Vec::new());
        };
        let applied = host.apply(&self.intent).await.map_err(host_failure)?;
        Ok(self.note_applied(applied))
    }

    /// Writes the hosts lines wanted now and returns their number.
    pub(super) async fn write_hosts(&mut self) -> Result<usize, Failure> {
        let Some(hosts) = &mut self.hosts else {
            return Ok(0);
        };
        self.intent.hosts = hosts.plan();
        let mut lines = 0;
        let outcome = self.apply_hosts().await;
        let outcome = outcome.map(|changes| {
            if !changes.is_empty() {
                self.second_look = Some(Instant::now() + SECOND_LOOK);
            }
        });
        if let Some(hosts) = &mut self.hosts {
            hosts.note_write(&outcome);
            let conflicts = hosts.conflicts();
            let error = outcome
                .as_ref()
                .err()
                .map(|failure| format!("{:#}", failure.error));
            if error.is_none() {
                lines = self.list_hosts();
            }
            self.board.note(|facts| {
                facts.hosts.conflicts = conflicts;
                facts.hosts.error = error;
            });
        }
        outcome.map(|()| lines)
    }

    /// Applies the intent for the sake of its hosts lines, which are written whatever becomes of
    /// DNS; that is put right at the next drift, when the system's resolver is back at the latest.
    async fn apply_hosts(&mut self) -> Result<Vec<String>, Failure> {
        let Some(host) = &mut self.host else {
            return Ok(Vec::new());
        };
        match host.apply(&self.intent).await {
            Ok(applied) => Ok(self.note_applied(applied)),
            Err(error) if error.kind() == Kind::Routes => {
                let trouble = format!("{:#}", host_failure(error).error);
                tracing::warn!(error = %trouble, "routes not as wanted");
                self.board.note(|facts| facts.routing.error = Some(trouble));
                Ok(Vec::new())
            }
            Err(error) if error.kind() == Kind::Dns => {
                let trouble = format!("{:#}", host_failure(error).error);
                tracing::warn!(error = %trouble, "system DNS not as wanted");
                self.board.note(|facts| facts.dns.error = Some(trouble));
                Ok(Vec::new())
            }
            Err(error) => Err(host_failure(error)),
        }
    }

    /// Takes down what the host has to say, and returns what it changed.
    pub(super) fn note_applied(&mut self, applied: Applied) -> Vec<String> {
        let Applied {
            changes,
            conflicts,
            warnings,
            withheld,
        } = applied;
        for warning in warnings {
            self.warn_once(warning);
        }
        if let Some(hosts) = &mut self.hosts {
            hosts.note_conflicts(conflicts);
        }
        self.note_withheld(withheld);
        changes
    }

    /// Brings the hosts lines up to date; what fails is tried again later.
    pub(super) async fn refresh_hosts(&mut self) {
        match self.write_hosts().await {
            Ok(lines) => tracing::debug!(lines, "hosts lines written"),
            Err(failure) => {
                tracing::warn!(error = %format!("{:#}", failure.error), "hosts file not written");
            }
        }
    }

    /// Takes over what the manager says of the cluster after a reconnect, which may be another one
    /// that knows other networks, and the namespaces that the session has now. The link stays.
    pub(super) async fn follow_cluster(&mut self) {
        let Some(cluster) = &mut self.cluster else {
            return;
        };
        let session = cluster.sessions.borrow_and_update().clone();
        let namespaces = cluster.control.namespaces().borrow().wanted().to_vec();
        let is_same = networks(&session) == networks(&cluster.session);
        let has_moved = namespaces != self.config.namespaces;
        let is_news = self
            .routes
            .as_mut()
            .is_some_and(|routes| routes.follow(&session));
        cluster.session = session;
        if is_news {
            self.warn_once("the cluster's networks are others now: its routes follow".to_owned());
            self.replan_routes().await;
        }
        if is_same && !has_moved {
            return;
        }
        let is_other_own = namespaces.first() != self.config.namespaces.first();
        tracing::info!(has_moved, "other cluster networks or namespaces");
        self.config.namespaces.clone_from(&namespaces);
        // Another session may have the networks: then nothing is taken over.
        let mut outcome = self.claim().await;
        if outcome.is_ok() {
            outcome = self.apply_zones().await;
        }
        if is_other_own {
            outcome = self.follow_own().await.and(outcome);
        }
        let trouble = outcome.err().map(|failure| format!("{:#}", failure.error));
        if let Some(trouble) = &trouble {
            tracing::warn!(error = %trouble, "cluster networks or namespaces not taken over");
            self.board
                .note(|facts| facts.dns.error = Some(trouble.clone()));
        }
        self.board.set_followed(Followed {
            namespaces,
            trouble,
        });
    }

    /// Writes the hosts lines of another namespace than before.
    async fn follow_own(&mut self) -> Result<(), Failure> {
        if self.hosts.is_none() {
            return Ok(());
        }
        self.hosts = Some(self.hosts_keeper().await?);
        self.write_hosts().await.map(drop)
    }

    /// Makes what follows the routes for the hosts file, ready for a first write.
    pub(super) async fn hosts_keeper(&self) -> Result<HostsKeeper, Failure> {
        let cluster = self.cluster.as_ref().ok_or_else(|| missing("session"))?;
        let found = self.found.as_ref().ok_or_else(|| missing("host DNS"))?;
        let policy = HostsPolicy {
            form: self.config.hosts,
            namespace: self.config.namespaces.first().cloned().unwrap_or_default(),
            cluster_domain: cluster.session.cluster_domain.clone(),
        };
        let routes = cluster.control.routes();
        let lookback =
            Lookback::start(Arc::clone(&found.originals), policy.clone(), routes.clone());
        let mut keeper = HostsKeeper::new(policy, routes, lookback);
        keeper.first_look().await;
        Ok(keeper)
    }

    /// Names are sent into the cluster before the system is told to ask us for them.
    async fn apply_zones(&mut self) -> Result<(), Failure> {
        let Some(plan) = self.dns_plan() else {
            return Ok(());
        };
        self.warn_of_missing_reverse(&plan);
        if let Some(zones) = &self.zones {
            zones.send_replace(Arc::new(Zones::new(&self.zone_names(&plan))?));
        }
        if self.intent.dns.is_some() {
            self.want_dns(plan)?;
            self.apply().await?;
            self.second_look = Some(Instant::now() + SECOND_LOOK);
        }
        Ok(())
    }

    /// The DNS settings for the cluster as it is known now; `None` before there is a link, if there
    /// shall be one.
    pub(super) fn dns_plan(&self) -> Option<DnsPlan> {
        let cluster = self.cluster.as_ref()?;
        let resolver = match self.config.mode {
            Mode::Tun => self.link.as_ref()?.resolver,
            // Nobody is pointed there: the plan is for the names alone.
            Mode::Proxy => Ipv4Addr::UNSPECIFIED,
        };
        Some(dns_plan(
            &cluster.session,
            &self.config.namespaces,
            &self.config.domains,
            resolver.into(),
        ))
    }

    /// What is resolved in the cluster under these settings.
    pub(super) fn zone_names(&self, plan: &DnsPlan) -> ZoneNames {
        let cluster = self.cluster.as_ref();
        ZoneNames {
            cluster_domain: cluster
                .map(|cluster| cluster.session.cluster_domain.clone())
                .unwrap_or_default(),
            namespaces: self.config.namespaces.clone(),
            domains: self.config.domains.clone(),
            reverse: plan.intent.reverse.clone(),
        }
    }

    pub(super) fn warn_of_missing_reverse(&self, plan: &DnsPlan) {
        for network in &plan.without_reverse {
            self.warn_once(format!(
                "{network} has too many reverse zones: its addresses have no names"
            ));
        }
    }

    /// Makes the settings part of what is wanted, and lists their domains.
    pub(super) fn want_dns(&mut self, plan: DnsPlan) -> Result<(), Failure> {
        let dns = plan.intent;
        let domains: Vec<String> = [&dns.routes, &dns.namespaces, &dns.reverse]
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        let Intent {
            hosts,
            routes,
            given,
            ..
        } = std::mem::take(&mut self.intent);
        self.intent = Intent::new(Some(dns), hosts)
            .and_then(|intent| intent.with_routes(routes)?.with_given(given))
            .map_err(|error| Failure::new(Exit::Usage, error).context("DNS settings"))?;
        self.board.note(|facts| facts.dns.domains = domains);
        Ok(())
    }
}
