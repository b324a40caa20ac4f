//! What a connected session does when the machine may no longer be as it left it.
//!
//! Noticing is `platform`'s watch, putting back its `verify`; here both are tied to the session's
//! parts and to what `status` tells.

use kubebridge_platform::host::{Host, Relinked, Verified};
use kubebridge_platform::{Cause, Drift};
use tokio::time::Instant;

use super::os::Os;
use super::parts::{Parts, SECOND_LOOK, link_words};

impl<O: Os> Parts<'_, O> {
    /// Holds the machine against what the session wants of it, and takes down what was put back.
    pub(super) async fn verify(&mut self) {
        let drift = self.drift.take();
        self.second_look = None;
        let slept = drift.as_ref().is_some_and(Drift::slept);
        if slept && let Some(cluster) = &self.cluster {
            tracing::info!("the machine slept");
            cluster.control.doubt();
            cluster.flows.doubt();
        }
        if let Some(host) = &mut self.host {
            let verified = host.verify().await;
            self.take_over(verified).await;
        }
        if drift.as_ref().is_some_and(may_have_moved) {
            self.read_originals().await;
            self.replan_routes().await;
        }
    }

    async fn take_over(&mut self, verified: Verified) {
        let Verified {
            repairs,
            conflicts,
            withheld,
            link,
            troubles,
        } = verified;
        self.note_withheld(withheld);
        if let Some(relinked) = link {
            self.take_link(relinked).await;
        }
        if let Some(hosts) = &mut self.hosts {
            hosts.note_conflicts(conflicts);
            let conflicts = hosts.conflicts();
            self.board.note(|facts| facts.hosts.conflicts = conflicts);
        }
        for repair in &repairs {
            tracing::warn!(%repair, "put back what somebody changed");
        }
        if !repairs.is_empty() {
            self.second_look = Some(Instant::now() + SECOND_LOOK);
        }
        self.board.note_verified(repairs, troubles);
    }

    /// The old device's link is gone; what was open on it goes on over the new one.
    async fn take_link(&mut self, relinked: Relinked) {
        let Relinked { name, index, tun } = relinked;
        if let Some(watch) = &self.watch {
            watch.follow(Some(index));
        }
        if let Some(link) = &mut self.link {
            link.name.clone_from(&name);
            link.index = index;
            let words = link_words(&name, link.address, link.prefix);
            self.board.note(|facts| facts.dns.link = Some(words));
        }
        match (tun.packets(), &self.netstack) {
            (Ok(packets), Some(netstack)) => netstack.replace(packets).await,
            (Ok(_), None) => {}
            (Err(error), _) => tracing::error!(%error, "the new link cannot be read"),
        }
    }

    /// Another network has other servers for the names outside.
    async fn read_originals(&self) {
        let Some(found) = &self.found else {
            return;
        };
        let dns = match self.os.read_dns().await {
            Ok(dns) => dns,
            Err(failure) => {
                tracing::warn!(error = %format!("{:#}", failure.error), "system DNS not read");
                return;
            }
        };
        if found.originals.replace(&dns.servers) {
            tracing::info!("other original servers");
            let servers = found.originals.servers();
            self.board.note(|facts| {
                facts.dns.originals = servers.iter().map(ToString::to_string).collect();
            });
        }
    }
}

/// Whether the machine may be on another network than before.
fn may_have_moved(drift: &Drift) -> bool {
    let causes = [Cause::DnsSettings, Cause::ResolvedStarted, Cause::Network];
    drift.slept() || causes.iter().any(|cause| drift.causes.contains(cause))
}
