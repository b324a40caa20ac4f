//! What the session has for itself on a machine it shares with others.

use kubebridge_platform::Claims;
use kubebridge_platform::claims::Withheld;
use kubebridge_platform::host::Host;
use kubebridge_platform::intent::HostsLine;

use super::os::{Os, host_failure};
use super::parts::Parts;
use crate::apply::networks;
use crate::failure::Failure;
use crate::status::{HostsLineReport, WithheldReport};

impl<O: Os> Parts<'_, O> {
    /// Claims what the cluster has, as it is known now.
    pub(super) async fn claim(&mut self) -> Result<(), Failure> {
        let Some(cluster) = &self.cluster else {
            return Ok(());
        };
        let claims = Claims {
            name: match self.config.target.context() {
                Some(context) => format!("context {context}"),
                None => format!("manager {}", self.config.target),
            },
            domain: cluster.session.cluster_domain.clone(),
            suffixes: self.config.domains.clone(),
            namespaces: self.config.namespaces.clone(),
            networks: networks(&cluster.session),
        };
        match &mut self.host {
            Some(host) => host.claim(&claims).await.map_err(host_failure),
            None => Ok(()),
        }
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
        let report = withheld.map(|withheld| WithheldReport {
            session: withheld.session.to_string(),
            name: withheld.name,
            domains: withheld.domains,
            hosts_names: withheld.hosts_names,
        });
        tracing::info!(withheld = ?report, "what other sessions have changed");
        self.board.note(|facts| facts.withheld = report);
    }

    /// Lists the hosts lines that are wanted and not another session's, and counts them.
    pub(super) fn list_hosts(&self) -> usize {
        let mut lines = self.intent.hosts.clone();
        if let Some(withheld) = &self.withheld {
            withheld.cut(&mut lines);
        }
        let listed: Vec<_> = lines.iter().map(line_report).collect();
        let count = listed.len();
        self.board.note(|facts| {
            facts.hosts.lines = count;
            facts.lines = listed;
        });
        count
    }
}

fn line_report(line: &HostsLine) -> HostsLineReport {
    HostsLineReport {
        address: line.address.to_string(),
        names: line.names.clone(),
    }
}
