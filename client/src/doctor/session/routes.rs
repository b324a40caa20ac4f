//! `session-routes`: whether packets for the cluster take the session's link, as the kernel says.

use std::net::IpAddr;

use futures::future::join_all;
use kubebridge_platform::Sys;
use kubebridge_platform::inspect::{link_mtu, way_to};
use kubebridge_platform::net::IpNet;

use crate::doctor::{Check, Finding};
use crate::failure::chain;
use crate::status::StatusReport;

const CHECK: Check = Check::SessionRoutes;

/// How many networks the kernel is asked about: a VPN that comes first takes nearly all.
const MOST_ASKED: usize = 16;
/// What every device takes; more is faster.
const SMALL_MTU: u32 = 1500;

/// Where packets to a network go.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Led {
    network: String,
    /// The link, or why it is not known; `None` where there is no way.
    by: Result<Option<String>, String>,
}

/// Asks the kernel, and judges.
pub(super) async fn check(sys: &Sys, session: &StatusReport) -> Finding {
    let routing = &session.routing;
    // The name, with the address behind it.
    let link = session.dns.link.as_ref();
    let link = link.and_then(|link| link.split_whitespace().next());
    let Some(link) = link.filter(|_| routing.applied) else {
        return Finding::skipped(CHECK, "this session sets no routes");
    };
    let networks = routing.networks.iter().take(MOST_ASKED);
    let asked = networks.filter_map(|one| {
        let address = first(&one.network)?;
        Some(async move {
            let by = way_to(address).await.map_err(|error| chain(&error.into()));
            let network = one.network.clone();
            Led { network, by }
        })
    });
    let led = join_all(asked).await;
    judge(link, &led, link_mtu(sys, link))
}

fn first(network: &str) -> Option<IpAddr> {
    match network.parse().ok()? {
        IpNet::V4(net) => Some(net.address().into()),
        IpNet::V6(net) => Some(net.address().into()),
    }
}

fn judge(link: &str, led: &[Led], mtu: Option<u32>) -> Finding {
    let lines: Vec<_> = led.iter().map(words).collect();
    let mtu_line = mtu.map(|mtu| format!("{link} has MTU {mtu}"));
    let elsewhere = led.iter().find(|one| {
        let by = one.by.as_ref();
        by.is_ok_and(|by| by.as_deref() != Some(link))
    });
    let finding = if let Some(one) = elsewhere {
        let why = format!("{}, not by {link}", words(one));
        Finding::fail(CHECK, "lost-to-another", why)
            .help("ip rule; ip route get ADDRESS: another routing table or a narrower route comes first, a VPN's most likely")
    } else if let Some(Err(error)) = led.iter().map(|one| &one.by).find(|by| by.is_err()) {
        Finding::skipped(CHECK, error.clone())
    } else if led.is_empty() {
        Finding::note(CHECK, "none", "no network of the cluster is routed")
            .help("kubebridge routes says why")
    } else if mtu.is_some_and(|mtu| mtu <= SMALL_MTU) {
        let why = format!(
            "{} networks by {link}, with a small MTU: bulk data is slower",
            led.len()
        );
        Finding::note(CHECK, "small-mtu", why)
    } else {
        let s = if led.len() == 1 { "" } else { "s" };
        Finding::ok(
            CHECK,
            "in-force",
            format!("{} network{s} by {link}", led.len()),
        )
    };
    finding.seen(lines).seen(mtu_line)
}

fn words(one: &Led) -> String {
    let Led { network, by } = one;
    match by {
        Ok(Some(link)) => format!("packets to {network} go by {link}"),
        Ok(None) => format!("packets to {network} have no way"),
        Err(error) => format!("where packets to {network} go is not known: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn lifecycle_16_a_route_that_does_not_win_fails_and_is_named() {
        let led = |by: Result<Option<&str>, &str>| Led {
            network: "10.96.0.0/16".to_owned(),
            by: by.map(|by| by.map(str::to_owned)).map_err(str::to_owned),
        };
        for (led, mtu, verdict, word) in [
            (vec![led(Ok(Some("kb0")))], 16000, Verdict::Ok, "in-force"),
            (vec![led(Ok(Some("kb0")))], 1500, Verdict::Note, "small-mtu"),
            (
                vec![led(Ok(Some("tun0")))],
                16000,
                Verdict::Fail,
                "lost-to-another",
            ),
            (vec![led(Ok(None))], 16000, Verdict::Fail, "lost-to-another"),
            (
                vec![led(Err("no netlink"))],
                16000,
                Verdict::Skipped,
                "skipped",
            ),
            (vec![], 16000, Verdict::Note, "none"),
        ] {
            let finding = judge("kb0", &led, Some(mtu));
            assert_eq!((finding.verdict, finding.found), (verdict, word), "{led:?}");
        }
        let vpn = judge("kb0", &[led(Ok(Some("tun0")))], None);
        assert_eq!(vpn.why, "packets to 10.96.0.0/16 go by tun0, not by kb0");
        assert_eq!(first("10.96.0.0/16"), Some("10.96.0.0".parse().unwrap()));
    }
}
