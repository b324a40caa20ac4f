//! The servers this machine used before us.
//!
//! Choosing is pure. Our own resolver asks these for everything that is not the cluster's, so
//! systemd-resolved's stub and our own links are never among them: that would be a loop.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use super::detect::STUBS;
use super::resolv_conf::{Nameserver, ResolvConf};

/// The port of DNS.
const DNS_PORT: u16 = 53;

/// One server that systemd-resolved knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownServer {
    /// The link it belongs to; 0 for a global one.
    pub link: u32,
    /// Its address and port.
    pub address: SocketAddr,
}

/// What systemd-resolved says about all links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Global {
    /// Every server, global ones and those of links.
    pub servers: Vec<KnownServer>,
    /// The servers it falls back to when it has no other.
    pub fallback: Vec<KnownServer>,
    /// Every domain: link (0 for global), name, and whether it is for routing only.
    pub domains: Vec<(u32, String, bool)>,
    /// The links that take names no link has a domain for.
    pub default_routes: Vec<u32>,
}

/// Everything the choice depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// systemd-resolved's state, if it runs.
    pub global: Option<Global>,
    /// `/etc/resolv.conf`.
    pub resolv_conf: ResolvConf,
    /// systemd-resolved's own list of upstream servers, which outlives a crash of it.
    pub backup: ResolvConf,
    /// Interface names by index.
    pub links: BTreeMap<u32, String>,
}

impl Sources {
    /// Returns the links whose names the choice depends on.
    pub fn indexes(&self) -> BTreeSet<u32> {
        let global = self.global.iter();
        let servers = global
            .clone()
            .flat_map(|global| global.servers.iter().map(|server| server.link));
        let domains = global.flat_map(|global| global.domains.iter().map(|(link, _, _)| *link));
        servers.chain(domains).filter(|link| *link != 0).collect()
    }

    /// Returns the link names that stand behind addresses in the files.
    pub fn scopes(&self) -> BTreeSet<String> {
        let servers = [&self.resolv_conf, &self.backup]
            .into_iter()
            .flat_map(|file| &file.nameservers);
        servers.filter_map(|server| server.scope.clone()).collect()
    }
}

/// The original servers and search domains.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Base {
    /// The servers, best first, each once.
    pub servers: Vec<SocketAddr>,
    /// The search domains.
    pub search: Vec<String>,
}

/// Chooses the original servers: systemd-resolved's, else the file's, else its backup's.
///
/// Of the links only those count that take any name; a VPN with its own domains is no place for
/// the others, unless it is all there is.
pub fn choose(sources: &Sources) -> Base {
    let files = [&sources.resolv_conf, &sources.backup].map(|file| from_file(file, &sources.links));
    let [file, backup] = files;
    let mut candidates = Vec::new();
    if let Some(global) = &sources.global {
        candidates.extend(from_resolved(global, &sources.links));
    }
    candidates.extend([file, backup]);
    candidates.extend(
        sources
            .global
            .iter()
            .map(|global| addresses(&global.fallback)),
    );
    let servers = candidates
        .into_iter()
        .map(usable)
        .find(|list| !list.is_empty());
    let search = match &sources.global {
        Some(global) if !global.domains.is_empty() => search(global, &sources.links),
        Some(_) | None => sources.resolv_conf.search.clone(),
    };
    Base {
        servers: servers.unwrap_or_default(),
        search,
    }
}

/// Yields the lists of systemd-resolved in order of preference.
fn from_resolved(global: &Global, links: &BTreeMap<u32, String>) -> [Vec<SocketAddr>; 2] {
    let foreign: Vec<_> = global
        .servers
        .iter()
        .filter(|server| !is_ours(server.link, links))
        .cloned()
        .collect();
    let general =
        |server: &&KnownServer| server.link == 0 || global.default_routes.contains(&server.link);
    let mut best: Vec<_> = foreign.iter().filter(general).cloned().collect();
    // Global ones first; the sort is stable.
    best.sort_by_key(|server| server.link != 0);
    [addresses(&best), addresses(&foreign)]
}

fn from_file(file: &ResolvConf, links: &BTreeMap<u32, String>) -> Vec<SocketAddr> {
    file.nameservers
        .iter()
        .map(|server| address(server, links))
        .collect()
}

fn address(server: &Nameserver, links: &BTreeMap<u32, String>) -> SocketAddr {
    let named = |scope: &String| {
        links
            .iter()
            .find(|(_, name)| *name == scope)
            .map(|(index, _)| *index)
    };
    match server.address {
        IpAddr::V4(address) => SocketAddr::from((address, DNS_PORT)),
        IpAddr::V6(address) => {
            let scope = server
                .scope
                .as_ref()
                .and_then(|scope| scope.parse().ok().or_else(|| named(scope)));
            SocketAddr::V6(SocketAddrV6::new(address, DNS_PORT, 0, scope.unwrap_or(0)))
        }
    }
}

fn addresses(servers: &[KnownServer]) -> Vec<SocketAddr> {
    servers.iter().map(|server| server.address).collect()
}

/// Drops stubs, unspecified addresses and repetitions.
fn usable(servers: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let mut kept = Vec::with_capacity(servers.len());
    for server in servers {
        let stub = STUBS.contains(&server.ip()) || server.ip().is_unspecified();
        if !stub && !kept.contains(&server) {
            kept.push(server);
        }
    }
    kept
}

fn search(global: &Global, links: &BTreeMap<u32, String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::new();
    for (link, name, routing_only) in &global.domains {
        if !routing_only && !is_ours(*link, links) && !kept.contains(name) {
            kept.push(name.clone());
        }
    }
    kept
}

/// Tells whether a link is one of ours, left behind or of another session.
fn is_ours(link: u32, links: &BTreeMap<u32, String>) -> bool {
    let number = links.get(&link).and_then(|name| name.strip_prefix("kb"));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns::resolv_conf;

    fn server(link: u32, address: &str) -> KnownServer {
        KnownServer {
            link,
            address: address.parse().unwrap(),
        }
    }

    fn links() -> BTreeMap<u32, String> {
        [(1, "lo"), (2, "eth0"), (3, "tun0"), (4, "kb0")]
            .map(|(index, name)| (index, name.to_owned()))
            .into()
    }

    fn chosen(global: Option<Global>, file: &[u8], backup: &[u8]) -> Vec<String> {
        let sources = Sources {
            global,
            resolv_conf: resolv_conf::parse(file),
            backup: resolv_conf::parse(backup),
            links: links(),
        };
        choose(&sources)
            .servers
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn global_servers_come_before_those_of_links_that_take_any_name() {
        let global = Global {
            servers: vec![
                server(2, "192.0.2.1:53"),
                server(0, "192.0.2.9:53"),
                server(3, "10.8.0.1:53"),
                server(4, "198.19.248.2:53"),
                server(0, "127.0.0.53:53"),
            ],
            default_routes: vec![2, 4],
            ..Global::default()
        };
        assert_eq!(
            chosen(Some(global), b"nameserver 127.0.0.53\n", b""),
            ["192.0.2.9:53", "192.0.2.1:53"]
        );
    }

    #[test]
    fn a_link_with_its_own_domains_serves_when_there_is_no_other() {
        let global = Global {
            servers: vec![server(3, "10.8.0.1:5353")],
            ..Global::default()
        };
        assert_eq!(chosen(Some(global), b"", b""), ["10.8.0.1:5353"]);
    }

    #[test]
    fn files_and_fallback_servers_follow_in_turn() {
        let empty = || {
            Some(Global {
                fallback: vec![server(0, "9.9.9.9:53")],
                ..Global::default()
            })
        };
        assert_eq!(
            chosen(empty(), b"nameserver 192.0.2.1\n", b""),
            ["192.0.2.1:53"]
        );
        assert_eq!(
            chosen(None, b"nameserver 127.0.0.53\n", b"nameserver 192.0.2.2\n"),
            ["192.0.2.2:53"]
        );
        assert_eq!(
            chosen(empty(), b"nameserver 127.0.0.54\n", b""),
            ["9.9.9.9:53"]
        );
        assert_eq!(chosen(None, b"", b""), Vec::<String>::new());
    }

    #[test]
    fn a_link_local_server_keeps_its_interface() {
        assert_eq!(
            chosen(
                None,
                b"nameserver fe80::1%eth0\nnameserver fe80::1%2\n",
                b""
            ),
            ["[fe80::1%2]:53"]
        );
    }

    #[test]
    fn search_domains_are_those_of_other_links() {
        let domains = [
            (0, "corp.example", false),
            (2, "lan", false),
            (2, "vpn", true),
            (4, "x.svc.cluster.local", false),
        ];
        let domains = domains
            .map(|(link, name, routing)| (link, name.to_owned(), routing))
            .into();
        let global = Some(Global {
            domains,
            ..Global::default()
        });
        let sources = Sources {
            global,
            links: links(),
            ..Sources::default()
        };
        assert_eq!(choose(&sources).search, ["corp.example", "lan"]);
    }
}
