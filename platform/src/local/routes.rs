//! The routes into the session's link: guarded, journalled, set one by one, put back when removed.
//!
//! The guards hold here, in the process that may change the machine, whatever the session asks for:
//! what the machine uses is read anew before each change.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{LocalHost, OpenLink};
use crate::dns::read_host_dns;
use crate::host::{Applied, HostError};
use crate::journal::Change;
use crate::link;
use crate::net::IpNet;
use crate::routes::netlink::Netlink;
use crate::routes::{Known, RoutesError, check, read_taken};

/// How many new routes the kernel is asked about: a VPN that comes first takes nearly all of them.
const MOST_ASKED: usize = 64;

/// The routes of the link.
#[derive(Debug, Default)]
pub(super) struct LinkRoutes {
    seq: u64,
    /// What was set.
    set: BTreeSet<IpNet>,
    /// Whether the kernel took all of it.
    is_whole: bool,
}

impl LocalHost {
    /// Brings the routes to what is wanted, adding before removing, so that nothing wanted is
    /// without a route in between.
    pub(super) async fn apply_routes(&mut self, applied: &mut Applied) -> Result<(), HostError> {
        let wanted: BTreeSet<_> = self.wanted.asked.routes.iter().copied().collect();
        let is_done = match &self.routes {
            Some(routes) => routes.is_whole && routes.set == wanted,
            None => wanted.is_empty(),
        };
        if is_done {
            return Ok(());
        }
        if wanted.is_empty() {
            applied.changes.extend(self.revert_routes().await?);
            return Ok(());
        }
        let OpenLink { plan, index, .. } = self.link.as_ref().ok_or(HostError::NoLink)?;
        let (name, index) = (plan.name.clone(), *index);
        let new: Vec<_> = match &self.routes {
            Some(routes) => wanted.difference(&routes.set).copied().collect(),
            None => wanted.iter().copied().collect(),
        };
        self.guard(index, &wanted).await?;
        self.give_v6(&wanted).await?;
        self.journal_routes(&name, index, wanted.clone()).await?;
        let changed = self.set_routes(&name, index, &wanted).await?;
        self.note_whole();
        applied.changes.extend(changed);
        applied.warnings.extend(not_taken(index, &new).await?);
        Ok(())
    }

    /// Holds the kernel's routes against what was set, and puts back what differs.
    pub(super) async fn verify_routes(
        &mut self,
        repairs: &mut Vec<String>,
    ) -> Result<(), HostError> {
        if self.wanted.asked.routes.is_empty() {
            return Ok(());
        }
        if self.routes.is_none() {
            let mut applied = Applied::default();
            self.apply_routes(&mut applied).await?;
            repairs.extend(applied.changes);
            return Ok(());
        }
        let OpenLink { plan, index, .. } = self.link.as_ref().ok_or(HostError::NoLink)?;
        let (name, index) = (plan.name.clone(), *index);
        let wanted: BTreeSet<_> = self.wanted.asked.routes.iter().copied().collect();
        let there = ours(index).await?;
        if there != wanted {
            self.guard(index, &wanted).await?;
            repairs.extend(self.set_routes(&name, index, &wanted).await?);
        }
        self.note_whole();
        Ok(())
    }

    fn note_whole(&mut self) {
        if let Some(routes) = &mut self.routes {
            routes.is_whole = true;
        }
    }

    /// Removes every route of ours.
    pub(super) async fn revert_routes(&mut self) -> Result<Option<String>, HostError> {
        let (Some(LinkRoutes { seq, set, .. }), Some(link)) = (&self.routes, &self.link) else {
            return Ok(None);
        };
        let (seq, count) = (*seq, set.len());
        self.set_routes(&link.plan.name, link.index, &BTreeSet::new())
            .await?;
        self.routes = None;
        self.journalled(move |journal| journal.undone(seq)).await?;
        Ok(Some(format!("{count} routes removed")))
    }

    /// Forgets the routes of a link that is gone: the kernel has, too.
    pub(super) async fn drop_routes(&mut self) -> Result<(), HostError> {
        if let Some(LinkRoutes { seq, .. }) = self.routes.take() {
            self.journalled(move |journal| journal.undone(seq)).await?;
        }
        Ok(())
    }

    /// Packets over IPv6 need an address to come from, which most links have from the start.
    async fn give_v6(&mut self, wanted: &BTreeSet<IpNet>) -> Result<(), HostError> {
        match &mut self.link {
            Some(link) if wanted.iter().any(|net| matches!(net, IpNet::V6(_))) => {
                let given = link::give_v6(&mut link.plan, link.index).await;
                given.map_err(HostError::Link)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Refuses routes that take what the machine uses now.
    async fn guard(&self, link: u32, wanted: &BTreeSet<IpNet>) -> Result<(), HostError> {
        // Without a word about name servers there are none to protect.
        let dns = read_host_dns(&self.sys).await;
        let servers = dns.map(|dns| dns.servers).unwrap_or_default();
        let known = Known {
            name_servers: servers.iter().map(|server| server.ip()).collect(),
            link: Some(link),
            ours: ours(link).await?.into_iter().collect(),
            ..Known::default()
        };
        let taken = read_taken(&self.sys, &known).await;
        let taken = taken.map_err(HostError::Routes)?;
        let wanted: Vec<_> = wanted.iter().copied().collect();
        check(&wanted, &taken.giving(&self.wanted.asked.given)).map_err(HostError::Routes)
    }

    /// Journals the routes to come; those before them are theirs to take back from now on.
    async fn journal_routes(
        &mut self,
        name: &str,
        index: u32,
        set: BTreeSet<IpNet>,
    ) -> Result<(), HostError> {
        let before = self.routes.as_ref();
        let old = before.map(|routes| routes.seq);
        let all = before
            .into_iter()
            .flat_map(|routes| &routes.set)
            .chain(&set);
        let all: BTreeSet<_> = all.copied().collect();
        let change = Change::Routes {
            name: name.to_owned(),
            index,
            routes: all.into_iter().collect(),
        };
        let seq = self.intend(change).await?;
        self.routes = Some(LinkRoutes {
            seq,
            set,
            is_whole: false,
        });
        if let Some(old) = old {
            self.journalled(move |journal| journal.undone(old)).await?;
        }
        Ok(())
    }

    /// Adds and removes what differs from the kernel's; says what was done.
    async fn set_routes(
        &self,
        name: &str,
        index: u32,
        wanted: &BTreeSet<IpNet>,
    ) -> Result<Option<String>, HostError> {
        let netlink = Netlink::open().map_err(HostError::Routes)?;
        let there = netlink.ours(index).await.map_err(HostError::Routes)?;
        let (mut added, mut removed) = (0, 0);
        for net in wanted.difference(&there) {
            self.step("add a route")?;
            let add = netlink.add(*net, name, index).await;
            add.map_err(HostError::Routes)?;
            added += 1;
        }
        for net in there.difference(wanted) {
            self.step("remove a route")?;
            let remove = netlink.remove(*net, name, index).await;
            remove.map_err(HostError::Routes)?;
            removed += 1;
        }
        if let Some(seq) = self.routes.as_ref().map(|routes| routes.seq) {
            self.journalled(move |journal| journal.done(seq)).await?;
        }
        Ok((added + removed > 0).then(|| route_change(name, added, removed)))
    }

    fn step(&self, name: &'static str) -> Result<(), HostError> {
        let asked = self.sys.faults.step(name);
        asked.map_err(|error| HostError::Routes(RoutesError::Fault(error)))
    }
}

/// Asks the kernel whether routes have an effect: another table may come first. One that has none
/// is enough to tell that.
async fn not_taken(index: u32, routes: &[IpNet]) -> Result<Option<String>, HostError> {
    let netlink = Netlink::open().map_err(HostError::Routes)?;
    for net in routes.iter().take(MOST_ASKED) {
        let address = first(net);
        let found = netlink.link_to(address).await;
        if found.map_err(HostError::Routes)? != Some(index) {
            return Ok(Some(format!(
                "packets to {net} do not take the session's route: another routing table comes \
                 first, a VPN's most likely (ip rule; ip route get {address})"
            )));
        }
    }
    Ok(None)
}

/// An address of the network that a program may connect to.
fn first(net: &IpNet) -> IpAddr {
    match net {
        IpNet::V4(net) => net.address().into(),
        IpNet::V6(net) => net.address().into(),
    }
}

async fn ours(index: u32) -> Result<BTreeSet<IpNet>, HostError> {
    let netlink = Netlink::open().map_err(HostError::Routes)?;
    netlink.ours(index).await.map_err(HostError::Routes)
}

fn route_change(name: &str, added: usize, removed: usize) -> String {
    match (added, removed) {
        (added, 0) => format!("{added} routes into {name}"),
        (0, removed) => format!("{removed} routes out of {name} removed"),
        (added, removed) => format!("{added} routes into {name}, {removed} removed"),
    }
}
