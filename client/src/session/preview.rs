//! `connect --dry-run`: what a session would do to the machine, found out with a session of the
//! manager and nothing done.

use std::fmt::Write;
use std::sync::Arc;

use kubebridge_platform::claims::Withheld;
use kubebridge_platform::intent::Intent;
use kubebridge_platform::link::LinkPlan;
use kubebridge_platform::preview::Preview;
use kubebridge_platform::sys::SessionId;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::os::{Os, ThisMachine, host_failure};
use super::parts::Parts;
use super::{Step, steps};
use crate::apply::dns_plan;
use crate::cli::HostsForm;
use crate::connect::{Config, STOPS};
use crate::failure::Failure;
use crate::progress::Reporter;
use crate::status::board::{Board, Identity};
use crate::status::{ConflictReport, HostsLineReport, Leftovers, WithheldReport};

/// What would be done, as `--output json` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlanReport {
    schema: &'static str,
    manager: String,
    context: Option<String>,
    cluster_domain: String,
    namespaces: Vec<String>,
    link: LinkReport,
    routes: Vec<RouteReport>,
    dns: Option<DnsSettings>,
    hosts: Vec<HostsLineReport>,
    conflicts: Vec<ConflictReport>,
    withheld: Option<WithheldReport>,
    /// What dead sessions left, which would be put back first.
    #[serde(flatten)]
    leftovers: Leftovers,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct LinkReport {
    name: String,
    address: String,
    prefix: u8,
    resolver: String,
    mtu: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct RouteReport {
    network: String,
    link: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct DnsSettings {
    servers: Vec<String>,
    search: Vec<String>,
    routing: Vec<String>,
    warnings: Vec<String>,
}

/// Finds out what a session with this configuration would do.
///
/// # Errors
///
/// It could not be connected.
pub async fn preview(
    machine: &ThisMachine,
    config: Config,
    reporter: Arc<Reporter>,
    leftovers: Leftovers,
) -> Result<PlanReport, Failure> {
    let clock = machine.clock();
    let id = SessionId::random();
    let identity = Identity {
        session: id.to_string(),
        manager: config.target.to_string(),
        context: config.target.context().map(str::to_owned),
        namespaces: config.namespaces.clone(),
    };
    let board = Arc::new(Board::new(identity, clock.clone()));
    // Nobody sends a stop: nothing is done that would have to be undone.
    let (stops, _never) = mpsc::channel(STOPS);
    let mut parts = Parts::new(machine, id, config, board, reporter, stops, clock);
    let reads = [Step::ReadDns, Step::Dial, Step::OpenSession, Step::Plan];
    for step in reads {
        let start = Instant::now();
        let done = parts.step(step).await;
        let detail = done.map_err(|failure| failure.context(step.label()))?;
        parts.reporter.step(step.label(), &detail, start.elapsed());
    }
    let planned = plan(machine, &mut parts, leftovers).await;
    parts.close_session().await?;
    planned
}

async fn plan(
    machine: &ThisMachine,
    parts: &mut Parts<'_, ThisMachine>,
    leftovers: Leftovers,
) -> Result<PlanReport, Failure> {
    let claims = parts.claims().ok_or_else(|| steps::missing("session"))?;
    let spec = steps::link_spec(parts)?;
    let link = machine.plan_link(&parts.id, &claims, &spec).await;
    let link = link.map_err(|error| host_failure(error).context(Step::Claim.label()))?;
    let (_, resolver) = link.addresses();
    let cluster = parts
        .cluster
        .as_ref()
        .ok_or_else(|| steps::missing("session"))?;
    let config = &parts.config;
    let dns = dns_plan(
        &cluster.session,
        &config.namespaces,
        &config.domains,
        resolver.into(),
    );
    let dns = parts.points_os().then_some(dns.intent);
    let (mut hosts, mut conflicts) = (Vec::new(), Vec::new());
    if config.hosts != HostsForm::Off {
        let mut keeper = parts.hosts_keeper().await?;
        hosts = keeper.plan();
        conflicts = keeper.conflicts();
    }
    let wish = Intent::new(dns, hosts)
        .map_err(|error| Failure::new(crate::failure::Exit::Usage, error))?;
    let preview = machine.preview(&parts.id, &claims, wish).await;
    let preview = preview.map_err(host_failure)?;
    let found = preview.conflicts.iter().map(|one| ConflictReport {
        name: one.name.clone(),
        reason: one.reason.clone(),
    });
    conflicts.extend(found);
    let planned = parts.routes.as_ref();
    let planned = planned.map(|keeper| keeper.routes()).unwrap_or_default();
    let own = std::iter::once(link.net.to_string());
    let routes = own.chain(planned.iter().map(ToString::to_string));
    let route = |network| RouteReport {
        network,
        link: link.name.clone(),
    };
    Ok(PlanReport {
        schema: "kubebridge.connect.plan/v1",
        manager: config.target.to_string(),
        context: config.target.context().map(str::to_owned),
        cluster_domain: claims.domain,
        namespaces: config.namespaces.clone(),
        routes: routes.map(route).collect(),
        link: link_report(&link),
        dns: dns_settings(&preview),
        hosts: preview.hosts.iter().map(HostsLineReport::from).collect(),
        conflicts,
        withheld: preview.withheld.map(WithheldReport::from),
        leftovers,
    })
}

fn link_report(link: &LinkPlan) -> LinkReport {
    let (address, resolver) = link.addresses();
    LinkReport {
        name: link.name.clone(),
        address: address.to_string(),
        prefix: link.net.prefix(),
        resolver: resolver.to_string(),
        mtu: link.mtu,
    }
}

fn dns_settings(preview: &Preview) -> Option<DnsSettings> {
    let dns = preview.dns.as_ref()?;
    let of = |routing: bool| {
        let domains = dns.domains.iter().filter(|(_, only)| *only == routing);
        domains.map(|(name, _)| name.clone()).collect()
    };
    Some(DnsSettings {
        servers: dns.servers.iter().map(ToString::to_string).collect(),
        search: of(false),
        routing: of(true),
        warnings: dns.warnings.clone(),
    })
}

impl PlanReport {
    /// Shows it to people.
    #[must_use]
    pub fn text(&self) -> String {
        let LinkReport {
            name,
            address,
            prefix,
            resolver,
            mtu,
        } = &self.link;
        let mut rows = Vec::new();
        for left in &self.leftovers.leftovers {
            let changes = left.changes.join(", ");
            rows.push(("repair", format!("session {}: {changes}", left.session)));
        }
        rows.push((
            "link",
            format!("{name} {address}/{prefix}, resolver {resolver}, MTU {mtu}"),
        ));
        for RouteReport { network, link } in &self.routes {
            rows.push(("route", format!("{network} by {link}")));
        }
        match &self.dns {
            None => rows.push(("system DNS", "not changed".to_owned())),
            Some(dns) => {
                rows.push((
                    "system DNS",
                    format!("{name}: server {}", dns.servers.join(", ")),
                ));
                rows.push(("  search", dns.search.join(", ")));
                rows.push(("  routing only", dns.routing.join(", ")));
                rows.extend(dns.warnings.iter().map(|one| ("  warning", one.clone())));
            }
        }
        for HostsLineReport { address, names } in &self.hosts {
            rows.push(("hosts line", format!("{address} {}", names.join(" "))));
        }
        for ConflictReport { name, reason } in &self.conflicts {
            rows.push(("  left alone", format!("{name}: {reason}")));
        }
        let withheld = self.withheld.as_ref();
        rows.extend(withheld.map(|one| ("other session", crate::status::text::withheld(one))));
        let mut text = String::new();
        for (label, value) in rows {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{label:<18}{value}");
        }
        text
    }

    /// Shows it to programs, on one line.
    #[must_use]
    pub fn json(&self) -> String {
        // Plain data with text keys always has a JSON form.
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl From<Withheld> for WithheldReport {
    fn from(withheld: Withheld) -> Self {
        Self {
            session: withheld.session.to_string(),
            name: withheld.name,
            domains: withheld.domains,
            hosts_names: withheld.hosts_names,
        }
    }
}
