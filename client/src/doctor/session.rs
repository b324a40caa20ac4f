//! The checks of a session that runs, from what it says of itself and from outside.

mod authorisation;
mod changes;
mod data;
mod dns;
mod kubernetes;
mod routes;
mod tunnel;
mod upstreams;

use futures::future::join_all;
use kubebridge_platform::Sys;

use super::Finding;
use crate::status::StatusReport;

/// Looks at all sessions at once.
pub(super) async fn findings(sys: &Sys, sessions: &[StatusReport]) -> Vec<Finding> {
    let each = join_all(sessions.iter().map(|one| of(sys, one))).await;
    each.into_iter().flatten().collect()
}

async fn of(sys: &Sys, session: &StatusReport) -> Vec<Finding> {
    let mut found = vec![
        tunnel::session(session),
        tunnel::tunnel(session.tunnel.as_ref()),
        kubernetes::judge(&session.kubernetes),
        authorisation::judge(session.tokens.as_ref(), session.credentials.as_ref()),
        changes::judge(session),
    ];
    found.extend(data::connections(session.flows.as_ref()));
    found.extend(data::flows(
        session.flows.as_ref(),
        session.packets.as_ref(),
    ));
    let slow = futures::join!(
        routes::check(sys, session),
        dns::check(sys, session),
        upstreams::check(&session.session),
    );
    found.extend([slow.0, slow.1, slow.2]);
    let about = |finding: Finding| finding.about(format!("session {}", session.session));
    found.into_iter().map(about).collect()
}

#[cfg(test)]
mod tests;
