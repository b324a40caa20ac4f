//! What to set on the link: the pure half of `resolved.rs`.
//!
//! It keeps clear of what was measured to hurt: more than 256 old and new domains together wipe
//! the link's list, and a domain that only changes between search and routing is not stored, so in
//! both cases the list is emptied first.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::super::resolve1::LinkState;
use crate::intent::DnsIntent;
use crate::net::MAX_REVERSE_ZONES;

/// The most search and routing domains on our link: far from resolved's 256, and no session has
/// more namespaces than a person names.
const MAX_FORWARD: usize = 32;

/// Above this many old and new domains together the list is emptied first.
const MAX_UNION: usize = 250;

/// A domain and whether it is for routing only.
pub type Domain = (String, bool);

/// What is to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Whether the link has settings of an earlier session, to be reverted first.
    pub revert_first: bool,
    /// The servers.
    pub servers: Vec<IpAddr>,
    /// Whether an empty list must be sent before the domains.
    pub clear_first: bool,
    /// Search and routing domains, then reverse zones.
    pub domains: Vec<Domain>,
    /// What could not be had.
    pub warnings: Vec<String>,
}

/// Plans the settings of a link.
///
/// `state` is what the link has, `fresh` whether we have not set it yet, `host` the domains of all
/// other links.
pub fn plan(intent: &DnsIntent, state: &LinkState, fresh: bool, host: &[Domain]) -> Plan {
    let mut plan = Plan {
        servers: intent.servers.clone(),
        ..Plan::default()
    };
    plan.revert_first =
        fresh && !(state.servers.is_empty() && !state.odd_servers && state.domains.is_empty());
    plan.domains = wanted(intent, host, &mut plan.warnings);
    let old: BTreeMap<_, _> = if plan.revert_first {
        BTreeMap::new()
    } else {
        state.domains.iter().cloned().collect()
    };
    let added = plan
        .domains
        .iter()
        .filter(|(name, _)| !old.contains_key(name))
        .count();
    let flipped = |(name, routing): &Domain| old.get(name).is_some_and(|old| old != routing);
    plan.clear_first = old.len() + added > MAX_UNION || plan.domains.iter().any(flipped);
    plan
}

/// Lists the domains in order: search, routes, namespaces, reverse zones; each once.
fn wanted(intent: &DnsIntent, host: &[Domain], warnings: &mut Vec<String>) -> Vec<Domain> {
    let used = |name: &str| host.iter().any(|(used, _)| used == name);
    let (namespaces, refused) = intent.routable_namespaces();
    for (namespace, refusal) in refused {
        warnings.push(format!(
            "names under {namespace:?} are not routed: {refusal}"
        ));
    }
    for name in intent.routes.iter().filter(|name| used(name)) {
        warnings.push(format!("another link has {name:?} too: either may answer"));
    }
    let mut domains: Vec<Domain> = Vec::new();
    let mut add = |name: &str, routing: bool| {
        if !domains.iter().any(|(known, _)| known == name) {
            domains.push((name.to_owned(), routing));
        }
    };
    intent.search.iter().for_each(|name| add(name, false));
    intent.routes.iter().for_each(|name| add(name, true));
    for namespace in namespaces {
        if used(namespace) {
            warnings.push(format!(
                "names under {namespace:?} are not routed: this host uses it already"
            ));
        } else {
            add(namespace, true);
        }
    }
    for (name, _) in domains.drain(MAX_FORWARD.min(domains.len())..) {
        warnings.push(format!(
            "{name:?} is not routed: more than {MAX_FORWARD} domains"
        ));
    }
    let reverse = intent
        .reverse
        .iter()
        .filter(|zone| !used(zone))
        .take(MAX_REVERSE_ZONES);
    domains.extend(reverse.map(|zone| (zone.clone(), true)));
    domains
}

/// Names the first setting that is not as planned.
pub(super) fn difference(state: &LinkState, plan: &Plan) -> Option<&'static str> {
    let sorted = |list: &[Domain]| {
        let mut list = list.to_vec();
        list.sort();
        list
    };
    if state.servers != plan.servers || state.odd_servers {
        Some("the servers")
    } else if sorted(&state.domains) != sorted(&plan.domains) {
        Some("the domains")
    } else if state.default_route {
        Some("the default route")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
