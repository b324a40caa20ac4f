//! The IP routes of a session: what the cluster has, what the machine has already, what is made of
//! both, and the hosts that answers add for a while.
//!
//! Decides; setting routes is `platform`'s, and `session/routes/keeping.rs` ties the two together.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use kubebridge_platform::net::IpNet;
use kubebridge_platform::routes::{self, MAX_ROUTES, Overlap, Plan, Taken, Why};
use kubebridge_proto::routes::ServiceKind;
use kubebridge_proto::session::SessionInfo;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::failure::{Exit, Failure};
use crate::reachable::{Answered, Holds, HostRoutes, Reachable};
use crate::routes::RouteTable;
use crate::status::routing::{NetworkReport, RoutingReport};
use hosts::{Hosts, MAX_HOSTS};
use news::left_out;

mod hosts;
mod keeping;
mod news;

/// Services outside the known networks that are routed one by one: a cluster whose networks are
/// not known at all may have that many in one namespace.
const MAX_OBSERVED: usize = 1024;

/// What the user says about routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteChoice {
    /// Networks beside the cluster's own (`--include-cidr`).
    pub include: Vec<IpNet>,
    /// Networks to take from wider routes of the machine (`--take-cidr`).
    pub take: Vec<IpNet>,
    /// Networks to leave alone (`--exclude-cidr`).
    pub exclude: Vec<IpNet>,
    /// Who is logged in, as `SSH_CONNECTION` says.
    pub peers: Vec<IpAddr>,
}

/// What a network is wanted for.
type Wanted = BTreeMap<IpNet, BTreeSet<String>>;

/// The routes of one session.
#[derive(Debug)]
pub(super) struct RoutesKeeper {
    choice: RouteChoice,
    /// The networks of the cluster, by what they are for.
    cluster: Wanted,
    /// `ClusterIP`s outside them.
    observed: BTreeMap<IpAddr, String>,
    hosts: Hosts,
    /// What the machine uses, without what its user gives up.
    taken: Taken,
    /// What was taken from which route.
    given_up: Vec<Overlap>,
    /// Addresses of the way to the cluster, found when the machine was read last.
    pub(super) way: Vec<IpAddr>,
    plan: Plan,
    services: watch::Receiver<RouteTable>,
    /// Whether the Services were not looked through since the networks changed.
    is_stale: bool,
    /// When the Services may be looked through again.
    not_before: Instant,
    holds: Holds,
    reachable: watch::Sender<Arc<Reachable>>,
    answered: mpsc::Receiver<Answered>,
    resolver: HostRoutes,
    /// Answered addresses that the machine or the user has for something else.
    refused: BTreeSet<IpAddr>,
    /// Answers that wait for what is being done.
    waiting: Vec<Answered>,
    /// Overlaps that were told already.
    told: BTreeSet<String>,
}

impl RoutesKeeper {
    pub(super) fn new(
        choice: RouteChoice,
        session: &SessionInfo,
        services: watch::Receiver<RouteTable>,
    ) -> Self {
        let (reachable, follow) = watch::channel(Arc::default());
        let (resolver, answered) = HostRoutes::new(follow);
        Self {
            choice,
            cluster: cluster_networks(session),
            observed: BTreeMap::new(),
            hosts: Hosts::default(),
            taken: Taken::default(),
            given_up: Vec::new(),
            way: Vec::new(),
            plan: Plan::default(),
            services,
            is_stale: true,
            not_before: Instant::now(),
            holds: Holds::default(),
            reachable,
            answered,
            resolver,
            refused: BTreeSet::new(),
            waiting: Vec::new(),
            told: BTreeSet::new(),
        }
    }

    /// What the resolver tells answered addresses to.
    pub(super) fn resolver(&self) -> HostRoutes {
        self.resolver.clone()
    }

    /// The networks that are wanted, whatever becomes of them.
    pub(super) fn wanted(&self) -> Vec<IpNet> {
        self.purposes().into_keys().collect()
    }

    /// Takes over what the manager says of the cluster; tells whether that is news.
    pub(super) fn follow(&mut self, session: &SessionInfo) -> bool {
        let networks = cluster_networks(session);
        let is_news = networks != self.cluster;
        self.is_stale |= is_news;
        self.cluster = networks;
        is_news
    }

    /// Takes over what the machine uses.
    pub(super) fn take(&mut self, taken: Taken) {
        self.given_up = taken.given_up(&self.choice.take);
        self.taken = taken.giving(&self.choice.take);
    }

    /// Looks for `ClusterIP`s outside the known networks; tells whether they are others than before.
    pub(super) fn observe(&mut self) -> bool {
        if !self.is_stale && !self.services.has_changed().unwrap_or(false) {
            return false;
        }
        self.is_stale = false;
        let RouteChoice { include, take, .. } = &self.choice;
        let known: Vec<_> = self.cluster.keys().chain(include).chain(take).collect();
        let table = self.services.borrow_and_update();
        let mut seen = BTreeMap::new();
        for (namespace, _) in table.namespaces() {
            let routes = table.services(namespace);
            let addressed = routes.filter(|route| route.kind == ServiceKind::ClusterIp);
            for route in addressed {
                let all = route.cluster_ips.iter();
                let outside = all.filter(|ip| !known.iter().any(|net| net.contains(**ip)));
                for address in outside.take(MAX_OBSERVED.saturating_sub(seen.len())) {
                    seen.insert(*address, format!("service {}.{namespace}", route.name));
                }
            }
        }
        drop(table);
        let is_changed = seen.keys().ne(self.observed.keys());
        self.observed = seen;
        is_changed
    }

    /// Plans anew.
    ///
    /// # Errors
    ///
    /// There are too many routes.
    pub(super) fn replan(&mut self) -> Result<(), Failure> {
        let plan = routes::plan(&self.wanted(), &self.taken, &self.choice.exclude);
        let room = MAX_ROUTES - MAX_HOSTS;
        if plan.routes.len() > room {
            return Err(Failure::message(
                Exit::HostOs,
                format!("{} routes are too many (at most {room})", plan.routes.len()),
            )
            .with_hint("--include-cidr with the network around them makes them one"));
        }
        self.plan = plan;
        let may = may_host(&self.taken, &self.plan, &self.choice.exclude);
        self.hosts.retain(may);
        self.refused.clear();
        Ok(())
    }

    /// Takes answers in, and drops the hosts whose time is over.
    pub(super) fn renew_hosts(&mut self, now: Instant) {
        while let Ok(answered) = self.answered.try_recv() {
            self.waiting.push(answered);
        }
        let held = |address| self.holds.has(address);
        self.hosts.expire(now, held);
        let may = may_host(&self.taken, &self.plan, &self.choice.exclude);
        for answered in &self.waiting {
            for address in &answered.addresses {
                if may(*address) {
                    let (name, ttl) = (answered.name.as_str(), answered.ttl);
                    self.hosts.note(*address, name, ttl, now, held);
                } else if self.refused.len() < MAX_HOSTS {
                    self.refused.insert(*address);
                }
            }
        }
    }

    /// What the user gives up of wider routes.
    pub(super) fn given(&self) -> Vec<IpNet> {
        self.choice.take.clone()
    }

    /// The routes wanted now: those planned, and the hosts.
    pub(super) fn routes(&self) -> Vec<IpNet> {
        let hosts = self
            .hosts
            .iter()
            .filter_map(|(address, _)| host_net(address));
        self.plan.routes.iter().copied().chain(hosts).collect()
    }

    /// Says that the routes are set: connections may go there, and answers be given.
    pub(super) fn publish(&mut self) {
        let hosts = self
            .hosts
            .iter()
            .map(|(address, host)| (address, host.until));
        let nets = self.plan.routes.clone();
        let set = Reachable::new(nets, hosts.collect(), self.holds.clone());
        let set = set.refusing(self.refused.clone());
        self.reachable.send_replace(Arc::new(set));
        self.let_go();
    }

    /// Lets answers go that waited, with routes or without.
    pub(super) fn let_go(&mut self) {
        for answered in self.waiting.drain(..) {
            if let Some(done) = answered.done {
                // Whoever asked may have waited long enough.
                let _ = done.send(());
            }
        }
    }

    /// Returns what is to be told of the plan, each thing once.
    pub(super) fn news(&mut self) -> Vec<String> {
        let all = news::of(&self.plan, &self.given_up, &self.cluster, &self.observed);
        let all = all.into_iter();
        all.filter(|one| self.told.insert(one.clone())).collect()
    }

    /// Fails if nothing is left of a wanted network: what the user came for cannot work. Single
    /// Services are only told of.
    pub(super) fn check_covered(&self) -> Result<(), Failure> {
        let is_single = |net: &IpNet| self.observed.keys().any(|one| host_net(*one) == Some(*net));
        let mut covered = self.plan.covered.iter();
        let Some(ours) = covered.find(|net| !is_single(net)) else {
            return Ok(());
        };
        let mut holes = self.plan.holes.iter();
        let hole = holes.find(|hole| hole.net.overlaps(ours));
        let mut overlaps = self.plan.overlaps.iter();
        let overlap = overlaps.find(|overlap| overlap.ours == *ours);
        let why = match (overlap, hole) {
            (Some(overlap), _) => overlap.to_string(),
            (None, Some(hole)) => format!("{} is {}", hole.net, hole.why),
            (None, None) => format!("{ours} is taken"),
        };
        let purposes = self.purposes().remove(ours).unwrap_or_default();
        let what: Vec<_> = purposes.into_iter().collect();
        Err(Failure::message(
            Exit::Busy,
            format!("nothing is left of {ours} ({}): {why}", what.join(", ")),
        )
        .with_hint(self.what_helps(ours)))
    }

    /// What helps where nothing is left of a network.
    fn what_helps(&self, ours: &IpNet) -> String {
        let is_wider =
            |overlap: &&Overlap| overlap.ours == *ours && overlap.theirs.prefix() < ours.prefix();
        let wider = self.plan.overlaps.iter().find(is_wider);
        let is_route = |one: &&Overlap| {
            let mut holes = self.plan.holes.iter();
            holes.any(|hole| hole.net == one.ours && hole.why == Why::Route)
        };
        let take = wider.filter(is_route).map(|wider| {
            let theirs = wider.theirs;
            format!("--take-cidr {ours} takes it from {theirs}; ")
        });
        let take = take.unwrap_or_default();
        format!("--exclude-cidr {ours} connects without it; {take}or end what has the other route")
    }

    /// Reports the routes; hosts are added by the clock of who asks.
    pub(super) fn report(&self) -> RoutingReport {
        let purposes = self.purposes();
        let network = |net: &IpNet| {
            let of_net = purposes.iter().filter(|(wanted, _)| wanted.overlaps(net));
            let words: BTreeSet<_> = of_net
                .flat_map(|(_, words)| words.iter().cloned())
                .collect();
            NetworkReport {
                network: net.to_string(),
                purposes: words.into_iter().collect(),
            }
        };
        RoutingReport {
            networks: self.plan.routes.iter().map(network).collect(),
            holes: self.plan.holes.iter().map(Into::into).collect(),
            overlaps: self.plan.overlaps.iter().map(Into::into).collect(),
            taken: self.given_up.iter().map(Into::into).collect(),
            left_out: left_out(&self.plan),
            ..RoutingReport::default()
        }
    }

    /// The hosts routed now: address, name and when they go.
    pub(super) fn hosts(&self) -> Vec<(IpAddr, String, Instant)> {
        let hosts = self.hosts.iter();
        hosts
            .map(|(address, host)| (address, host.name.clone(), host.until))
            .collect()
    }

    fn purposes(&self) -> Wanted {
        let mut all = self.cluster.clone();
        let mut want = |net: IpNet, purpose: String| all.entry(net).or_default().insert(purpose);
        for net in &self.choice.include {
            want(*net, "--include-cidr".to_owned());
        }
        for net in &self.choice.take {
            want(*net, "--take-cidr".to_owned());
        }
        for (address, service) in &self.observed {
            if let Some(net) = host_net(*address) {
                want(net, service.clone());
            }
        }
        all
    }
}

/// The networks a session is for, whatever the machine has of them.
pub(super) fn wished(choice: &RouteChoice, session: &SessionInfo) -> Vec<IpNet> {
    let cluster = cluster_networks(session).into_keys();
    let chosen = choice.include.iter().chain(&choice.take).copied();
    let wanted: Vec<_> = cluster.chain(chosen).collect();
    routes::plan(&wanted, &Taken::default(), &choice.exclude).routes
}

fn cluster_networks(session: &SessionInfo) -> Wanted {
    let services = session.service_cidrs.iter().map(|cidr| (cidr, "services"));
    let pods = session.pod_cidrs.iter().map(|cidr| (cidr, "pods"));
    let mut all = Wanted::new();
    for (cidr, purpose) in services.chain(pods) {
        if let Ok(net) = IpNet::new(cidr.network(), cidr.prefix()) {
            all.entry(net).or_default().insert(purpose.to_owned());
        }
    }
    all
}

/// Tells which single hosts may be routed: free ones that no network has already.
fn may_host<'a>(
    taken: &'a Taken,
    plan: &'a Plan,
    exclude: &'a [IpNet],
) -> impl Fn(IpAddr) -> bool + 'a {
    move |address| {
        let inside = |nets: &[IpNet]| nets.iter().any(|net| net.contains(address));
        !inside(&plan.routes) && !inside(exclude) && routes::is_free(address, taken)
    }
}

fn host_net(address: IpAddr) -> Option<IpNet> {
    let prefix = if address.is_ipv4() { 32 } else { 128 };
    IpNet::new(address, prefix).ok()
}

#[cfg(test)]
mod tests;
