//! `port-53`: who answers DNS on this machine, and whether that is who should.

use std::net::IpAddr;

use kubebridge_platform::Sys;
use kubebridge_platform::dns::detect::STUBS;
use kubebridge_platform::inspect::{Listener, ResolvConfFile, listeners};

use super::resolv_conf::EMBEDDED;
use crate::doctor::{Check, Finding};

const CHECK: Check = Check::Port53;
const PORT: u16 = 53;

/// How the kernel shortens the name of systemd-resolved.
const RESOLVED: &str = "systemd-resolve";

/// Looks who listens, and judges.
pub(super) fn check(sys: &Sys, file: Result<&ResolvConfFile, &String>) -> Finding {
    let servers = file.map(|file| file.nameservers.clone());
    judge(&listeners(sys, PORT), &servers.unwrap_or_default())
}

/// Judges the listeners beside the servers that programs are told to ask.
fn judge(found: &[Listener], servers: &[IpAddr]) -> Finding {
    let lines: Vec<_> = found.iter().map(words).collect();
    let answers = |server: &IpAddr| {
        let mut all = found.iter().map(|one| one.address.ip());
        all.any(|address| address == *server || address.is_unspecified())
    };
    // What a container's engine answers by itself has no socket.
    let is_here = |server: &&IpAddr| server.is_loopback() && **server != EMBEDDED;
    if let Some(silent) = servers.iter().filter(is_here).find(|one| !answers(one)) {
        let why = format!("/etc/resolv.conf names {silent}, and nobody listens there");
        return Finding::fail(CHECK, "nobody-listens", why)
            .seen(lines)
            .help("start the resolver of this machine (systemctl start systemd-resolved)");
    }
    let not_resolved = |one: &&Listener| {
        let process = one.process.as_ref();
        process.is_some_and(|name| !name.starts_with(RESOLVED))
    };
    let on_stub = |one: &&Listener| STUBS.contains(&one.address.ip());
    if let Some(other) = found.iter().find(|one| on_stub(one) && not_resolved(one)) {
        let why = format!(
            "the place of systemd-resolved's stub is taken: {}",
            words(other)
        );
        return Finding::fail(CHECK, "stub-taken", why)
            .seen(lines)
            .help("end that program, then systemctl restart systemd-resolved");
    }
    let mut others = found.iter().filter(|one| !on_stub(one));
    match others.next() {
        Some(other) => Finding::note(
            CHECK,
            "busy",
            format!(
                "taken: {}; a session binds no port and does not mind",
                words(other)
            ),
        )
        .seen(lines),
        None if found.is_empty() => Finding::ok(CHECK, "free", "nobody listens"),
        None => Finding::ok(CHECK, "stub", "systemd-resolved's stub alone listens").seen(lines),
    }
}

fn words(one: &Listener) -> String {
    let by = one.process.as_ref();
    let by = by.map_or_else(String::new, |process| format!(" by {process}"));
    format!("{} {}{by}", one.protocol, one.address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn listener(address: &str, process: Option<&str>) -> Listener {
        Listener {
            protocol: "udp",
            address: address.parse().unwrap(),
            process: process.map(str::to_owned),
        }
    }

    #[test]
    fn who_has_port_53_is_told_from_who_should() {
        let stub = listener("127.0.0.53:53", Some("systemd-resolve (pid 1)"));
        let unknown = listener("127.0.0.53:53", None);
        let mask = listener("127.0.0.1:53", Some("dnsmasq (pid 2)"));
        let usurper = listener("127.0.0.53:53", Some("dnsmasq (pid 2)"));
        let any = listener("0.0.0.0:53", Some("unbound (pid 3)"));
        let table = [
            (vec![], vec![], Verdict::Ok, "free"),
            (vec![], vec!["192.0.2.1"], Verdict::Ok, "free"),
            (vec![], vec!["127.0.0.11"], Verdict::Ok, "free"),
            (vec![stub.clone()], vec!["127.0.0.53"], Verdict::Ok, "stub"),
            (vec![unknown], vec!["127.0.0.53"], Verdict::Ok, "stub"),
            (vec![], vec!["127.0.0.53"], Verdict::Fail, "nobody-listens"),
            (
                vec![stub],
                vec!["127.0.0.1"],
                Verdict::Fail,
                "nobody-listens",
            ),
            (vec![mask], vec!["192.0.2.1"], Verdict::Note, "busy"),
            (vec![any], vec!["127.0.0.1"], Verdict::Note, "busy"),
            (
                vec![usurper],
                vec!["127.0.0.53"],
                Verdict::Fail,
                "stub-taken",
            ),
        ];
        for (found, servers, verdict, word) in table {
            let servers: Vec<IpAddr> = servers.iter().map(|text| text.parse().unwrap()).collect();
            let finding = judge(&found, &servers);
            assert_eq!(
                (finding.verdict, finding.found),
                (verdict, word),
                "{found:?} {servers:?}"
            );
        }
    }
}
