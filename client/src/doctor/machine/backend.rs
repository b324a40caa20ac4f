//! `dns-backend`: who resolves names here, and what `connect` makes of it.

use kubebridge_platform::{HostDns, HostDnsMode, ResolvedVia};

use crate::doctor::{Check, Finding};

const CHECK: Check = Check::DnsBackend;

/// Judges what `connect` would find.
pub(super) fn judge(dns: Result<&HostDns, &String>) -> Finding {
    let dns = match dns {
        Ok(dns) => dns,
        Err(error) => {
            return Finding::fail(CHECK, "unreadable", error.clone())
                .help("resolvectl status; connect --dns hosts-only does without it");
        }
    };
    let servers: Vec<_> = dns.servers.iter().map(ToString::to_string).collect();
    let miswired = dns
        .reasons
        .iter()
        .any(|one| one.starts_with("resolved-nm-"));
    let finding = match dns.mode {
        _ if miswired => Finding::warn(
            CHECK,
            "miswired",
            "NetworkManager does not tell systemd-resolved what it knows",
        )
        .help("dns=systemd-resolved in /etc/NetworkManager/conf.d, then nmcli general reload"),
        _ if dns.servers.is_empty() => Finding::warn(
            CHECK,
            "no-servers",
            "no server for names outside the cluster is known",
        )
        .help("is this machine connected to a network? resolvectl dns"),
        HostDnsMode::Resolved(via) => {
            let way = match via {
                ResolvedVia::Nss => "by nss-resolve",
                ResolvedVia::Stub => "by its stub",
            };
            let why = format!("systemd-resolved, {way}: connect gives it the cluster's names");
            Finding::ok(CHECK, "resolved", why)
        }
        HostDnsMode::Bypassed => Finding::warn(
            CHECK,
            "bypassed",
            "systemd-resolved runs, and programs go past it: connect writes hosts lines only",
        )
        .help("ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf"),
        HostDnsMode::Plain => Finding::warn(
            CHECK,
            "plain",
            "nobody here can split names by domain: connect writes hosts lines only",
        )
        .help("systemd-resolved, or connect --hosts fqdn, or connect --mode proxy"),
    };
    finding
        .seen(dns.reasons.clone())
        .seen(servers.into_iter().map(|server| format!("server {server}")))
}
