//! `kubernetes`: whether the Services of the session's namespaces are known.

use crate::doctor::{Check, Finding};
use crate::failure::Exit;
use crate::status::NamespaceReport;

const CHECK: Check = Check::Kubernetes;

/// Judges the worst namespace.
pub(super) fn judge(namespaces: &[NamespaceReport]) -> Finding {
    let seen = namespaces.iter().map(|one| {
        format!(
            "{}: {}, {} services",
            one.namespace, one.state, one.services
        )
    });
    let is = |one: &&NamespaceReport, word: &str| one.state.starts_with(word);
    let first = |word: &'static str| namespaces.iter().find(|one| is(one, word));
    let finding = if let Some(one) = first("no token") {
        let help = one.help.clone();
        let help =
            help.unwrap_or_else(|| format!("kubebridge install --namespace {}", one.namespace));
        Finding::fail(
            CHECK,
            "no-token",
            format!("{}: {}", one.namespace, one.state),
        )
        .help(help)
    } else if let Some(one) = first("forbidden") {
        let why = format!(
            "{}: the manager may not do this: {}",
            one.namespace, one.state
        );
        Finding::fail(CHECK, "forbidden", why).help(format!(
            "kubebridge install --namespace {} gives it the right",
            one.namespace
        ))
    } else if let Some(one) = first("no source") {
        let why = format!(
            "{}: the manager was started without Services",
            one.namespace
        );
        Finding::fail(CHECK, "no-source", why)
            .exiting(Exit::Other)
            .help("traffic-manager serve --kubernetes, or --services FILE")
    } else if let Some(one) = namespaces.iter().find(|one| !is(one, "synced")) {
        let why = format!("{}: {}", one.namespace, one.state);
        Finding::note(CHECK, "waiting", why)
    } else {
        let count: usize = namespaces.iter().map(|one| one.services).sum();
        let why = format!("{count} services of {} namespaces", namespaces.len());
        Finding::ok(CHECK, "synced", why)
    };
    finding.seen(seen)
}
