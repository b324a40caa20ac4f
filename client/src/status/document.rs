//! What `--output json` prints: one object with a versioned schema, whose fields keep their meaning.
//!
//! Fields may be added under the same version; a field that goes or means something else gets a new
//! one. The golden files beside the tests are the contract.

use std::path::PathBuf;

use kubebridge_platform::boot::Installation;
use kubebridge_platform::{Leftover, Recovered};
use serde::Serialize;

use super::{HostsListReport, NamespacesReport, RoutesReport, StatusReport};
use crate::forward::ForwardReport;
use crate::inquiry::path::PathReport;
use crate::inquiry::report::{FlushReport, QueryReport, TraceReport, UpstreamsReport};
use crate::proxy::EnvReport;
use crate::skew::CLIENT;

/// What dead sessions left on the machine, as far as this user may know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Leftovers {
    /// By session.
    pub leftovers: Vec<LeftoverReport>,
    /// Why it is not known, mostly because only root may look.
    pub leftovers_error: Option<String>,
    /// What repairs it, when there is something to repair.
    pub leftovers_hint: Option<&'static str>,
}

/// What one dead session left.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LeftoverReport {
    /// The session's id.
    pub session: String,
    /// The process it had; 0 if that is not known.
    pub pid: u32,
    /// The changes still in force.
    pub changes: Vec<String>,
}

/// What a repair prints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct RecoveredReport<'a> {
    session: String,
    changes: &'a [String],
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'static str,
    version: &'static str,
    sessions: &'a [T],
    #[serde(flatten)]
    leftovers: &'a Leftovers,
}

impl From<Leftover> for LeftoverReport {
    fn from(left: Leftover) -> Self {
        Self {
            session: left.session.to_string(),
            pid: left.pid,
            changes: left.changes,
        }
    }
}

/// Makes the object `status` prints.
#[must_use]
pub fn status_document(sessions: &[StatusReport], leftovers: &Leftovers) -> String {
    sessions_document("kubebridge.status/v1", sessions, leftovers)
}

/// Makes the object `routes` prints.
#[must_use]
pub fn routes_document(sessions: &[RoutesReport], leftovers: &Leftovers) -> String {
    sessions_document("kubebridge.routes/v1", sessions, leftovers)
}

/// Makes the object `hosts list` prints.
#[must_use]
pub fn hosts_document(sessions: &[HostsListReport], leftovers: &Leftovers) -> String {
    sessions_document("kubebridge.hosts/v1", sessions, leftovers)
}

/// Makes the object `namespace …` prints.
#[must_use]
pub fn namespace_document(sessions: &[NamespacesReport]) -> String {
    sessions_document("kubebridge.namespace/v1", sessions, &Leftovers::default())
}

/// Makes the object `forward` prints when its ports listen.
#[must_use]
pub fn forward_document(sessions: &[ForwardReport]) -> String {
    sessions_document("kubebridge.forward/v1", sessions, &Leftovers::default())
}

/// Makes the object `env` prints.
#[must_use]
pub fn env_document(sessions: &[EnvReport]) -> String {
    sessions_document("kubebridge.env/v1", sessions, &Leftovers::default())
}

/// Makes the object `trace` prints.
#[must_use]
pub fn trace_document(sessions: &[PathReport], leftovers: &Leftovers) -> String {
    sessions_document("kubebridge.trace/v1", sessions, leftovers)
}

/// Makes the object `dns trace` prints.
#[must_use]
pub fn dns_trace_document(sessions: &[TraceReport], leftovers: &Leftovers) -> String {
    sessions_document("kubebridge.dns.trace/v1", sessions, leftovers)
}

/// Makes the object `dns query` prints.
#[must_use]
pub fn dns_query_document(sessions: &[QueryReport], leftovers: &Leftovers) -> String {
    sessions_document("kubebridge.dns.query/v1", sessions, leftovers)
}

/// Makes the object `dns flush` prints.
#[must_use]
pub fn dns_flush_document(sessions: &[FlushReport], leftovers: &Leftovers) -> String {
    sessions_document("kubebridge.dns.flush/v1", sessions, leftovers)
}

/// Makes the object `dns upstreams` prints.
#[must_use]
pub fn dns_upstreams_document(sessions: &[UpstreamsReport], leftovers: &Leftovers) -> String {
    sessions_document("kubebridge.dns.upstreams/v1", sessions, leftovers)
}

fn sessions_document<T: Serialize>(
    schema: &'static str,
    sessions: &[T],
    leftovers: &Leftovers,
) -> String {
    json(&Document {
        schema,
        version: CLIENT,
        sessions,
        leftovers,
    })
}

/// Makes the object `recover` prints.
#[must_use]
pub fn recover_document(recovered: &[Recovered]) -> String {
    let reports: Vec<_> = recovered
        .iter()
        .map(|one| RecoveredReport {
            session: one.session.to_string(),
            changes: &one.changes,
        })
        .collect();
    json(&serde_json::json!({ "schema": "kubebridge.recover/v1", "recovered": reports }))
}

/// Makes the object `install-recovery` prints.
#[must_use]
pub fn recovery_document(
    planned: Option<&Installation>,
    written: &[PathBuf],
    removed: &[PathBuf],
) -> String {
    let planned = planned.map(|planned| {
        serde_json::json!({
            "unit": planned.unit,
            "content": planned.content,
            "link": planned.link,
            "target": planned.target,
        })
    });
    json(&serde_json::json!({
        "schema": "kubebridge.install-recovery/v1",
        "planned": planned,
        "written": written,
        "removed": removed,
    }))
}

/// Makes the object `version` prints.
#[must_use]
pub fn version_document() -> String {
    json(&serde_json::json!({ "schema": "kubebridge.version/v1", "version": CLIENT }))
}

fn json<T: Serialize>(document: &T) -> String {
    // Plain data with text keys always has a JSON form.
    serde_json::to_string(document).unwrap_or_default()
}

#[cfg(test)]
mod tests;
