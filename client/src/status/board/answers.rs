//! What a session answers beyond what is written on its board: names, ways, and the means for both.

use std::sync::Arc;

use kubebridge_proto::explain::Freshness;

use super::reports::{routing, tunnel_report};
use super::{Board, HostsLineReport};
use crate::failure::{Exit, Failure};
use crate::flows::Flows;
use crate::inquiry::path::{PathReport, PathTarget};
use crate::inquiry::report::{FlushReport, QueryReport, TraceReport, UpstreamsReport};
use crate::inquiry::{Inquiry, Question};
use crate::places::SessionPlaces;
use crate::proxy::EnvReport;
use crate::zones::Destination;

impl Board {
    /// Resolves a name and tells how.
    ///
    /// # Errors
    ///
    /// The question is none, or there is no resolver yet.
    pub async fn trace(
        &self,
        question: &Question,
        freshness: Freshness,
    ) -> Result<TraceReport, String> {
        let inquiry = self.inquiry()?;
        let session = &self.identity.session;
        let mut report = inquiry.trace(session, question, freshness).await?;
        let now = self.clock.now();
        let facts = self.facts.lock();
        report.system_dns = facts.dns.applied;
        let has_name = |line: &&HostsLineReport| {
            let mut names = line.names.iter();
            names.any(|name| name.eq_ignore_ascii_case(&report.name))
        };
        report.hosts = facts.lines.iter().find(has_name).cloned();
        if report.rule.destination == Destination::Cluster {
            let tunnel = facts.tunnel.as_ref();
            report.tunnel = tunnel.map(|tunnel| tunnel_report(&tunnel.borrow(), now));
        }
        Ok(report)
    }

    /// Resolves a name.
    ///
    /// # Errors
    ///
    /// The question is none, or there is no resolver yet.
    pub async fn query(&self, question: &Question) -> Result<QueryReport, String> {
        let inquiry = self.inquiry()?;
        inquiry.query(&self.identity.session, question).await
    }

    /// Forgets the answers that the session keeps.
    ///
    /// # Errors
    ///
    /// There is no resolver yet.
    pub fn flush(&self) -> Result<FlushReport, String> {
        Ok(self.inquiry()?.flush(&self.identity.session))
    }

    /// Reports the upstreams of both ends.
    ///
    /// # Errors
    ///
    /// There is no resolver yet.
    pub async fn upstreams(&self) -> Result<UpstreamsReport, String> {
        let inquiry = self.inquiry()?;
        Ok(inquiry.upstreams(&self.identity.session).await)
    }

    /// Follows the way to a destination.
    ///
    /// # Errors
    ///
    /// There is no resolver yet.
    pub async fn path(&self, target: &PathTarget) -> Result<PathReport, String> {
        let inquiry = self.inquiry()?;
        let routing = routing(&self.facts.lock(), self.clock.now());
        Ok(inquiry.path(self.session(), target, &routing).await)
    }

    /// Tells what clients of the proxy have to know.
    ///
    /// # Errors
    ///
    /// There is no proxy.
    pub fn env(&self) -> Result<EnvReport, Failure> {
        let facts = self.facts.lock();
        let none = || {
            Failure::message(Exit::Other, "the session has no proxy")
                .with_hint("kubebridge connect --mode proxy makes one that has")
        };
        let proxy = facts.proxy.as_ref().ok_or_else(none)?;
        Ok(EnvReport::new(
            self.session(),
            proxy.address,
            &proxy.password,
        ))
    }

    /// Returns what opens connections into the cluster, and where they may lead.
    ///
    /// # Errors
    ///
    /// The session is not that far yet.
    pub fn ways(&self) -> Result<(Arc<Flows>, Arc<SessionPlaces>), Failure> {
        let facts = self.facts.lock();
        match (&facts.flows, &facts.places) {
            (Some(flows), Some(places)) => Ok((Arc::clone(flows), Arc::clone(places))),
            (Some(_) | None, _) => Err(Failure::message(
                Exit::Other,
                "the session is not connected yet",
            )),
        }
    }

    /// Returns the session's id.
    #[must_use]
    pub fn session(&self) -> &str {
        &self.identity.session
    }

    fn inquiry(&self) -> Result<Arc<Inquiry>, String> {
        let inquiry = self.facts.lock().inquiry.clone();
        inquiry.ok_or_else(|| "the session has no resolver yet".to_owned())
    }
}
