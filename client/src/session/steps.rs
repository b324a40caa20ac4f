//! The steps of connecting: each creates one part of the session and says what it found.

mod manager;
mod proxy;
mod resolver;
mod routes;
mod settings;

use std::sync::Arc;

use kubebridge_platform::host::{Host, HostDnsMode, ResolvedVia};

use super::os::{Os, not_repaired};
use super::parts::{Found, Parts};
use crate::cli::{DnsChoice, Mode};
use crate::failure::{Exit, Failure};
use crate::helper;
use crate::originals::Originals;
use crate::status::server::{self, Server};

pub(super) use manager::{dial, open_session};
pub(super) use proxy::proxy;
pub(super) use resolver::{link, link_spec, probe, resolver};
pub(super) use routes::{plan, routes};
pub(super) use settings::{hosts, point_os, verify};

pub(super) async fn recover<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let repaired = match parts.config.mode {
        Mode::Tun => {
            let host = parts.os.take(&parts.id).await?;
            let host = parts.host.insert(host);
            host.recover().await.map_err(not_repaired)?
        }
        // What a dead session left is repaired by one that may change the machine.
        Mode::Proxy => {
            helper::prepare(parts.os.runtime())?;
            Vec::new()
        }
    };
    server::remove_dead(parts.os.runtime());
    let server = Server::start(
        parts.os.runtime(),
        parts.id.as_str(),
        Arc::clone(&parts.board),
        parts.stops.clone(),
    )
    .map_err(|error| Failure::new(Exit::HostOs, error).context("control socket"))?;
    if let Some(log) = &parts.log {
        match log.open(server.folder()) {
            Ok(path) => parts
                .board
                .note(|facts| facts.log = Some(path.display().to_string())),
            Err(error) => parts.warn_once(format!("no log: {error}")),
        }
    }
    parts.server = Some(server);
    let words: Vec<_> = repaired
        .iter()
        .map(|one| {
            let changes = summary(&one.changes, "nothing was in force");
            format!("session {}: {changes}", one.session)
        })
        .collect();
    Ok(summary(&words, "nothing left over"))
}

/// Finds out whether the session can be beside the others before anything is changed for it.
pub(super) async fn claim<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    parts.claim().await?;
    Ok("no clash".to_owned())
}

pub(super) async fn read_dns<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let dns = parts.os.read_dns().await?;
    let choice = parts.config.dns;
    let is_proxy = parts.config.mode == Mode::Proxy;
    let points_os = match is_proxy {
        true => Ok(false),
        false => points_os(choice, dns.mode),
    };
    let points_os = points_os.map_err(|failure| Failure {
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
    if choice == DnsChoice::Auto && !points_os && !is_proxy {
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

/// A step ran before the one that makes what it needs: the state machine does not do that.
pub(super) fn missing(part: &'static str) -> Failure {
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
