//! `route-overlap`: who else on this machine has the cluster's addresses.
//!
//! Of a session it is known; without one the networks that the user names are held against the
//! machine's routes as `connect` would.

use kubebridge_platform::Sys;
use kubebridge_platform::routes::{Known, Overlap, Plan, plan, read_taken};

use super::{Facts, in_full, within};
use crate::doctor::run::Asked;
use crate::doctor::{Check, Finding};
use crate::status::{RoutingReport, StatusReport};

const CHECK: Check = Check::RouteOverlap;

/// Reads the machine's routes where no session knows, and judges.
pub(super) async fn check(
    sys: &Sys,
    asked: &Asked,
    sessions: &[StatusReport],
    facts: &Facts,
) -> Vec<Finding> {
    if !sessions.is_empty() {
        let each = sessions.iter();
        return each
            .map(|one| judge_session(&one.routing).about(format!("session {}", one.session)))
            .collect();
    }
    if asked.include.is_empty() {
        let why = "which networks the cluster has is known to a session alone";
        return vec![Finding::skipped(CHECK, why).help("--include-cidr 10.96.0.0/12 asks for one")];
    }
    let servers = facts.dns.as_ref().map(|dns| dns.servers.clone());
    let known = Known {
        name_servers: servers
            .unwrap_or_default()
            .iter()
            .map(|one| one.ip())
            .collect(),
        ..Known::default()
    };
    let taken = within("the kernel", async {
        read_taken(sys, &known).await.map_err(in_full)
    });
    vec![match taken.await {
        Ok(taken) => judge_plan(&plan(&asked.include, &taken, &asked.exclude)),
        Err(error) => Finding::skipped(CHECK, error),
    }]
}

/// Judges what would become of networks.
fn judge_plan(plan: &Plan) -> Finding {
    let overlaps: Vec<_> = plan.overlaps.iter().map(ToString::to_string).collect();
    let excluded = |nets: Vec<String>| {
        let flags = nets.into_iter().map(|net| format!("--exclude-cidr {net}"));
        format!(
            "end what has it, or connect {}",
            flags.collect::<Vec<_>>().join(" ")
        )
    };
    if let Some(net) = plan.covered.first() {
        let nets = plan.covered.iter().map(ToString::to_string).collect();
        let why = format!(
            "nothing is left of {net}: {}",
            of_net(plan, &net.to_string())
        );
        return Finding::fail(CHECK, "covered", why)
            .seen(overlaps)
            .help(excluded(nets));
    }
    if let Some(net) = plan.too_wide.first() {
        let why = format!("{net} is too wide for a cluster's network");
        return Finding::fail(CHECK, "too-wide", why);
    }
    match plan.overlaps.first() {
        Some(first) => Finding::warn(CHECK, "overlap", both(first))
            .seen(overlaps)
            .help("the machine keeps what it has; --exclude-cidr accepts that"),
        None => Finding::ok(CHECK, "none", "nobody else has the networks"),
    }
}

/// The first route in the way of a network.
fn of_net(plan: &Plan, net: &str) -> String {
    let mut overlaps = plan.overlaps.iter();
    let found = overlaps.find(|one| one.ours.to_string() == net);
    found.map_or_else(|| "others have it".to_owned(), both)
}

fn both(overlap: &Overlap) -> String {
    overlap.to_string()
}

/// Judges what became of a session's networks.
fn judge_session(routing: &RoutingReport) -> Finding {
    let overlaps = routing.overlaps.iter().map(|one| {
        let via = one.via.as_ref();
        let via = via.map_or_else(String::new, |via| format!(" dev {via}"));
        format!("{} overlaps the route {}{via}", one.ours, one.theirs)
    });
    let overlaps: Vec<_> = overlaps.collect();
    let left_out = routing.left_out.iter();
    let left_out = left_out.map(|one| format!("{} is not routed: {}", one.network, one.reason));
    let left_out: Vec<_> = left_out.collect();
    let help = "the machine keeps what it has: end what has the route, or --exclude-cidr";
    match (overlaps.first(), left_out.first()) {
        (Some(first), _) => Finding::warn(CHECK, "overlap", first.clone())
            .seen(overlaps.clone())
            .seen(left_out)
            .help(help),
        (None, Some(first)) => Finding::note(CHECK, "left-out", first.clone()).seen(left_out),
        (None, None) => Finding::ok(CHECK, "none", "nobody else has the cluster's networks"),
    }
}

#[cfg(test)]
mod tests {
    use kubebridge_platform::net::IpNet;
    use kubebridge_platform::routes::{Taken, TakenNet, Why};

    use super::*;
    use crate::doctor::Verdict;
    use crate::status::routing::{LeftOutReport, OverlapReport};

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn planned(wanted: &str, theirs: &[&str]) -> Plan {
        let nets = theirs.iter().map(|text| TakenNet {
            net: net(text),
            why: Why::Route,
            via: Some("tun0".to_owned()),
        });
        let taken = Taken {
            nets: nets.collect(),
            no_ipv6: false,
        };
        plan(&[net(wanted)], &taken, &[])
    }

    #[test]
    fn a_network_that_others_have_fails_and_a_part_of_it_is_a_warning() {
        for (theirs, verdict, word) in [
            (&[][..], Verdict::Ok, "none"),
            (&["192.168.0.0/24"], Verdict::Ok, "none"),
            (&["10.96.64.0/18"], Verdict::Warn, "overlap"),
            (&["10.96.0.0/12"], Verdict::Fail, "covered"),
        ] {
            let finding = judge_plan(&planned("10.96.0.0/16", theirs));
            assert_eq!(
                (finding.verdict, finding.found),
                (verdict, word),
                "{theirs:?}"
            );
            if verdict > Verdict::Ok {
                let both = finding.why.contains("10.96.0.0/16") && finding.why.contains(theirs[0]);
                assert!(both && finding.why.contains("dev tun0"), "{finding:?}");
                assert!(finding.help.unwrap().contains("--exclude-cidr"));
            }
        }
        let wide = judge_plan(&planned("10.0.0.0/7", &[]));
        assert_eq!((wide.verdict, wide.found), (Verdict::Fail, "too-wide"));
    }

    #[test]
    fn what_a_session_has_left_to_others_is_told() {
        let overlap = RoutingReport {
            overlaps: vec![OverlapReport {
                ours: "10.96.0.0/16".to_owned(),
                theirs: "10.96.64.0/18".to_owned(),
                via: Some("docker0".to_owned()),
            }],
            ..RoutingReport::default()
        };
        let left_out = RoutingReport {
            left_out: vec![LeftOutReport {
                network: "fd00::/108".to_owned(),
                reason: "this machine has IPv6 switched off".to_owned(),
            }],
            ..RoutingReport::default()
        };
        for (routing, verdict, word) in [
            (RoutingReport::default(), Verdict::Ok, "none"),
            (overlap, Verdict::Warn, "overlap"),
            (left_out, Verdict::Note, "left-out"),
        ] {
            let finding = judge_session(&routing);
            assert_eq!((finding.verdict, finding.found), (verdict, word));
        }
    }
}
