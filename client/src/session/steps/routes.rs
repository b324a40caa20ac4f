//! Planning the IP routes before there is a link, and setting them when it carries packets.

use super::{missing, summary};
use crate::failure::Failure;
use crate::session::os::Os;
use crate::session::parts::Parts;
use crate::session::routes::RoutesKeeper;
use crate::status::routing::RoutingReport;

/// Networks told on one line; holes may make many of one.
const SHOWN: usize = 6;

/// Finds out what may be routed: overlaps are told, and a network that is taken whole is an error,
/// before anything is changed.
pub(in crate::session) async fn plan<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let cluster = parts.cluster.as_ref().ok_or_else(|| missing("session"))?;
    let keeper = RoutesKeeper::new(
        parts.config.routes.clone(),
        &cluster.session,
        cluster.control.routes(),
    );
    parts.routes = Some(keeper);
    parts.plan_routes().await?;
    let keeper = parts.routes.as_ref().ok_or_else(|| missing("routes"))?;
    keeper.check_covered()?;
    Ok(words(&keeper.report()))
}

/// Sets what was planned.
pub(in crate::session) async fn routes<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    if let Err(failure) = parts.set_routes().await {
        tracing::info!(error = %failure.error, "the machine changed since it was read");
        parts.plan_routes().await?;
        parts.set_routes().await?;
    }
    Ok(match parts.intent.routes.len() {
        1 => "1 route".to_owned(),
        count => format!("{count} routes"),
    })
}

fn words(report: &RoutingReport) -> String {
    let shown = report.networks.iter().take(SHOWN);
    let mut shown: Vec<_> = shown.map(|one| one.network.clone()).collect();
    if report.networks.len() > SHOWN {
        shown.push(format!("{} more", report.networks.len() - SHOWN));
    }
    let networks = summary(&shown, "none");
    match report.holes.len() {
        0 => networks,
        1 => format!("{networks} (1 hole)"),
        holes => format!("{networks} ({holes} holes)"),
    }
}
