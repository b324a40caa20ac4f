//! What the session has for itself on a machine it shares with others.

use kubebridge_platform::Claims;
use kubebridge_platform::claims::Withheld;
use kubebridge_platform::host::Host;
use kubebridge_platform::intent::HostsLine;

use super::os::{Os, host_failure};
use super::parts::Parts;
use super::routes::wished;
use crate::failure::Failure;
use crate::status::{HostsLineReport, WithheldReport};

impl<O: Os> Parts<'_, O> {
    /// Claims what the cluster has, as it is known now.
    pub(super) async fn claim(&mut self) -> Result<(), Failure> {
        match (self.claims(), &mut self.host) {
            (Some(claims), Some(host)) => host.claim(&claims).await.map_err(host_failure),
            (None, _) | (_, None) => Ok(()),
        }
    }

    /// What the cluster has; `None` before it is known.
    pub(super) fn claims(&self) -> Option<Claims> {
        let cluster = self.cluster.as_ref()?;
        Some(Claims {
            name: match self.config.target.context() {
                Some(context) => format!("context {context}"),
                None => format!("manager {}", self.config.target),
            },
            domain: cluster.session.cluster_domain.clone(),
            suffixes: self.config.domains.clone(),
            namespaces: self.config.namespaces.clone(),
            networks: wished(&self.config.routes, &cluster.session),
        })
    }

    /// Leaves to others what this session had.
    pub(super) async fn give_up(&mut self) -> Result<(), Failure> {
        match &mut self.host {
            Some(host) => host.claim(&Claims::default()).await.map_err(host_failure),
            None => Ok(()),
        }
    }

    /// Takes down what another session has because it came first.
    pub(super) fn note_withheld(&mut self, withheld: Option<Withheld>) {
        if withheld == self.withheld {
            return;
        }
        self.withheld.clone_from(&withheld);
        self.list_hosts();
        let report = withheld.map(WithheldReport::from);
        tracing::info!(withheld = ?report, "what other sessions have changed");
        self.board.note(|facts| facts.withheld = report);
    }

    /// Lists the hosts lines that are wanted and not another session's, and counts them.
    pub(super) fn list_hosts(&self) -> usize {
        let mut lines = self.intent.hosts.clone();
        if let Some(withheld) = &self.withheld {
            withheld.cut(&mut lines);
        }
        let listed: Vec<_> = lines.iter().map(HostsLineReport::from).collect();
        let count = listed.len();
        self.board.note(|facts| {
            facts.hosts.lines = count;
            facts.lines = listed;
        });
        count
    }
}

impl From<&HostsLine> for HostsLineReport {
    fn from(line: &HostsLine) -> Self {
        Self {
            address: line.address.to_string(),
            names: line.names.clone(),
        }
    }
}
