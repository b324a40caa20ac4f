//! Who resolves names on this machine: a decision from probes.
//!
//! Pure. The probes are taken by `dns.rs`; nothing here starts or asks a service.

use std::net::{IpAddr, Ipv4Addr};

use crate::host::{HostDnsMode, ResolvedVia};

/// The listeners of systemd-resolved's own stub.
pub const STUBS: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 53)),
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, 54)),
];

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Probes {
    /// Whether there is a system bus.
    pub bus: bool,
    /// Whether systemd-resolved is on it.
    pub resolved: bool,
    /// The sources of the `hosts:` line of nsswitch.conf, in order.
    pub nss: Vec<String>,
    /// The servers of `/etc/resolv.conf`.
    pub nameservers: Vec<IpAddr>,
    /// What systemd-resolved thinks of that file.
    pub resolv_conf_mode: Option<String>,
    /// NetworkManager's DNS mode, if it runs.
    pub network_manager: Option<String>,
}

/// The decision and how it came about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Who resolves.
    pub mode: HostDnsMode,
    /// One phrase per fact that counted.
    pub reasons: Vec<String>,
}

/// Decides who answers the C library.
pub fn decide(probes: &Probes) -> Decision {
    let mut reasons = Vec::new();
    let stub = !probes.nameservers.is_empty()
        && probes
            .nameservers
            .iter()
            .all(|server| STUBS.contains(server));
    let mode = if !probes.resolved {
        let why = if probes.bus {
            "systemd-resolved is not running"
        } else {
            "there is no system bus"
        };
        reasons.push(why.to_owned());
        if stub {
            reasons.push(
                "/etc/resolv.conf names systemd-resolved's stub, which does not answer".to_owned(),
            );
        }
        HostDnsMode::Plain
    } else {
        reasons.push("systemd-resolved is running".to_owned());
        served_by_resolved(probes, stub, &mut reasons)
    };
    if let Some(manager) = probes
        .network_manager
        .as_deref()
        .filter(|&mode| mode != "systemd-resolved")
        && stub
    {
        reasons.push(format!(
            "resolved-nm-miswired: /etc/resolv.conf names systemd-resolved's stub, but NetworkManager's DNS mode is {manager}"
        ));
    }
    Decision { mode, reasons }
}

fn served_by_resolved(probes: &Probes, stub: bool, reasons: &mut Vec<String>) -> HostDnsMode {
    let place = |name| probes.nss.iter().position(|source| source == name);
    let nss = place("resolve").is_some_and(|resolve| place("dns").is_none_or(|dns| resolve < dns));
    if nss {
        reasons.push("nsswitch.conf asks it before DNS".to_owned());
        return HostDnsMode::Resolved(ResolvedVia::Nss);
    }
    if stub {
        reasons.push("/etc/resolv.conf names its stub".to_owned());
        return HostDnsMode::Resolved(ResolvedVia::Stub);
    }
    let file = probes.resolv_conf_mode.as_deref().unwrap_or("unknown");
    reasons.push(format!(
        "/etc/resolv.conf (mode {file}) does not lead to it, nor does nsswitch.conf"
    ));
    match file {
        "uplink" | "stub" | "static" => HostDnsMode::Bypassed,
        _ => HostDnsMode::Plain,
    }
}

/// Reads the sources of the `hosts:` line of nsswitch.conf, without actions in brackets.
pub fn nss_hosts(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(line).trim());
    let Some(sources) = lines
        .filter_map(|line| line.strip_prefix("hosts:"))
        .next_back()
    else {
        return Vec::new();
    };
    let mut depth = 0usize;
    let plain: String = sources
        .chars()
        .map(|char| {
            match char {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ if depth == 0 => return char,
                _ => {}
            }
            ' '
        })
        .collect();
    plain.split_ascii_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(resolved: bool, nss: &str, nameservers: &[&str], mode: &str) -> Probes {
        Probes {
            bus: true,
            resolved,
            nss: nss.split_ascii_whitespace().map(str::to_owned).collect(),
            nameservers: nameservers
                .iter()
                .map(|text| text.parse().unwrap())
                .collect(),
            resolv_conf_mode: resolved.then(|| mode.to_owned()),
            network_manager: None,
        }
    }

    #[test]
    fn the_mode_follows_from_nsswitch_and_the_servers_in_the_file() {
        const NSS: HostDnsMode = HostDnsMode::Resolved(ResolvedVia::Nss);
        const STUB: HostDnsMode = HostDnsMode::Resolved(ResolvedVia::Stub);
        for (resolved, nss, servers, mode, expected) in [
            (true, "files resolve dns", vec!["127.0.0.53"], "stub", NSS),
            (true, "files resolve", vec!["192.0.2.1"], "uplink", NSS),
            (true, "files dns resolve", vec!["127.0.0.53"], "stub", STUB),
            (true, "files dns", vec!["127.0.0.53"], "stub", STUB),
            (true, "files dns", vec!["127.0.0.54"], "foreign", STUB),
            (true, "files dns", vec!["127.0.0.53"], "foreign", STUB),
            (
                true,
                "files dns",
                vec!["192.0.2.1"],
                "uplink",
                HostDnsMode::Bypassed,
            ),
            (
                true,
                "files dns",
                vec!["127.0.0.53", "192.0.2.1"],
                "foreign",
                HostDnsMode::Plain,
            ),
            (
                true,
                "files dns",
                vec!["192.0.2.1"],
                "foreign",
                HostDnsMode::Plain,
            ),
            (true, "files dns", vec![], "missing", HostDnsMode::Plain),
            (
                false,
                "files resolve dns",
                vec!["127.0.0.53"],
                "",
                HostDnsMode::Plain,
            ),
            (false, "", vec!["192.0.2.1"], "", HostDnsMode::Plain),
        ] {
            let decision = decide(&probes(resolved, nss, &servers, mode));
            assert_eq!(
                decision.mode, expected,
                "{resolved} {nss} {servers:?} {mode}"
            );
            assert!(!decision.reasons.is_empty());
        }
    }

    #[test]
    fn reasons_say_what_counted() {
        let reasons = decide(&probes(true, "files dns", &["192.0.2.1"], "uplink")).reasons;
        assert_eq!(
            reasons,
            [
                "systemd-resolved is running",
                "/etc/resolv.conf (mode uplink) does not lead to it, nor does nsswitch.conf"
            ]
        );
        let mut miswired = probes(true, "files dns", &["127.0.0.53"], "foreign");
        miswired.network_manager = Some("default".to_owned());
        assert!(decide(&miswired).reasons[2].starts_with("resolved-nm-miswired"));
        assert_eq!(
            decide(&Probes::default()).reasons,
            ["there is no system bus"]
        );
    }

    #[test]
    fn nsswitch_is_read_without_comments_and_actions() {
        let file = b"passwd: files resolve\nhosts: mymachines resolve [!UNAVAIL=return] files [NOTFOUND=return SUCCESS=continue] dns # dns2\n";
        assert_eq!(nss_hosts(file), ["mymachines", "resolve", "files", "dns"]);
        assert_eq!(nss_hosts(b"# hosts: dns\n"), Vec::<String>::new());
    }
}
