//! `session-dns`: whether the session's resolver answers, and whether programs are led to it.

use std::net::SocketAddr;

use kubebridge_dns::name::Name;
use kubebridge_platform::Sys;

use crate::doctor::machine::address;
use crate::doctor::ways::{self, Told, Way};
use crate::doctor::{Check, Finding};
use crate::status::StatusReport;

const CHECK: Check = Check::SessionDns;
const PORT: u16 = 53;

/// Asks for a name that every cluster has, and judges.
pub(super) async fn check(sys: &Sys, session: &StatusReport) -> Finding {
    let resolver = session.dns.resolver.as_deref().and_then(address);
    let domain = session.cluster_domain.as_ref();
    let name = domain.and_then(|domain| {
        let name = format!("kubernetes.default.svc.{domain}");
        name.parse::<Name>().ok()
    });
    let (Some(resolver), Some(name), Some(_)) = (resolver, name, &session.dns.link) else {
        return Finding::skipped(CHECK, "this session has no resolver on a link");
    };
    let server = SocketAddr::new(resolver, PORT);
    let asked = [
        Way::Udp(server),
        Way::Tcp(server),
        Way::Resolved,
        Way::Library,
    ];
    // Without systemd-resolved nobody is led there; programs that are not do not send the
    // cluster's names to servers of the machine by our doing.
    let asked = if session.dns.applied {
        &asked[..]
    } else {
        &asked[..2]
    };
    let told = ways::ask(sys, &name, asked).await;
    judge(session.dns.applied, &told)
}

fn judge(is_applied: bool, told: &[Told]) -> Finding {
    let lines: Vec<_> = told.iter().map(ToString::to_string).collect();
    let direct = |one: &&Told| matches!(one.way, Way::Udp(_) | Way::Tcp(_));
    let silent = told.iter().filter(direct).find(|one| !one.is_answered());
    let knows = told.iter().filter(direct).any(|one| one.is_found());
    let of = |way: Way| told.iter().find(|one| one.way == way);
    let misses = |way: Way| knows && of(way).is_some_and(|one| !one.is_found());
    let finding = if let Some(silent) = silent {
        let why = format!("{} does not answer", silent.way);
        Finding::fail(CHECK, "silent", why).help(
            "kubebridge status; ip route get its address: packets have to go by the session's link",
        )
    } else if !is_applied {
        Finding::note(
            CHECK,
            "not-led-there",
            "it answers, but the system's DNS does not ask it: hosts lines alone are seen",
        )
    } else if misses(Way::Resolved) {
        Finding::fail(CHECK, "resolved-differs", "systemd-resolved does not ask it for a name of the cluster")
            .help("resolvectl status, resolvectl flush-caches; the link's domains have to have the cluster's")
    } else if misses(Way::Library) {
        Finding::fail(
            CHECK,
            "programs-differ",
            "systemd-resolved has a name of the cluster, programs do not get it",
        )
        .help("the hosts line of /etc/nsswitch.conf: files resolve [!UNAVAIL=return] dns")
    } else if knows {
        Finding::ok(CHECK, "answers", format!("the same by {} ways", told.len()))
    } else {
        Finding::note(
            CHECK,
            "unknown-name",
            "it answers, and the cluster has no such name as kubernetes.default",
        )
    };
    finding.seen(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use crate::probe::Finding as Answer;

    #[test]
    fn a_resolver_that_is_silent_and_one_that_is_not_asked_are_told_apart() {
        let server: SocketAddr = "198.19.248.2:53".parse().unwrap();
        let here = || Ok(Answer::Addresses(vec!["10.96.0.1".parse().unwrap()]));
        let gone = || Ok(Answer::NoSuchName);
        let late = || Err("no reply".to_owned());
        for (applied, answers, verdict, word) in [
            (
                true,
                vec![here(), here(), here(), here()],
                Verdict::Ok,
                "answers",
            ),
            (
                true,
                vec![gone(), gone(), gone(), gone()],
                Verdict::Note,
                "unknown-name",
            ),
            (
                true,
                vec![late(), here(), here(), here()],
                Verdict::Fail,
                "silent",
            ),
            (
                true,
                vec![here(), late(), here(), here()],
                Verdict::Fail,
                "silent",
            ),
            (
                true,
                vec![here(), here(), gone(), gone()],
                Verdict::Fail,
                "resolved-differs",
            ),
            (
                true,
                vec![here(), here(), here(), gone()],
                Verdict::Fail,
                "programs-differ",
            ),
            (
                true,
                vec![here(), here(), here(), late()],
                Verdict::Fail,
                "programs-differ",
            ),
            (false, vec![here(), here()], Verdict::Note, "not-led-there"),
        ] {
            let ways = [
                Way::Udp(server),
                Way::Tcp(server),
                Way::Resolved,
                Way::Library,
            ];
            let told: Vec<_> = ways
                .into_iter()
                .zip(answers)
                .map(|(way, answer)| Told { way, answer })
                .collect();
            let finding = judge(applied, &told);
            assert_eq!(
                (finding.verdict, finding.found),
                (verdict, word),
                "{told:?}"
            );
        }
    }
}
