//! What the audit log says about a flow: whose it is, where it goes by the cluster's names, and what
//! it carried. Addresses and names outside the cluster are no part of it.

use std::time::Duration;

use serde::Serialize;

use super::{SHOWN, shown};
use crate::egress::Because;
use crate::sessions::Session;

/// A flow, as lines name it.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Flow<'a> {
    session: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'a str>,
    flow: &'a str,
    protocol: &'static str,
    because: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
}

/// The end of a flow.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Closing {
    /// How it ended, in a word.
    pub reason: &'static str,
    /// Octets from the laptop to the cluster.
    pub bytes_up: u64,
    /// Octets from the cluster to the laptop.
    pub bytes_down: u64,
    /// How long it was open, in seconds.
    pub seconds: u64,
}

/// What the lines of one flow have in common.
#[derive(Debug)]
pub struct About {
    session: String,
    token: Option<String>,
    flow: String,
    protocol: &'static str,
    because: Because,
    port: Option<u16>,
}

impl About {
    /// Describes a flow of a session.
    #[must_use]
    pub fn new(
        session: &Session,
        flow: &str,
        protocol: &'static str,
        because: Because,
        port: Option<u16>,
    ) -> Self {
        let namespace = because.service().map(|key| key.namespace.as_str());
        Self {
            session: shown(session.id()).to_owned(),
            token: session.token_of(namespace),
            flow: flow.get(..SHOWN).unwrap_or(flow).to_owned(),
            protocol,
            because,
            port,
        }
    }

    /// Returns what its lines say.
    #[must_use]
    pub fn line(&self) -> Flow<'_> {
        let service = self.because.service();
        Flow {
            session: &self.session,
            token: self.token.as_deref(),
            flow: &self.flow,
            protocol: self.protocol,
            because: self.because.word(),
            namespace: service.map(|key| key.namespace.as_str()),
            service: service.map(|key| key.name.as_str()),
            port: self.port,
        }
    }

    /// Returns the namespace, where the flow belongs to one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        let service = self.because.service();
        service.map(|key| key.namespace.as_str())
    }
}

impl Closing {
    /// Describes the end of a flow.
    #[must_use]
    pub fn new(reason: &'static str, (up, down): (u64, u64), lasted: Duration) -> Self {
        Self {
            reason,
            bytes_up: up,
            bytes_down: down,
            seconds: lasted.as_secs(),
        }
    }
}
