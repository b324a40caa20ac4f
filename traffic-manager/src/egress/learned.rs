//! The addresses one session has resolved, for as long as it may dial them. Pure: `now` is given.
//!
//! Learnt are the answers to names of granted Services and, unless the administrator says
//! otherwise, to names under the session's `--domain` suffixes. Names under `pod` are not: CoreDNS
//! answers them with any address that is asked for.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use kubebridge_dns::message::{Data, Parsed};
use kubebridge_dns::name::{Name, ResponseCode};
use kubebridge_dns::view::View;
use kubebridge_proto::routes::ServiceKind;
use tokio::time::Instant;

use super::rules::Rules;
use crate::kubernetes::index::Index;
use crate::sessions::Grant;

/// The least time an address may be dialled after it was resolved: programs connect a while after
/// they asked, and cluster answers have short times.
pub const LEAST: Duration = Duration::from_secs(60);

/// The longest time: that of the longest answer the cache keeps.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// The most addresses of one session: more than its DNS stream can bring in the least time while
/// it dials 1,024 of them; some 300 KB.
pub const MOST: usize = 4096;

/// Where an address comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It is of a granted Service: an endpoint, by the cluster's own word.
    Cluster,
    /// It is the target of an `ExternalName`, or under a suffix outside the cluster: whoever
    /// answers for that name chose it.
    Outside,
}

/// The addresses.
#[derive(Debug, Default)]
pub struct Learned {
    until: BTreeMap<IpAddr, Until>,
}

/// How long an address is known.
#[derive(Debug, Clone, Copy)]
struct Until {
    /// By anybody's word.
    any: Instant,
    /// By the cluster's: others who answer with the same address do not prolong it.
    cluster: Option<Instant>,
}

/// Says where the addresses in an answer to `asked` come from; `None` when they are not learnt.
#[must_use]
pub fn origin(
    asked: &Name,
    view: &View,
    grant: &Grant,
    index: &Index,
    rules: &Rules,
    now: Instant,
) -> Option<Origin> {
    let outside = !asked.ends_with(&view.cluster_domain);
    if outside && grant.domains.iter().any(|domain| asked.ends_with(domain)) {
        // Even where a Service's name lies under it, too: who answered is not known here.
        return rules.takes(asked).then_some(Origin::Outside);
    }
    let expanded = view.search.iter().filter_map(|domain| asked.join(domain));
    let candidates = std::iter::once(asked.clone()).chain(expanded);
    let route = candidates
        .filter_map(|name| service(&name, view))
        .filter(|(namespace, _)| grant.namespaces.contains(namespace))
        .find_map(|(namespace, name)| index.lookup(&namespace, &name, now).route())?;
    let target = route.external_name.as_deref().map(str::parse::<Name>);
    match (route.kind, target) {
        (ServiceKind::ClusterIp | ServiceKind::Headless, _) => Some(Origin::Cluster),
        (ServiceKind::ExternalName, Some(Ok(target))) => {
            let takes = target.ends_with(&view.cluster_domain) || rules.takes(&target);
            takes.then_some(Origin::Outside)
        }
        (ServiceKind::ExternalName, None | Some(Err(_))) => None,
    }
}

/// Takes `SERVICE.NAMESPACE.svc.DOMAIN` apart, and what is in front of it off.
fn service(name: &Name, view: &View) -> Option<(String, String)> {
    let relative = name.strip_suffix(&view.cluster_domain)?.to_lowercase();
    let labels: Vec<_> = relative
        .labels()
        .map(str::from_utf8)
        .collect::<Result<_, _>>()
        .ok()?;
    match labels.as_slice() {
        [.., service, namespace, "svc"] => Some(((*namespace).to_owned(), (*service).to_owned())),
        _ => None,
    }
}

impl Learned {
    /// Learns the addresses of an answer.
    pub fn learn(&mut self, reply: &Parsed, origin: Origin, now: Instant) {
        if reply.code != ResponseCode::NOERROR {
            return;
        }
        for answer in &reply.answers {
            if let Data::Address(address) = answer.data {
                let time = Duration::from_secs(answer.ttl.into()).clamp(LEAST, LONGEST);
                self.put(address.to_canonical(), now + time, origin, now);
            }
        }
    }

    pub(super) fn put(&mut self, address: IpAddr, until: Instant, origin: Origin, now: Instant) {
        let cluster = (origin == Origin::Cluster).then_some(until);
        if let Some(known) = self.until.get_mut(&address) {
            known.any = until.max(known.any);
            known.cluster = cluster.max(known.cluster);
            return;
        }
        if self.until.len() >= MOST {
            self.until.retain(|_, known| now < known.any);
        }
        if self.until.len() >= MOST {
            // The one that is over first gives way; that is at most a walk of 4,096 entries.
            let first = self.until.iter().min_by_key(|(_, known)| known.any);
            if let Some(address) = first.map(|(address, _)| *address) {
                self.until.remove(&address);
            }
        }
        let known = Until {
            any: until,
            cluster,
        };
        self.until.insert(address, known);
    }

    /// Returns where an address comes from that may be dialled now.
    #[must_use]
    pub fn origin(&self, address: IpAddr, now: Instant) -> Option<Origin> {
        let known = self.until.get(&address)?;
        if known.cluster.is_some_and(|until| now < until) {
            return Some(Origin::Cluster);
        }
        (now < known.any).then_some(Origin::Outside)
    }
}

#[cfg(test)]
mod tests;
