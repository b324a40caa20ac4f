//! What is to be told of a plan of routes: what it left out, and what it had to guess.
//!
//! Pure; each line is told once, so its words must not change while it is true.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kubebridge_platform::net::IpNet;
use kubebridge_platform::routes::{self, Overlap, Plan};

use super::{Wanted, host_net};
use crate::status::routing::LeftOutReport;

/// Single Services told one by one; of more the status has the list.
const SINGLES: usize = 8;

/// Returns every line.
pub(super) fn of(
    plan: &Plan,
    given_up: &[Overlap],
    cluster: &Wanted,
    observed: &BTreeMap<IpAddr, String>,
) -> Vec<String> {
    let singles: BTreeSet<IpNet> = observed.keys().filter_map(|one| host_net(*one)).collect();
    let mut lines = BTreeSet::new();
    for overlap in &plan.overlaps {
        let theirs = overlap.theirs;
        if singles.contains(&overlap.ours) {
            let via = overlap.via.as_ref();
            let via = via.map(|via| format!(" dev {via}")).unwrap_or_default();
            lines.insert(format!(
                "addresses of Services are in the route {theirs}{via} and stay with it"
            ));
        } else {
            lines.insert(format!(
                "{overlap}: the addresses of both stay with that route (--exclude-cidr {theirs} says you know)"
            ));
        }
    }
    lines.extend(given_up.iter().map(|taken| {
        format!(
            "{taken}: packets to {} go to the cluster (--take-cidr)",
            taken.ours
        )
    }));
    let left_out = left_out(plan).into_iter();
    let left_out =
        left_out.filter(|one| one.network.parse().is_ok_and(|net| !singles.contains(&net)));
    lines.extend(left_out.map(|one| format!("{} is not routed: {}", one.network, one.reason)));
    let is_known = |address: &IpAddr| {
        let same = |net: &&IpNet| matches!(net, IpNet::V4(_)) == address.is_ipv4();
        cluster.keys().any(|net| same(&net))
    };
    let (outside, unknown): (Vec<_>, Vec<_>) =
        observed.iter().partition(|(address, _)| is_known(address));
    if !unknown.is_empty() {
        lines.insert(
            "the manager knows no network of the cluster: its Services are routed one by one \
             (--include-cidr CIDR routes a network)"
                .to_owned(),
        );
    }
    lines.extend(outside.iter().take(SINGLES).map(|(address, service)| {
        format!("{address} of {service} is outside the cluster's known networks: it has a route of its own")
    }));
    if outside.len() > SINGLES {
        lines.insert("more Services are outside the cluster's known networks".to_owned());
    }
    lines.into_iter().collect()
}

/// Lists the wanted networks that are not routed at all.
pub(super) fn left_out(plan: &Plan) -> Vec<LeftOutReport> {
    let wide = format!("wider than /{}", routes::WIDEST);
    let six = "this machine has IPv6 switched off".to_owned();
    let taken = "others have all of it".to_owned();
    let lists = [
        (&plan.covered, taken),
        (&plan.too_wide, wide),
        (&plan.without_ipv6, six),
    ];
    let all = lists.iter().flat_map(|(nets, reason)| {
        nets.iter().map(|net| LeftOutReport {
            network: net.to_string(),
            reason: reason.clone(),
        })
    });
    all.collect()
}
