//! Holding the machine against the last wish: what somebody changed is put back, the rest is left.

use std::sync::Arc;

use super::sharing::Wish;
use super::{LocalHost, OpenLink};
use crate::host::{HostError, Relinked, Verified};
use crate::link::{self, Condition, LinkPlan};

impl LocalHost {
    /// Looks at link, routes, DNS and hosts file in turn; trouble with one does not keep the others from
    /// being looked at.
    pub(super) async fn verify_all(&mut self) -> Verified {
        let mut verified = Verified::default();
        match self.blocking(|files| Ok(files.has_ended())).await {
            Ok(false) => {}
            Ok(true) => return verified,
            Err(error) => verified.troubles.push(error),
        }
        if let Err(error) = self.share(Wish::Unchanged).await {
            verified.troubles.push(error);
        }
        verified.withheld.clone_from(&self.wanted.withheld);
        match self.mend_link(&mut verified.repairs).await {
            Ok(relinked) => verified.link = relinked,
            Err(error) => verified.troubles.push(error),
        }
        if let Err(error) = self.verify_routes(&mut verified.repairs).await {
            verified.troubles.push(error);
        }
        if let Err(error) = self.verify_dns(&mut verified.repairs).await {
            verified.troubles.push(error);
        }
        match self.write_hosts(Arc::clone(&self.wanted.hosts)).await {
            Ok(written) => {
                if written.changed {
                    let lines = written.lines;
                    verified
                        .repairs
                        .push(format!("{lines} lines put back into the hosts file"));
                }
                verified.conflicts = written.conflicts;
            }
            Err(error) => verified.troubles.push(error),
        }
        verified
    }

    /// Mends the link, or makes it anew, with the same addresses, when it was removed.
    async fn mend_link(
        &mut self,
        repairs: &mut Vec<String>,
    ) -> Result<Option<Relinked>, HostError> {
        let Some(OpenLink { plan, index, seq }) = &self.link else {
            return Ok(None);
        };
        let (plan, index, seq) = (plan.clone(), *index, *seq);
        match link::mend(&plan, index).await.map_err(HostError::Link)? {
            Condition::Whole(mended) => {
                repairs.extend(mended);
                Ok(None)
            }
            Condition::Gone => {
                self.drop_dns().await?;
                self.drop_routes().await?;
                let relinked = self.relink(plan, seq).await?;
                repairs.push(format!("link {} made anew", relinked.name));
                Ok(Some(relinked))
            }
        }
    }

    async fn relink(&mut self, old: LinkPlan, old_seq: u64) -> Result<Relinked, HostError> {
        // Its own /30, and only that: the system's DNS points there.
        let spec = crate::host::LinkSpec {
            cidr: Some(old.net),
            avoid: Vec::new(),
            mtu: old.mtu,
            v6: old.address6.is_some(),
        };
        let faults = &self.sys.faults;
        let plan = link::plan(&spec, faults).await.map_err(HostError::Link)?;
        let seq = self.intend_link(&plan).await?;
        let made = link::create_device(&plan, faults).await;
        let undone = if made.is_ok() { old_seq } else { seq };
        self.journalled(move |journal| journal.undone(undone))
            .await?;
        let link::Device {
            tun,
            index,
            mtu,
            address6,
        } = made.map_err(HostError::Link)?;
        let plan = plan.made(mtu, address6);
        let name = plan.name.clone();
        self.link = Some(OpenLink { plan, index, seq });
        Ok(Relinked { name, index, tun })
    }
}
