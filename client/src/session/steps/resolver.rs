//! The link, the resolver on it, and whether it resolves.

use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::name::{Name, RecordType, ResponseCode};
use kubebridge_platform::host::{Host, LinkSpec};
use kubebridge_platform::net::IpNet;
use tokio::sync::watch;

use super::missing;
use crate::cli::Mode;
use crate::failure::{Exit, Failure};
use crate::inquiry::Inquiry;
use crate::local_dns::{LocalDns, Watching};
use crate::netstack::{Netstack, Settings};
use crate::places::SessionPlaces;
use crate::probe::{self, Finding};
use crate::session::os::{Os, host_failure};
use crate::session::parts::{LinkUp, Parts, link_words};
use crate::zones::Zones;

/// The link's MTU: nothing on the way limits it, and big packets are cheap (design §6).
const MTU: u16 = 16_000;
/// How many flows the laptop may have at once: more than any manager allows one session (16,384), so
/// that what it allows decides, which `flows` keeps to. This bounds what never reaches it.
const FLOWS: usize = 20_000;
/// How long one probe may take: the resolver gives up on the cluster after 2 s.
const PROBE_TIME: Duration = Duration::from_secs(5);

pub(in crate::session) async fn link<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    parts.watch = Some(parts.os.watch(parts.clock.clone()));
    let spec = link_spec(parts)?;
    let host = parts.host.as_mut().ok_or_else(|| missing("host"))?;
    let link = host.open(&spec).await.map_err(|error| {
        let failure = host_failure(error);
        match failure.hint {
            Some(_) => failure,
            None => failure.with_hint("--tun-cidr takes the link's network from elsewhere"),
        }
    })?;
    if let Some(watch) = &parts.watch {
        watch.follow(Some(link.index));
    }
    let words = link_words(&link.name, link.address, link.prefix);
    parts.board.note(|facts| {
        facts.dns.link = Some(words.clone());
        facts.dns.resolver = Some(link.resolver.to_string());
    });
    parts.link = Some(LinkUp {
        name: link.name.clone(),
        index: link.index,
        address: link.address,
        prefix: link.prefix,
        resolver: link.resolver,
        socket: parts.os.resolver_of(&link),
        mtu: link.mtu,
        device: Some(link.tun),
    });
    Ok(words)
}

/// What kind of link the session wants.
pub(in crate::session) fn link_spec<O: Os>(parts: &Parts<'_, O>) -> Result<LinkSpec, Failure> {
    let planned = parts.routes.as_ref().ok_or_else(|| missing("routes"))?;
    let avoid = planned.wanted();
    Ok(LinkSpec {
        cidr: parts.config.tun_cidr,
        v6: avoid.iter().any(|net| matches!(net, IpNet::V6(_))),
        avoid,
        mtu: MTU,
    })
}

pub(in crate::session) fn resolver<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let plan = parts.dns_plan().ok_or_else(|| missing("link"))?;
    let zones = watch::Sender::new(Arc::new(Zones::new(&parts.zone_names(&plan))?));
    let cluster = parts.cluster.as_ref().ok_or_else(|| missing("session"))?;
    let found = parts.found.as_ref().ok_or_else(|| missing("host DNS"))?;
    let routes = parts.routes.as_ref().map(|planned| planned.resolver());
    let local = LocalDns {
        zones: zones.subscribe(),
        routes: cluster.control.routes(),
        exchange: cluster.control.exchange(),
        originals: Arc::clone(&found.originals),
        stale: Arc::clone(&parts.stale),
        hosts: routes.clone(),
        clock: parts.clock.clone(),
    };
    let local = Arc::new(local);
    let inquiry = Arc::new(Inquiry::new(Arc::clone(&local), cluster.control.calls()));
    let places = SessionPlaces::new(
        Arc::clone(&local),
        cluster.control.session(),
        parts.config.routes.clone(),
    );
    parts.board.note(|facts| {
        facts.inquiry = Some(inquiry);
        facts.places = Some(Arc::new(places));
    });
    parts.watching = Some(Watching::start(Arc::clone(&found.originals)));
    parts.zones = Some(zones);
    parts.local = Some(Arc::clone(&local));
    if parts.config.mode == Mode::Proxy {
        return Ok("within the session, on no port".to_owned());
    }
    let routes = routes.ok_or_else(|| missing("routes"))?;
    let link = parts.link.as_mut().ok_or_else(|| missing("link"))?;
    let device = link.device.take().ok_or_else(|| missing("device"))?;
    let settings = Settings {
        mtu: usize::from(link.mtu),
        resolver: link.resolver.into(),
        flows: FLOWS,
    };
    let opener = Arc::clone(&cluster.flows);
    opener.warm();
    let reachable = routes.reachable();
    let netstack = Netstack::start(device.packets()?, settings, opener, reachable, local);
    let counts = netstack.counts();
    parts.board.note(|facts| facts.packets = Some(counts));
    parts.netstack = Some(netstack);
    Ok(format!("{} by UDP and TCP", link.socket))
}

pub(in crate::session) async fn probe<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let cluster = parts.cluster.as_ref().ok_or_else(|| missing("session"))?;
    let found = parts.found.as_ref().ok_or_else(|| missing("host DNS"))?;
    let name = probe_name(&cluster.session.cluster_domain)?;
    if parts.config.mode == Mode::Proxy {
        // Names of the world are looked up by the machine itself: they cannot differ.
        let local = parts.local.as_ref().ok_or_else(|| missing("resolver"))?;
        let reply = local.answer(probe::query(&name, RecordType::A)).await;
        let inside = Finding::read(&reply.unwrap_or_default());
        let inside = conclusive(&name, inside)?;
        return Ok(format!("{name} {inside}"));
    }
    let link = parts.link.as_ref().ok_or_else(|| missing("link"))?;
    let resolver = link.socket;
    let inside = probe::ask(resolver, &name, RecordType::A, PROBE_TIME).await;
    let inside = conclusive(&name, inside)?;
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

/// Fails unless an answer proves that the cluster was asked.
fn conclusive(name: &Name, finding: anyhow::Result<Finding>) -> Result<Finding, Failure> {
    let finding = finding
        .map_err(|error| Failure::new(Exit::Unreachable, error).context(name.to_string()))?;
    match is_conclusive(&finding) {
        true => Ok(finding),
        false => Err(
            Failure::message(Exit::Unreachable, format!("{name}: {finding}"))
                .with_hint("the manager's log tells why it cannot resolve"),
        ),
    }
}

/// Whether an answer proves that the cluster was asked. A refusal does: the session may have no
/// right to the probed namespace.
fn is_conclusive(finding: &Finding) -> bool {
    match finding {
        Finding::Addresses(_) | Finding::NoData | Finding::NoSuchName => true,
        Finding::Failed(code) => *code == ResponseCode::REFUSED,
    }
}

/// The name every cluster has.
pub(super) fn probe_name(cluster_domain: &str) -> Result<Name, Failure> {
    let text = format!("kubernetes.default.svc.{cluster_domain}");
    text.parse()
        .map_err(|error| Failure::message(Exit::Other, format!("{text}: {error}")))
}
