//! `own-resolvers`: runtimes that read `/etc/resolv.conf` themselves see what is in it alone.

use kubebridge_platform::dns::detect::STUBS;
use kubebridge_platform::inspect::ResolvConfFile;
use kubebridge_platform::{HostDns, HostDnsMode};

use crate::doctor::{Check, Finding};

const CHECK: Check = Check::OwnResolvers;

/// Judges whether they would see the cluster's names.
pub(super) fn judge(
    dns: Result<&HostDns, &String>,
    file: Result<&ResolvConfFile, &String>,
) -> Finding {
    let (Ok(dns), Ok(file)) = (dns, file) else {
        return Finding::skipped(CHECK, "who resolves names here is not known");
    };
    let servers = &file.nameservers;
    let leads_there = !servers.is_empty() && servers.iter().all(|one| STUBS.contains(one));
    match dns.mode {
        HostDnsMode::Resolved(_) if leads_there => Finding::ok(
            CHECK,
            "stub",
            "they are led to systemd-resolved by /etc/resolv.conf as well",
        ),
        HostDnsMode::Resolved(_) => Finding::note(
            CHECK,
            "past-resolved",
            "musl, Go without cgo, c-ares and their like read /etc/resolv.conf, which does not \
             lead to systemd-resolved: of the cluster they know hosts lines only",
        )
        .help("ln -sf ../run/systemd/resolve/stub-resolv.conf /etc/resolv.conf"),
        HostDnsMode::Bypassed | HostDnsMode::Plain => Finding::note(
            CHECK,
            "hosts-only",
            "they see of the cluster what all programs here see: hosts lines",
        ),
    }
}
