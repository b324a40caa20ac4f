//! The steps of connecting: each creates one part of the session and says what it found.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::name::{Name, RecordType, ResponseCode};
use kubebridge_platform::host::{Host, HostDnsMode, Link, LinkSpec, ResolvedVia};
use kubebridge_platform::intent::Intent;
use tokio::net::{TcpListener, UdpSocket};
use tokio::time::timeout;

use super::Health;
use super::hosts::HostsKeeper;
use super::os::{Os, host_failure};
use super::parts::{Cluster, Found, LinkUp, Parts};
use crate::apply::{HostsPolicy, dns_plan, networks};
use crate::before::Lookback;
use crate::cli::{DnsChoice, HostsForm};
use crate::control::{self, Control};
use crate::failure::{Exit, Failure};
use crate::local_dns::{LocalDns, Serving};
use crate::originals::Originals;
use crate::probe::{self, Finding};
use crate::status::server::{self, Server};
use crate::zones::{ZoneNames, Zones};

/// The link's MTU: nothing on the way limits it, and big packets are cheap (design §6).
const MTU: u16 = 16_000;
/// How long the first snapshot of the routes may take; afterwards they come when they come.
const ROUTES_WAIT: Duration = Duration::from_secs(2);
/// How long one probe may take: the resolver gives up on the cluster after 2 s.
const PROBE_TIME: Duration = Duration::from_secs(5);

pub(super) async fn recover<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let host = parts.os.take(&parts.id)?;
    parts.host = Some(host);
    let repaired = parts.os.recover().await?;
    server::remove_dead(parts.os.runtime());
    let server = Server::start(
        parts.os.runtime(),
        parts.id.as_str(),
        Arc::clone(&parts.board),
        parts.stops.clone(),
    )
    .map_err(|error| Failure::new(Exit::HostOs, error).context("control socket"))?;
    parts.server = Some(server);
    Ok(summary(&repaired, "nothing left over"))
}

pub(super) async fn read_dns<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let dns = parts.os.read_dns().await?;
    let choice = parts.config.dns;
    let points_os = points_os(choice, dns.mode).map_err(|failure| Failure {
        error: failure.error.context(dns.reasons.join("; ")),
        ..failure
    })?;
    let originals = Arc::new(Originals::new(&dns.servers, &dns.search));
    let servers: Vec<_> = originals
        .servers()
        .iter()
        .map(ToString::to_string)
        .collect();
    let found = mode_words(dns.mode);
    if choice == DnsChoice::Auto && !points_os {
        parts.warn_once(format!(
            "no split DNS here ({found}): cluster names resolve through hosts entries only"
        ));
    }
    parts.board.note(|facts| {
        facts.dns.choice = choice_words(choice).to_owned();
        facts.dns.found = Some(found.to_owned());
        facts.dns.reasons.clone_from(&dns.reasons);
        facts.dns.originals.clone_from(&servers);
    });
    parts.found = Some(Found {
        originals,
        points_os,
    });
    Ok(format!("{found}; servers {}", summary(&servers, "none")))
}

/// Decides whether the system's DNS is pointed at the session.
fn points_os(choice: DnsChoice, mode: HostDnsMode) -> Result<bool, Failure> {
    match (choice, mode) {
        (DnsChoice::Auto | DnsChoice::Resolved, HostDnsMode::Resolved(_)) => Ok(true),
        (DnsChoice::Resolved, HostDnsMode::Bypassed | HostDnsMode::Plain) => Err(Failure::message(
            Exit::HostOs,
            format!("--dns resolved, but this machine has {}", mode_words(mode)),
        )
        .with_hint("--dns hosts-only")),
        (DnsChoice::Auto, HostDnsMode::Bypassed | HostDnsMode::Plain)
        | (DnsChoice::HostsOnly | DnsChoice::Off, _) => Ok(false),
    }
}

fn mode_words(mode: HostDnsMode) -> &'static str {
    match mode {
        HostDnsMode::Resolved(ResolvedVia::Nss) => "systemd-resolved by nss-resolve",
        HostDnsMode::Resolved(ResolvedVia::Stub) => "systemd-resolved by its stub",
        HostDnsMode::Bypassed => "systemd-resolved, bypassed by the C library",
        HostDnsMode::Plain => "plain /etc/resolv.conf",
    }
}

fn choice_words(choice: DnsChoice) -> &'static str {
    match choice {
        DnsChoice::Auto => "auto",
        DnsChoice::Resolved => "resolved",
        DnsChoice::HostsOnly => "hosts-only",
        DnsChoice::Off => "off",
    }
}

fn form_words(form: HostsForm) -> &'static str {
    match form {
        HostsForm::Off => "off",
        HostsForm::Short => "short",
        HostsForm::Namespaced => "namespaced",
        HostsForm::Fqdn => "fqdn",
    }
}

pub(super) async fn dial<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let manager = parts.config.manager;
    let channel = control::dial(manager)
        .await
        .map_err(|error| unreachable(manager, error))?;
    parts.channel = Some(channel);
    Ok(manager.to_string())
}

fn unreachable(manager: SocketAddr, error: anyhow::Error) -> Failure {
    Failure::new(Exit::Unreachable, error)
        .context(format!("traffic-manager at {manager}"))
        .with_hint("is the port-forward running? kubectl -n kubebridge port-forward deploy/traffic-manager 7080:7080")
}

pub(super) async fn open_session<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let manager = parts.config.manager;
    let channel = parts.channel.clone().ok_or_else(|| missing("channel"))?;
    let request = parts.request();
    let session = control::open_session(channel.clone(), &request)
        .await
        .map_err(|status| {
            unreachable(
                manager,
                anyhow::anyhow!("{}: {}", status.code(), status.message()),
            )
        })?;
    let control = Control::start(manager, channel, request, session.clone());
    let mut routes = control.routes();
    let settled = routes.wait_for(crate::routes::RouteTable::is_settled);
    if timeout(ROUTES_WAIT, settled).await.is_err() {
        parts
            .reporter
            .warn("the manager has not sent its services yet; they follow when they come");
    }
    let services: usize = routes
        .borrow()
        .namespaces()
        .map(|(_, routes)| routes.len())
        .sum();
    parts.board.note(|facts| {
        facts.manager_version = Some(session.manager_version.clone());
        facts.cluster_domain = Some(session.cluster_domain.clone());
        facts.tunnel = Some(control.tunnel());
        facts.routes = Some(control.routes());
    });
    let detail = format!(
        "cluster domain {}, namespaces {}, {services} services",
        session.cluster_domain,
        parts.config.namespaces.join(" ")
    );
    parts.cluster = Some(Cluster {
        tunnel: control.tunnel(),
        health: Health::Good,
        control,
        session,
    });
    Ok(detail)
}

pub(super) async fn link<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let cluster = parts.cluster.as_ref().ok_or_else(|| missing("session"))?;
    let spec = LinkSpec {
        cidr: parts.config.tun_cidr,
        avoid: networks(&cluster.session),
        mtu: MTU,
    };
    let host = parts.host.as_mut().ok_or_else(|| missing("host"))?;
    let link = host.open(&spec).await.map_err(|error| {
        host_failure(error).with_hint("--tun-cidr takes the link's network from elsewhere")
    })?;
    let words = format!("{} {}/{}", link.name, link.address, link.prefix);
    parts.board.note(|facts| {
        facts.dns.link = Some(words.clone());
        facts.dns.resolver = Some(link.resolver.to_string());
    });
    parts.link = Some(LinkUp {
        name: link.name.clone(),
        resolver: link.resolver,
        socket: link.udp.local_addr()?,
        rest: Some(link),
        device: None,
    });
    Ok(words)
}

pub(super) fn resolver<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let cluster = parts.cluster.as_ref().ok_or_else(|| missing("session"))?;
    let found = parts.found.as_ref().ok_or_else(|| missing("host DNS"))?;
    let link = parts.link.as_mut().ok_or_else(|| missing("link"))?;
    let resolver = IpAddr::from(link.resolver);
    let plan = dns_plan(
        &cluster.session,
        &parts.config.namespaces,
        &parts.config.domains,
        resolver,
    );
    let zones = Zones::new(&ZoneNames {
        cluster_domain: cluster.session.cluster_domain.clone(),
        namespaces: parts.config.namespaces.clone(),
        domains: parts.config.domains.clone(),
        reverse: plan.intent.reverse,
    })?;
    let local = LocalDns {
        zones,
        routes: cluster.control.routes(),
        exchange: cluster.control.exchange(),
        originals: Arc::clone(&found.originals),
    };
    let taken = link.rest.take().ok_or_else(|| missing("link's sockets"))?;
    let (udp, tcp, device) = take_sockets(taken)?;
    link.device = Some(device);
    parts.serving = Some(Serving::start(local, udp, tcp));
    Ok(format!("{} by UDP and TCP", link.socket))
}

pub(super) async fn probe<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let cluster = parts.cluster.as_ref().ok_or_else(|| missing("session"))?;
    let found = parts.found.as_ref().ok_or_else(|| missing("host DNS"))?;
    let link = parts.link.as_ref().ok_or_else(|| missing("link"))?;
    let resolver = link.socket;
    let name = probe_name(&cluster.session.cluster_domain)?;
    let inside = probe::ask(resolver, &name, RecordType::A, PROBE_TIME)
        .await
        .map_err(|error| Failure::new(Exit::Unreachable, error).context(name.to_string()))?;
    if !is_conclusive(&inside) {
        return Err(
            Failure::message(Exit::Unreachable, format!("{name}: {inside}"))
                .with_hint("the manager's log tells why it cannot resolve"),
        );
    }
    let Some(outside) = &parts.config.probe else {
        return Ok(format!(
            "{name} {inside}; outside skipped (no --probe NAME)"
        ));
    };
    let before = found.originals.find(outside, RecordType::A).await;
    let before = before
        .map_err(|error| Failure::new(Exit::HostOs, error).context(format!("{outside} before")))?;
    let after = probe::ask(resolver, outside, RecordType::A, PROBE_TIME)
        .await
        .map_err(|error| Failure::new(Exit::HostOs, error).context(outside.to_string()))?;
    if !before.is_like(&after) {
        return Err(Failure::message(
            Exit::HostOs,
            format!("{outside} was {before} before, and is {after} by the session's resolver"),
        )
        .with_hint("another --probe NAME, or none"));
    }
    Ok(format!("{name} {inside}; {outside} {after}, as before"))
}

/// Whether an answer proves that the cluster was asked. A refusal does: the session may have no
/// right to the probed namespace.
fn is_conclusive(finding: &Finding) -> bool {
    match finding {
        Finding::Addresses(_) | Finding::NoData | Finding::NoSuchName => true,
        Finding::Failed(code) => *code == ResponseCode::REFUSED,
    }
}

fn probe_name(cluster_domain: &str) -> Result<Name, Failure> {
    let text = format!("kubernetes.default.svc.{cluster_domain}");
    text.parse()
        .map_err(|error| Failure::message(Exit::Other, format!("{text}: {error}")))
}

pub(super) async fn point_os<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let cluster = parts.cluster.as_ref().ok_or_else(|| missing("session"))?;
    let found = parts.found.as_ref().ok_or_else(|| missing("host DNS"))?;
    let link = parts.link.as_ref().ok_or_else(|| missing("link"))?;
    if !found.points_os {
        return Ok("not changed".to_owned());
    }
    let plan = dns_plan(
        &cluster.session,
        &parts.config.namespaces,
        &parts.config.domains,
        link.resolver.into(),
    );
    for network in &plan.without_reverse {
        parts.warn_once(format!(
            "{network} has too many reverse zones: its addresses have no names"
        ));
    }
    let domains: Vec<String> = [
        &plan.intent.routes,
        &plan.intent.namespaces,
        &plan.intent.reverse,
    ]
    .into_iter()
    .flatten()
    .cloned()
    .collect();
    parts.intent = Intent::new(Some(plan.intent), Vec::new())
        .map_err(|error| Failure::new(Exit::Usage, error).context("DNS settings"))?;
    let changes = parts.apply().await?;
    parts.board.note(|facts| {
        facts.dns.applied = true;
        facts.dns.domains = domains;
    });
    Ok(summary(&changes, "already so"))
}

pub(super) async fn hosts<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let form = parts.config.hosts;
    parts
        .board
        .note(|facts| form_words(form).clone_into(&mut facts.hosts.form));
    if form == HostsForm::Off {
        return Ok("off".to_owned());
    }
    let cluster = parts.cluster.as_ref().ok_or_else(|| missing("session"))?;
    let found = parts.found.as_ref().ok_or_else(|| missing("host DNS"))?;
    let policy = HostsPolicy {
        form,
        namespace: parts.config.namespaces.first().cloned().unwrap_or_default(),
        cluster_domain: cluster.session.cluster_domain.clone(),
    };
    let routes = cluster.control.routes();
    let lookback = Lookback::start(Arc::clone(&found.originals), policy.clone(), routes.clone());
    let mut keeper = HostsKeeper::new(policy, routes, lookback);
    keeper.first_look().await;
    parts.hosts = Some(keeper);
    let lines = parts.write_hosts().await?;
    Ok(format!("{lines} lines"))
}

pub(super) async fn verify<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let cluster = parts.cluster.as_ref().ok_or_else(|| missing("session"))?;
    let found = parts.found.as_ref().ok_or_else(|| missing("host DNS"))?;
    if !found.points_os {
        return Ok("skipped (system DNS not changed)".to_owned());
    }
    let name = probe_name(&cluster.session.cluster_domain)?.to_string();
    let outcome = parts.os.resolve(&name).await?;
    Ok(format!("{name} {outcome}"))
}

fn take_sockets(
    link: Link,
) -> Result<(UdpSocket, TcpListener, kubebridge_platform::tun::Tun), Failure> {
    let udp = UdpSocket::from_std(link.udp)?;
    let tcp = TcpListener::from_std(link.tcp)?;
    Ok((udp, tcp, link.tun))
}

/// A step ran before the one that makes what it needs: the state machine does not do that.
fn missing(part: &'static str) -> Failure {
    Failure::message(Exit::Other, format!("the {part} is not there yet"))
}

/// Joins findings into a line.
pub(super) fn summary(list: &[String], none: &str) -> String {
    if list.is_empty() {
        none.to_owned()
    } else {
        list.join(", ")
    }
}
