//! What a session would do to this machine, worked out without doing any of it.
//!
//! Reads what the real thing reads. What only root may read (the claims of other sessions) counts
//! for nothing where it cannot be read.

use std::path::Path;

use crate::claims::registry::others;
use crate::claims::{Claimant, Claims, Withheld, withhold};
use crate::dns::resolved::{Domain, Resolved};
use crate::fs::RootFs;
use crate::host::{HostError, HostsConflict, LinkSpec};
use crate::hosts;
use crate::hosts::file::HOSTS;
use crate::intent::{DnsIntent, HostsLine, Intent};
use crate::link::{self, LinkPlan};
use crate::sys::{SessionId, Sys};

/// What would be set for a wish.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preview {
    /// The DNS settings of the link.
    pub dns: Option<DnsPreview>,
    /// The hosts lines.
    pub hosts: Vec<HostsLine>,
    /// The names without one.
    pub conflicts: Vec<HostsConflict>,
    /// What another session has.
    pub withheld: Option<Withheld>,
}

/// DNS settings of a link that is not there yet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DnsPreview {
    /// The servers.
    pub servers: Vec<std::net::IpAddr>,
    /// The domains, and whether each is for routing only.
    pub domains: Vec<Domain>,
    /// What could not be had.
    pub warnings: Vec<String>,
}

/// Plans the link of a session with these claims.
///
/// # Errors
///
/// There is none to be had, or another session has what is claimed.
pub async fn plan_link(
    sys: &Sys,
    session: &SessionId,
    claims: &Claims,
    spec: &LinkSpec,
) -> Result<LinkPlan, HostError> {
    let claims = claims.clone().checked().map_err(HostError::Claims)?;
    let others = read_others(sys, session).await?;
    let claimant = Claimant {
        session: session.clone(),
        pid: std::process::id(),
        number: 0,
        claims,
    };
    if let Some(clash) = claimant.clash(&others) {
        return Err(clash.into());
    }
    let mut spec = spec.clone();
    let networks = others.into_iter().map(|other| other.claims.networks);
    spec.avoid.extend(networks.flatten());
    let plan = link::plan(&spec, &sys.faults).await;
    plan.map_err(HostError::Link)
}

/// Works out what would become of a wish.
///
/// # Errors
///
/// The wish is not acceptable, or what is there cannot be read.
pub async fn preview(
    sys: &Sys,
    session: &SessionId,
    claims: &Claims,
    wish: Intent,
) -> Result<Preview, HostError> {
    let wish = wish.checked().map_err(HostError::Intent)?;
    let others = read_others(sys, session).await?;
    let (left, withheld) = withhold(wish, claims, &others);
    let dns = match &left.dns {
        Some(intent) => Some(preview_dns(sys, intent).await?),
        None => None,
    };
    let (hosts, conflicts) = preview_hosts(sys, left.hosts).await?;
    Ok(Preview {
        dns,
        hosts,
        conflicts,
        withheld,
    })
}

async fn preview_dns(sys: &Sys, intent: &DnsIntent) -> Result<DnsPreview, HostError> {
    let plan = Resolved::new(sys, "", 0).preview(intent).await;
    let plan = plan.map_err(HostError::Dns)?;
    Ok(DnsPreview {
        servers: plan.servers,
        domains: plan.domains,
        warnings: plan.warnings,
    })
}

async fn preview_hosts(
    sys: &Sys,
    wanted: Vec<HostsLine>,
) -> Result<(Vec<HostsLine>, Vec<HostsConflict>), HostError> {
    let fs = RootFs::new(sys);
    let read = move || {
        let now = fs.read(Path::new(HOSTS));
        now.map_err(|error| HostError::Hosts(error.into()))
    };
    let now = tokio::task::spawn_blocking(read).await;
    let now = now.unwrap_or(Err(HostError::Worker))?;
    Ok(hosts::admitted(&now.unwrap_or_default(), &wanted))
}

async fn read_others(sys: &Sys, session: &SessionId) -> Result<Vec<Claimant>, HostError> {
    let (sys, session) = (sys.clone(), session.clone());
    let read =
        tokio::task::spawn_blocking(move || others(&sys, &session).map_err(HostError::Files));
    read.await.unwrap_or(Err(HostError::Worker))
}
