//! The checks of this machine: they need no session, and say what one would meet here.

mod answers;
mod backend;
mod device;
mod encrypted;
mod hosts_lines;
mod leftovers;
mod nsswitch;
mod other_tools;
mod overlap;
mod own_resolvers;
mod port53;
mod privilege;
mod resolv_conf;
mod rules;

use std::net::IpAddr;
use std::time::Duration;

use kubebridge_platform::inspect::{self, ResolvConfFile};
use kubebridge_platform::{HostDns, Sys, read_host_dns};
use tokio::time::timeout;

use super::finding::{Finding, Reading};
use super::run::Asked;
use crate::status::StatusReport;

/// How long one reading may take: a bus that hangs has 1 s a call.
const READING: Duration = Duration::from_secs(3);

/// How `platform` says so.
const RESOLVED_RUNS: &str = "systemd-resolved is running";

/// What several checks look at.
#[derive(Debug)]
struct Facts {
    /// The host's DNS.
    dns: Reading<HostDns>,
    /// The file with its servers.
    file: Reading<ResolvConfFile>,
    /// The sources of the hosts line of nsswitch.conf; `None` without one.
    nss: Option<Vec<String>>,
    /// The hosts file.
    hosts: String,
    /// The resolvers of sessions that run.
    resolvers: Vec<IpAddr>,
}

/// Looks at all of it at once.
pub(super) async fn findings(sys: &Sys, asked: &Asked, sessions: &[StatusReport]) -> Vec<Finding> {
    let facts = facts(sys, sessions).await;
    let mut found = vec![
        nsswitch::judge(facts.nss.as_deref()),
        resolv_conf::judge(facts.file.as_ref(), &facts.resolvers),
        backend::judge(facts.dns.as_ref()),
        own_resolvers::judge(facts.dns.as_ref(), facts.file.as_ref()),
        port53::check(sys, facts.file.as_ref()),
        device::tun(sys),
        device::ipv6(sys),
        privilege::check(),
    ];
    let slow = async {
        futures::join!(
            answers::check(sys, asked, sessions, &facts),
            encrypted::check(sys, &facts),
            leftovers::check(sessions, &facts.hosts),
            other_tools::check(sys, &facts.hosts),
            overlap::check(sys, asked, sessions, &facts),
            rules::check(),
        )
    };
    let (answers, encrypted, leftovers, tools, overlap, rules) = slow.await;
    found.extend(answers);
    found.extend([encrypted, leftovers, tools, rules]);
    found.extend(overlap);
    found
}

async fn facts(sys: &Sys, sessions: &[StatusReport]) -> Facts {
    let text = |path| {
        let bytes = inspect::file(sys, path).ok().flatten();
        bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    let reading = within("systemd-resolved", async {
        read_host_dns(sys).await.map_err(in_full)
    });
    let dns = reading.await;
    let nss = text("/etc/nsswitch.conf")
        .map(|text| kubebridge_platform::dns::detect::nss_hosts(text.as_bytes()));
    Facts {
        dns,
        file: inspect::resolv_conf_file(sys).map_err(|error| error.to_string()),
        nss: nss.filter(|sources| !sources.is_empty()),
        hosts: text("/etc/hosts").unwrap_or_default(),
        resolvers: resolvers(sessions),
    }
}

impl Facts {
    /// Whether systemd-resolved runs, asked by programs or not.
    fn has_resolved(&self) -> bool {
        let dns = self.dns.as_ref();
        dns.is_ok_and(|dns| dns.reasons.iter().any(|one| one == RESOLVED_RUNS))
    }
}

/// The addresses of the resolvers of sessions.
fn resolvers(sessions: &[StatusReport]) -> Vec<IpAddr> {
    let all = sessions.iter().filter_map(|one| one.dns.resolver.as_ref());
    all.filter_map(|text| address(text)).collect()
}

/// Reads an address with or without a port.
pub(super) fn address(text: &str) -> Option<IpAddr> {
    let plain = text.parse().ok();
    plain.or_else(|| Some(text.parse::<std::net::SocketAddr>().ok()?.ip()))
}

/// Waits for a reading as long as it may take.
async fn within<T>(what: &str, reading: impl Future<Output = Reading<T>>) -> Reading<T> {
    let outcome = timeout(READING, reading).await;
    outcome.unwrap_or_else(|_| Err(format!("{what} did not answer within {READING:?}")))
}

/// An error with its causes, in one line.
fn in_full(error: impl std::error::Error + Send + Sync + 'static) -> String {
    crate::failure::chain(&error.into())
}

#[cfg(test)]
mod tests;
