//! What a session tells about itself, and the words of the control socket.
//!
//! Plain data: [`board`] gathers it, [`server`] and [`client`] carry it, [`text`] shows it.

pub mod board;
pub mod client;
pub mod server;
pub(crate) mod text;

use serde::{Deserialize, Serialize};

pub use text::{routes_text, status_text};

/// The version of [`StatusReport`] and [`RoutesReport`]; changes when a field changes its meaning.
pub const SCHEMA: &str = "kubebridge/v1";

/// What is asked over the control socket, one JSON object per line.
///
/// The empty braces make serde refuse further fields: a newer client may mean something by them.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How the session stands.
    Status {},
    /// What Services it knows.
    Routes {},
    /// To end.
    Disconnect {},
}

/// What is answered, one JSON object per line.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "reply", content = "value", rename_all = "kebab-case")]
pub enum Reply {
    /// To [`Request::Status`].
    Status(Box<StatusReport>),
    /// To [`Request::Routes`].
    Routes(RoutesReport),
    /// To [`Request::Disconnect`], for each thing undone.
    Progress(String),
    /// To [`Request::Disconnect`], last: all is undone, or what could not be.
    Ended(Option<String>),
    /// To anything else.
    Refused(String),
}

#[derive(Serialize)]
struct Document<'a, T> {
    schema: &'static str,
    sessions: &'a [T],
    #[serde(skip_serializing_if = "Option::is_none")]
    leftovers: Option<&'a [String]>,
}

/// Makes what `--output json` prints.
#[must_use]
pub fn document<T: Serialize>(sessions: &[T], leftovers: Option<&[String]>) -> String {
    let document = Document {
        schema: SCHEMA,
        sessions,
        leftovers,
    };
    // Plain data with text keys always has a JSON form.
    serde_json::to_string(&document).unwrap_or_default()
}

/// How a session stands.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct StatusReport {
    /// The session's id.
    pub session: String,
    /// Its process.
    pub pid: u32,
    /// `connecting`, `connected`, `degraded` or `ending`.
    pub state: String,
    /// What is being done, while connecting or ending.
    pub doing: Option<String>,
    /// Seconds since its start.
    pub uptime_seconds: u64,
    /// The manager's address.
    pub manager: String,
    /// The manager's version.
    pub manager_version: Option<String>,
    /// The cluster domain.
    pub cluster_domain: Option<String>,
    /// The namespaces, the session's own first.
    pub namespaces: Vec<String>,
    /// The way to the manager.
    pub tunnel: Option<TunnelReport>,
    /// The system's DNS.
    pub dns: DnsReport,
    /// The hosts file.
    pub hosts: HostsReport,
    /// What is known of the namespaces.
    pub kubernetes: Vec<NamespaceReport>,
    /// The steps done, with what they found and how long they took.
    pub steps: Vec<StepReport>,
}

/// The way to the manager.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct TunnelReport {
    /// Whether the manager answers.
    pub up: bool,
    /// Milliseconds since it last did.
    pub echo_age_millis: Option<u64>,
    /// Microseconds its last echo took.
    pub round_trip_micros: Option<u64>,
    /// Milliseconds since it stopped answering.
    pub down_millis: Option<u64>,
    /// Why it does not.
    pub reason: Option<String>,
}

/// The system's DNS.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct DnsReport {
    /// What was asked for with `--dns`.
    pub choice: String,
    /// Who resolves names on this machine, as found.
    pub found: Option<String>,
    /// Why that was concluded.
    pub reasons: Vec<String>,
    /// The servers used before, which go on resolving names outside.
    pub originals: Vec<String>,
    /// The link.
    pub link: Option<String>,
    /// The session's resolver.
    pub resolver: Option<String>,
    /// Whether the system's DNS points at it.
    pub applied: bool,
    /// The domains sent there.
    pub domains: Vec<String>,
    /// Names outside that are hidden by Services.
    pub shadowed: Vec<String>,
    /// What could not be had.
    pub warnings: Vec<String>,
}

/// The hosts file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct HostsReport {
    /// What was asked for with `--hosts`.
    pub form: String,
    /// The number of our lines.
    pub lines: usize,
    /// The names left alone.
    pub conflicts: Vec<ConflictReport>,
    /// Why the file could not be brought up to date.
    pub error: Option<String>,
}

/// A name that has no hosts line.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ConflictReport {
    /// The name.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// What is known of one namespace.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct NamespaceReport {
    /// The namespace.
    pub namespace: String,
    /// `synced`, `waiting`, `forbidden: VERB RESOURCE`, `no source` or `unknown`.
    pub state: String,
    /// The number of Services.
    pub services: usize,
}

/// One step of connecting.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct StepReport {
    /// The step.
    pub step: String,
    /// What it found.
    pub detail: String,
    /// How long it took, in milliseconds.
    pub millis: u64,
}

/// The Services a session knows.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct RoutesReport {
    /// The session's id.
    pub session: String,
    /// The namespaces and where they stand.
    pub namespaces: Vec<NamespaceReport>,
    /// The Services by namespace and name.
    pub services: Vec<ServiceReport>,
}

/// One Service.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct ServiceReport {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// `ClusterIP`, `Headless` or `ExternalName`.
    pub kind: String,
    /// The addresses.
    pub cluster_ips: Vec<String>,
    /// The ports, as `NAME:PORT/PROTOCOL`.
    pub ports: Vec<String>,
    /// The target of an `ExternalName`.
    pub external_name: Option<String>,
}

#[cfg(test)]
mod tests;
