//! `machine-changes`: whether the session could do to this machine what it wants, and who undoes it.

use crate::doctor::{Check, Finding};
use crate::status::StatusReport;

const CHECK: Check = Check::MachineChanges;

/// Something is put back again and again when somebody else wants it otherwise.
const MANY: u64 = 20;

/// Judges what it says of DNS, routes, hosts file and repairs.
pub(super) fn judge(report: &StatusReport) -> Finding {
    let errors = [
        ("DNS", &report.dns.error),
        ("routes", &report.routing.error),
        ("hosts file", &report.hosts.error),
    ];
    let mut seen: Vec<_> = errors
        .iter()
        .filter_map(|(what, error)| Some(format!("{what}: {}", error.as_ref()?)))
        .collect();
    seen.extend(report.repairs.troubles.clone());
    if let Some(first) = seen.first() {
        return Finding::fail(CHECK, "in-trouble", first.clone())
            .seen(seen)
            .help("kubebridge disconnect, then connect again; sudo kubebridge recover if it is left over");
    }
    let last = report.repairs.last.iter().rev().take(3);
    let last: Vec<_> = last
        .map(|one| format!("put back {} s ago: {}", one.ago_seconds, one.what))
        .collect();
    if report.repairs.count > MANY {
        let why = format!(
            "put back {} times: another program keeps changing it",
            report.repairs.count
        );
        return Finding::warn(CHECK, "contended", why)
            .seen(last)
            .help("kubebridge status says what; have that program leave the link alone");
    }
    if let Some(withheld) = &report.withheld {
        let why = format!("session {} came first and has some names", withheld.session);
        return Finding::note(CHECK, "withheld", why).seen(withheld.domains.clone());
    }
    match report.dns.warnings.first() {
        Some(first) => {
            Finding::warn(CHECK, "warnings", first.clone()).seen(report.dns.warnings.clone())
        }
        None => Finding::ok(CHECK, "as-wanted", "all as wanted").seen(last),
    }
}
