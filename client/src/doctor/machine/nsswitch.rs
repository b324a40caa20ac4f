//! `nsswitch`: in which order the C library looks names up.

use crate::doctor::{Check, Finding};

const CHECK: Check = Check::Nsswitch;

/// A line that works with all we do.
const HELP: &str = "hosts: files resolve [!UNAVAIL=return] dns";

/// Judges the sources of the hosts line; `None` without such a line.
pub(super) fn judge(sources: Option<&[String]>) -> Finding {
    let Some(sources) = sources else {
        return Finding::note(
            CHECK,
            "none",
            "there is no hosts line: files come first, then DNS",
        );
    };
    let place = |name| sources.iter().position(|source| source == name);
    let line = sources.join(" ");
    let asks_dns = place("dns").or_else(|| place("resolve"));
    let finding = match (place("files"), asks_dns) {
        (None, _) => Finding::warn(
            CHECK,
            "no-files",
            "the hosts file is not read: short names of services do not resolve by it",
        )
        .help(HELP),
        (Some(_), None) => Finding::warn(
            CHECK,
            "no-dns",
            "neither DNS nor systemd-resolved is asked: only names of the hosts file resolve",
        )
        .help(HELP),
        (Some(files), Some(dns)) if dns < files => Finding::warn(
            CHECK,
            "dns-first",
            "DNS is asked before the hosts file: a name that is in both has the address of DNS",
        )
        .help(HELP),
        (Some(_), Some(_)) => match (place("resolve"), place("dns")) {
            (Some(resolve), Some(dns)) if dns < resolve => Finding::note(
                CHECK,
                "resolve-last",
                "DNS is asked before systemd-resolved: names go by /etc/resolv.conf",
            ),
            _ => Finding::ok(CHECK, "ordered", line.clone()),
        },
    };
    if finding.why == line {
        finding
    } else {
        finding.seen([format!("hosts: {line}")])
    }
}
