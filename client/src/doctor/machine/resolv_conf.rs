//! `resolv-conf`: what `/etc/resolv.conf` is and names.

use std::net::{IpAddr, Ipv4Addr};

use kubebridge_platform::dns::detect::STUBS;
use kubebridge_platform::inspect::ResolvConfFile;
use kubebridge_platform::link::DEFAULT_RANGE;

use crate::doctor::{Check, Finding};

const CHECK: Check = Check::ResolvConf;

/// The resolver that container engines put into their networks.
pub(super) const EMBEDDED: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));

/// How many servers the C library reads.
const MOST_READ: usize = 3;

/// Judges the file; `resolvers` are those of sessions that run.
pub(super) fn judge(file: Result<&ResolvConfFile, &String>, resolvers: &[IpAddr]) -> Finding {
    let file = match file {
        Ok(file) => file,
        Err(error) => return Finding::fail(CHECK, "unreadable", error.clone()),
    };
    of_shape(file, resolvers).seen(shape(file))
}

fn of_shape(file: &ResolvConfFile, resolvers: &[IpAddr]) -> Finding {
    let ours = |server: &&IpAddr| match server {
        _ if resolvers.contains(server) => true,
        IpAddr::V4(four) => DEFAULT_RANGE.contains(*four),
        IpAddr::V6(_) => false,
    };
    let servers = &file.nameservers;
    if let Some(own) = servers.iter().find(ours) {
        let why = format!(
            "it names {own}, the resolver of a session: names outside the cluster would go round"
        );
        return Finding::fail(CHECK, "loops", why).help(
            "put the servers of your network there again: kubebridge never writes this file",
        );
    }
    if !file.readable && file.link.is_some() {
        return Finding::warn(CHECK, "dangling", "it is a link that leads to nothing")
            .help("start what writes it (systemctl start systemd-resolved), or make it a file");
    }
    if !file.readable {
        let why = "it is not there: programs ask 127.0.0.1";
        return Finding::warn(CHECK, "absent", why);
    }
    if servers.is_empty() {
        let why = "it names no server: programs ask 127.0.0.1";
        return Finding::warn(CHECK, "no-servers", why);
    }
    if servers.contains(&EMBEDDED) {
        let why = "a container's: its engine's own resolver is asked, and stays in place";
        return Finding::note(CHECK, "container", why);
    }
    if servers.iter().all(|server| STUBS.contains(server)) {
        return Finding::ok(CHECK, "stub", "it leads to systemd-resolved");
    }
    if servers.len() > MOST_READ {
        let why = format!(
            "it names {} servers, of which three are read",
            servers.len()
        );
        return Finding::note(CHECK, "too-many", why);
    }
    let texts: Vec<_> = servers.iter().map(ToString::to_string).collect();
    Finding::ok(CHECK, "servers", format!("it names {}", texts.join(", ")))
}

fn shape(file: &ResolvConfFile) -> Vec<String> {
    let link = file.link.as_ref();
    let mut lines: Vec<_> = link
        .map(|link| format!("a link to {}", link.display()))
        .into_iter()
        .collect();
    if file.mounted {
        lines.push("mounted by itself: nobody can replace it".to_owned());
    }
    let servers = file.nameservers.iter();
    lines.extend(servers.map(|server| format!("nameserver {server}")));
    if !file.search.is_empty() {
        lines.push(format!("search {}", file.search.join(" ")));
    }
    lines
}
