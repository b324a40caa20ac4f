//! The handshake: what the laptop asks for and what it is told about the cluster.
//!
//! Whether a session may have what it asks for is the manager's business, not decided here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::cidr::Cidr;
use crate::error::InvalidMessage;
use crate::names::{check_label, parse_version};
use crate::token::{self, NamespaceToken};
use crate::v1;

/// The most dots in a name make `ndots` a number up to this (`resolv.conf(5)`).
const MAX_NDOTS: u32 = 15;

/// A request for a session, with valid names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRequest {
    /// The client's version.
    pub client_version: String,
    /// The session to renew; `None` for a new one.
    pub id: Option<String>,
    /// The namespaces asked for, at least one and none twice; the first is the session's own.
    pub namespaces: Vec<String>,
    /// Suffixes outside the cluster domain that the client sends to the manager too.
    pub domains: Vec<String>,
    /// Proofs of the right to namespaces, at most one for each.
    pub tokens: Vec<NamespaceToken>,
}

/// What the manager says about itself, the cluster and the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionInfo {
    /// Names the session in every other call.
    pub id: String,
    /// The manager's version.
    pub manager_version: String,
    /// The cluster domain, for example `cluster.local`.
    pub cluster_domain: String,
    /// The search list short names are expanded with, in order.
    pub search: Vec<String>,
    /// Names with fewer dots than this are expanded first.
    pub ndots: u8,
    /// Ranges of `ClusterIPs`; empty when not known.
    pub service_cidrs: Vec<Cidr>,
    /// Ranges of pod addresses; empty when not known.
    pub pod_cidrs: Vec<Cidr>,
    /// What the session may use.
    pub limits: Limits,
    /// Flag values proposed to all clients, by flag name without dashes.
    pub fleet_defaults: BTreeMap<String, String>,
    /// Clients below this version are not expected to work.
    pub minimum_client_version: Option<String>,
    /// Clients below this version should suggest an upgrade.
    pub recommended_client_version: Option<String>,
    /// How long the session's tokens are good for; `None` when there are none.
    pub expires_in: Option<Duration>,
}

/// What one session may use; `None` where the manager did not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// A session without a call for this long is forgotten.
    pub idle: Option<Duration>,
    /// The most namespaces in one session.
    pub namespaces: Option<u32>,
    /// The most DNS queries of one stream that are worked on at once.
    pub dns_in_flight: Option<u32>,
    /// The most open flows of the data plane.
    pub flows: Option<u32>,
}

impl TryFrom<v1::OpenSessionRequest> for SessionRequest {
    type Error = InvalidMessage;

    fn try_from(wire: v1::OpenSessionRequest) -> Result<Self, Self::Error> {
        parse_version("client_version", &wire.client_version)?;
        let namespaces = wanted_namespaces(wire.namespaces)?;
        for domain in &wire.domains {
            if domain.trim_matches('.').is_empty() {
                let reason = "a suffix other than the root is needed";
                return Err(InvalidMessage::invalid("domains", domain, reason));
            }
        }
        Ok(Self {
            client_version: wire.client_version,
            id: present(wire.session_id),
            namespaces,
            domains: wire.domains,
            tokens: token::tokens(wire.tokens)?,
        })
    }
}

impl From<SessionRequest> for v1::OpenSessionRequest {
    fn from(request: SessionRequest) -> Self {
        Self {
            client_version: request.client_version,
            session_id: request.id.unwrap_or_default(),
            namespaces: request.namespaces,
            domains: request.domains,
            tokens: request.tokens.into_iter().map(Into::into).collect(),
            flows: Vec::new(),
        }
    }
}

impl TryFrom<v1::OpenSessionResponse> for SessionInfo {
    type Error = InvalidMessage;

    fn try_from(wire: v1::OpenSessionResponse) -> Result<Self, Self::Error> {
        if wire.session_id.is_empty() {
            return Err(InvalidMessage::Missing {
                field: "session_id",
            });
        }
        if wire.cluster_domain.trim_matches('.').is_empty() {
            return Err(InvalidMessage::Missing {
                field: "cluster_domain",
            });
        }
        if wire.ndots > MAX_NDOTS {
            let reason = format!("ndots is at most {MAX_NDOTS}");
            return Err(InvalidMessage::invalid(
                "ndots",
                wire.ndots.to_string(),
                reason,
            ));
        }
        let ndots = u8::try_from(wire.ndots).unwrap_or(u8::MAX);
        for (field, version) in [
            ("minimum_client_version", &wire.minimum_client_version),
            (
                "recommended_client_version",
                &wire.recommended_client_version,
            ),
        ] {
            if !version.is_empty() {
                parse_version(field, version)?;
            }
        }
        parse_version("manager_version", &wire.manager_version)?;
        Ok(Self {
            id: wire.session_id,
            manager_version: wire.manager_version,
            cluster_domain: wire.cluster_domain,
            search: wire.search,
            ndots,
            service_cidrs: ranges("service_cidrs", &wire.service_cidrs)?,
            pod_cidrs: ranges("pod_cidrs", &wire.pod_cidrs)?,
            limits: wire.limits.unwrap_or_default().into(),
            fleet_defaults: wire
                .fleet_defaults
                .unwrap_or_default()
                .flags
                .into_iter()
                .collect(),
            minimum_client_version: present(wire.minimum_client_version),
            recommended_client_version: present(wire.recommended_client_version),
            expires_in: nonzero_seconds(wire.expires_in_seconds),
        })
    }
}

impl From<SessionInfo> for v1::OpenSessionResponse {
    fn from(info: SessionInfo) -> Self {
        let text = |ranges: Vec<Cidr>| ranges.iter().map(ToString::to_string).collect();
        Self {
            session_id: info.id,
            manager_version: info.manager_version,
            cluster_domain: info.cluster_domain,
            search: info.search,
            ndots: info.ndots.into(),
            service_cidrs: text(info.service_cidrs),
            pod_cidrs: text(info.pod_cidrs),
            limits: Some(info.limits.into()),
            fleet_defaults: Some(v1::FleetDefaults {
                flags: info.fleet_defaults.into_iter().collect(),
            }),
            minimum_client_version: info.minimum_client_version.unwrap_or_default(),
            recommended_client_version: info.recommended_client_version.unwrap_or_default(),
            expires_in_seconds: info.expires_in.map_or(0, |left| left.as_secs()),
            flows: Vec::new(),
        }
    }
}

impl From<v1::SessionLimits> for Limits {
    fn from(wire: v1::SessionLimits) -> Self {
        let said = |number: u32| (number != 0).then_some(number);
        Self {
            idle: nonzero_seconds(wire.idle_seconds.into()),
            namespaces: said(wire.namespaces),
            dns_in_flight: said(wire.dns_in_flight),
            flows: said(wire.flows),
        }
    }
}

impl From<Limits> for v1::SessionLimits {
    fn from(limits: Limits) -> Self {
        let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
        Self {
            idle_seconds: limits.idle.map_or(0, seconds),
            namespaces: limits.namespaces.unwrap_or(0),
            dns_in_flight: limits.dns_in_flight.unwrap_or(0),
            flows: limits.flows.unwrap_or(0),
        }
    }
}

/// Checks a list of namespaces and drops repetitions; the order stays.
///
/// # Errors
/// When the list is empty, or one is not an RFC 1123 label; the error names the value.
pub fn wanted_namespaces(names: Vec<String>) -> Result<Vec<String>, InvalidMessage> {
    if names.is_empty() {
        return Err(InvalidMessage::Missing {
            field: "namespaces",
        });
    }
    let mut seen = BTreeSet::new();
    let mut wanted = Vec::with_capacity(names.len());
    for name in names {
        if name.is_empty() {
            let reason = "an empty name does not mean all namespaces";
            return Err(InvalidMessage::invalid("namespaces", name, reason));
        }
        check_label("namespaces", &name)?;
        if seen.insert(name.clone()) {
            wanted.push(name);
        }
    }
    Ok(wanted)
}

fn ranges(field: &'static str, texts: &[String]) -> Result<Vec<Cidr>, InvalidMessage> {
    let parse = |text: &String| {
        let reason = "expected ADDRESS/PREFIX";
        text.parse()
            .map_err(|_| InvalidMessage::invalid(field, text, reason))
    };
    texts.iter().map(parse).collect()
}

fn present(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn nonzero_seconds(seconds: u64) -> Option<Duration> {
    (seconds != 0).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests;
