//! `answers`: a name outside the cluster by every way, and which way differs.
//!
//! Names of the cluster are asked by `session-dns`: the machine's servers need not hear of them.

use std::net::{IpAddr, SocketAddr};

use futures::future::join_all;
use kubebridge_dns::name::Name;
use kubebridge_platform::Sys;
use kubebridge_platform::dns::detect::STUBS;

use super::{Facts, hosts_lines};
use crate::doctor::run::Asked;
use crate::doctor::ways::{self, Told, Way};
use crate::doctor::{Check, Finding};
use crate::status::StatusReport;

const CHECK: Check = Check::Answers;

/// A name that everybody has (RFC 6761), asked for where the user names none.
const ANY: &str = "www.example.com";

/// How many servers of resolv.conf are asked: as many as the C library reads.
const SERVERS: usize = 3;
const PORT: u16 = 53;

/// Asks for each name, and judges.
pub(super) async fn check(
    sys: &Sys,
    asked: &Asked,
    sessions: &[StatusReport],
    facts: &Facts,
) -> Vec<Finding> {
    let names = match asked.probes.as_slice() {
        [] => ANY.parse().into_iter().collect(),
        some => some.to_vec(),
    };
    let ways = ways(facts, sessions);
    let each = names.iter().map(|name: &Name| async {
        let told = ways::ask(sys, name, &ways).await;
        let text = name.to_string();
        let text = text.trim_end_matches('.');
        judge(&told, &hosts_lines::addresses_of(&facts.hosts, text)).about(text)
    });
    join_all(each).await
}

/// The ways there are on this machine.
fn ways(facts: &Facts, sessions: &[StatusReport]) -> Vec<Way> {
    let file = facts.file.as_ref();
    let servers = file.map(|file| file.nameservers.clone());
    let mut servers = servers.unwrap_or_default();
    servers.truncate(SERVERS);
    let mut ways = vec![Way::Library];
    if facts.has_resolved() {
        ways.push(Way::Resolved);
        servers.push(STUBS[0]);
    }
    servers.extend(super::resolvers(sessions));
    for server in servers {
        let server = SocketAddr::new(server, PORT);
        let both = [Way::Udp(server), Way::Tcp(server)];
        ways.extend(
            both.into_iter()
                .filter(|way| !ways.contains(way))
                .collect::<Vec<_>>(),
        );
    }
    ways
}

/// Judges what the ways said, beside what the hosts file has.
fn judge(told: &[Told], in_hosts: &[IpAddr]) -> Finding {
    let of = |way: Way| told.iter().find(|one| one.way == way);
    let lines: Vec<_> = told.iter().map(ToString::to_string).collect();
    let library = of(Way::Library);
    let programs = library.is_some_and(Told::is_found);
    let others: Vec<_> = told.iter().filter(|one| one.way != Way::Library).collect();
    let finding = if programs && !in_hosts.is_empty() {
        judge_line(library, &others, in_hosts)
    } else if told.iter().all(|one| !one.is_answered()) {
        Finding::warn(
            CHECK,
            "nothing-answers",
            "no way answers: is this machine online?",
        )
        .help("ip route; ping the gateway")
    } else if !programs && others.iter().any(|one| one.is_found()) {
        let found: Vec<_> = others.iter().filter(|one| one.is_found()).collect();
        let found = found.iter().map(|one| one.way.to_string());
        let why = format!(
            "programs do not get it, {} does",
            found.collect::<Vec<_>>().join(" and ")
        );
        Finding::fail(CHECK, "programs-differ", why)
            .help("the hosts line of /etc/nsswitch.conf and /etc/resolv.conf say whom programs ask")
    } else if let Some(one) = others.iter().find(|one| programs && is_not_there(one)) {
        let why = format!("{} says otherwise than the rest", one.way);
        Finding::warn(CHECK, "way-differs", why)
            .help("resolvectl query NAME, and dig NAME @SERVER, show each by itself")
    } else if let Some((server, silent)) = half_deaf(&others) {
        let why = format!(
            "{server} answers, but not by {silent}: a firewall, or a server that does not do it"
        );
        Finding::warn(
            CHECK,
            if silent == "TCP" { "no-tcp" } else { "no-udp" },
            why,
        )
    } else if let Some(silent) = others.iter().find(|one| !one.is_answered()) {
        let why = format!("{} does not answer", silent.way);
        Finding::warn(CHECK, "silent", why)
    } else {
        let why = format!("the same by {} ways", told.len());
        Finding::ok(CHECK, "same", why)
    };
    finding.seen(lines)
}

/// The hosts file comes first; whether DNS says the same is good to know.
fn judge_line(library: Option<&Told>, others: &[&Told], in_hosts: &[IpAddr]) -> Finding {
    let from_file = |one: &&IpAddr| in_hosts.contains(one);
    let all = library.map_or(&[][..], Told::addresses);
    let is_from_file = all.iter().any(|one| from_file(&one));
    let dns = others.iter().filter(|one| one.way != Way::Resolved);
    let says_so = dns
        .clone()
        .any(|one| one.addresses().iter().any(|one| from_file(&one)));
    if is_from_file && !says_so {
        let why = "programs have it from a line of the hosts file, DNS says otherwise";
        return Finding::note(CHECK, "hosts-line", why);
    }
    let why = "programs have it from a line of the hosts file, as DNS has it";
    Finding::ok(CHECK, "hosts-line-same", why)
}

fn is_not_there(one: &Told) -> bool {
    one.is_answered() && !one.is_found()
}

/// A server that answers by one of UDP and TCP alone, and the one by which it does not.
fn half_deaf(others: &[&Told]) -> Option<(IpAddr, &'static str)> {
    others.iter().find_map(|one| {
        let (server, other, silent) = match one.way {
            Way::Udp(server) => (server, Way::Tcp(server), "TCP"),
            Way::Tcp(server) => (server, Way::Udp(server), "UDP"),
            Way::Library | Way::Resolved => return None,
        };
        let other = others.iter().find(|one| one.way == other)?;
        (one.is_answered() && !other.is_answered()).then_some((server.ip(), silent))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use crate::probe::Finding as Answer;

    fn server() -> SocketAddr {
        "192.0.2.1:53".parse().unwrap()
    }

    fn addresses(text: &str) -> Answer {
        Answer::Addresses(vec![text.parse().unwrap()])
    }

    fn told(answers: [Result<Answer, String>; 4]) -> Vec<Told> {
        let ways = [
            Way::Library,
            Way::Resolved,
            Way::Udp(server()),
            Way::Tcp(server()),
        ];
        let each = ways.into_iter().zip(answers);
        each.map(|(way, answer)| Told { way, answer }).collect()
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one table")]
    fn the_way_that_differs_is_named() {
        let here = || Ok(addresses("203.0.113.1"));
        let late = || Err("no answer".to_owned());
        let gone = || Ok(Answer::NoSuchName);
        let line = "10.0.0.9";
        for (answers, hosts, verdict, word, words) in [
            (
                [here(), here(), here(), here()],
                None,
                Verdict::Ok,
                "same",
                "4 ways",
            ),
            (
                [gone(), gone(), gone(), gone()],
                None,
                Verdict::Ok,
                "same",
                "4 ways",
            ),
            (
                [late(), late(), late(), late()],
                None,
                Verdict::Warn,
                "nothing-answers",
                "online",
            ),
            (
                [gone(), here(), here(), here()],
                None,
                Verdict::Fail,
                "programs-differ",
                "systemd-resolved by D-Bus and 192.0.2.1 by UDP",
            ),
            (
                [late(), gone(), here(), here()],
                None,
                Verdict::Fail,
                "programs-differ",
                "192.0.2.1 by UDP",
            ),
            (
                [here(), gone(), here(), here()],
                None,
                Verdict::Warn,
                "way-differs",
                "systemd-resolved by D-Bus",
            ),
            (
                [here(), here(), here(), late()],
                None,
                Verdict::Warn,
                "no-tcp",
                "not by TCP",
            ),
            (
                [here(), here(), late(), here()],
                None,
                Verdict::Warn,
                "no-udp",
                "not by UDP",
            ),
            (
                [here(), late(), here(), here()],
                None,
                Verdict::Warn,
                "silent",
                "systemd-resolved by D-Bus",
            ),
            (
                [Ok(addresses(line)), Ok(addresses(line)), here(), here()],
                Some(line),
                Verdict::Note,
                "hosts-line",
                "hosts file",
            ),
            (
                [
                    Ok(addresses(line)),
                    Ok(addresses(line)),
                    Ok(addresses(line)),
                    here(),
                ],
                Some(line),
                Verdict::Ok,
                "hosts-line-same",
                "hosts file",
            ),
        ] {
            let hosts: Vec<IpAddr> = hosts
                .iter()
                .map(|text: &&str| text.parse().unwrap())
                .collect();
            let told = told(answers);
            let finding = judge(&told, &hosts);
            assert_eq!(
                (finding.verdict, finding.found),
                (verdict, word),
                "{told:?}"
            );
            assert!(finding.why.contains(words), "{finding:?}");
            assert_eq!(finding.evidence.len(), 4);
        }
    }
}
