//! What the routes mean for the machine: hosts lines and DNS settings, as a plan.
//!
//! Pure. The plan is carried out by `platform` behind its `Host`; what a name resolved to before
//! the session is found out by [`crate::before`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kubebridge_platform::intent::{DnsIntent, HostsLine};
use kubebridge_platform::net::{IpNet, reverse_zones};
use kubebridge_proto::routes::{ServiceKind, ServiceRoute};
use kubebridge_proto::session::SessionInfo;

use crate::cli::HostsForm;
use crate::routes::RouteTable;
use crate::zones::is_public_tld;

/// Names nobody may point elsewhere: the machine itself, and the two names programs fetch
/// their proxy settings and tunnels from.
const NEVER: [&str; 3] = ["localhost", "wpad", "isatap"];

/// Which lines the hosts file may get.
#[derive(Clone, Debug)]
pub struct HostsPolicy {
    /// Which names of a Service.
    pub form: HostsForm,
    /// The session's own namespace, the only one with hosts lines.
    pub namespace: String,
    /// The cluster domain, for full names.
    pub cluster_domain: String,
}

/// A name that gets no hosts line although its Service would have one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The name.
    pub name: String,
    /// Why it is left alone.
    pub reason: String,
}

/// The hosts lines of a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostsPlan {
    /// The lines, by service.
    pub lines: Vec<HostsLine>,
    /// The names left out.
    pub conflicts: Vec<Conflict>,
    /// The names whose answer before the session is not known yet; they wait.
    pub unknown: BTreeSet<String>,
}

/// What names resolved to before the session: `true` for those that did.
pub type Before = BTreeMap<String, bool>;

/// Computes the hosts lines.
#[must_use]
pub fn hosts_plan(table: &RouteTable, policy: &HostsPolicy, before: &Before) -> HostsPlan {
    let mut plan = HostsPlan::default();
    if policy.form == HostsForm::Off {
        return plan;
    }
    for route in table.services(&policy.namespace) {
        let addresses = addresses(route);
        if addresses.is_empty() {
            continue;
        }
        let names = allowed_names(route, policy, before, &mut plan);
        if names.is_empty() {
            continue;
        }
        plan.lines
            .extend(addresses.into_iter().map(|address| HostsLine {
                address,
                names: names.clone(),
            }));
    }
    plan
}

/// Returns every name that a line would be wanted for, whatever it resolved to before.
#[must_use]
pub fn wanted_names(table: &RouteTable, policy: &HostsPolicy) -> BTreeSet<String> {
    let routes = table.services(&policy.namespace);
    routes
        .flat_map(|route| candidate_names(&route.name, policy))
        .collect()
}

/// The addresses a Service has lines for: those a program can connect to.
fn addresses(route: &ServiceRoute) -> Vec<IpAddr> {
    match route.kind {
        ServiceKind::ClusterIp => route
            .cluster_ips
            .iter()
            .copied()
            .filter(|address| {
                !address.is_unspecified() && !address.is_loopback() && !address.is_multicast()
            })
            .collect(),
        ServiceKind::Headless | ServiceKind::ExternalName => Vec::new(),
    }
}

fn allowed_names(
    route: &ServiceRoute,
    policy: &HostsPolicy,
    before: &Before,
    plan: &mut HostsPlan,
) -> Vec<String> {
    let mut allowed = Vec::new();
    for name in candidate_names(&route.name, policy) {
        let reason = if NEVER.contains(&route.name.as_str()) {
            Some("a name with a meaning of its own".to_owned())
        } else {
            match before.get(&name) {
                Some(true) => Some("resolved before the session".to_owned()),
                Some(false) => None,
                None => {
                    plan.unknown.insert(name);
                    continue;
                }
            }
        };
        match reason {
            Some(reason) => plan.conflicts.push(Conflict { name, reason }),
            None => allowed.push(name),
        }
    }
    if namespaced_is_public(policy) {
        plan.conflicts.push(Conflict {
            name: format!("{}.{}", route.name, policy.namespace),
            reason: format!("`{}` is a public top-level domain", policy.namespace),
        });
    }
    allowed
}

fn candidate_names(service: &str, policy: &HostsPolicy) -> Vec<String> {
    let mut names = vec![service.to_owned()];
    if policy.form >= HostsForm::Namespaced && !is_public_tld(&policy.namespace) {
        names.push(format!("{service}.{}", policy.namespace));
    }
    if policy.form >= HostsForm::Fqdn {
        names.push(format!(
            "{service}.{}.svc.{}",
            policy.namespace, policy.cluster_domain
        ));
    }
    names
}

fn namespaced_is_public(policy: &HostsPolicy) -> bool {
    policy.form >= HostsForm::Namespaced && is_public_tld(&policy.namespace)
}

/// The DNS settings of a session, and what was left out of them.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsPlan {
    /// The settings.
    pub intent: DnsIntent,
    /// Networks whose reverse names are not routed, because they need too many zones.
    pub without_reverse: Vec<IpNet>,
}

/// Computes the DNS settings of a session.
#[must_use]
pub fn dns_plan(
    session: &SessionInfo,
    namespaces: &[String],
    domains: &[String],
    resolver: IpAddr,
) -> DnsPlan {
    let domain = &session.cluster_domain;
    let reverse = reverse_zones(&networks(session));
    // Only the namespace's own: a C library behind resolved's stub tries every search domain for
    // every name outside, and one domain cannot be both searched and routing-only.
    let own = namespaces.first();
    let search = own.map(|own| format!("{own}.svc.{domain}"));
    let routes = [domain.clone(), "svc".to_owned()]
        .into_iter()
        .chain(domains.iter().cloned())
        .collect();
    DnsPlan {
        intent: DnsIntent {
            servers: vec![resolver],
            routes,
            namespaces: namespaces.to_vec(),
            search: search.into_iter().collect(),
            reverse: reverse.zones,
        },
        without_reverse: reverse.skipped,
    }
}

/// Returns the networks of the cluster, as far as the manager knows them.
#[must_use]
pub fn networks(session: &SessionInfo) -> Vec<IpNet> {
    session
        .service_cidrs
        .iter()
        .chain(&session.pod_cidrs)
        .filter_map(|cidr| IpNet::new(cidr.network(), cidr.prefix()).ok())
        .collect()
}

#[cfg(test)]
mod tests;
