//! What a session tells about itself, and the words of the control socket.
//!
//! Plain data: [`board`] gathers it, [`health`] sums it up, [`server`] and [`client`] carry it,
//! [`document`] and [`text`] show it.

pub mod board;
pub mod client;
pub mod dataplane;
pub mod document;
pub mod health;
pub mod routing;
pub mod server;
pub(crate) mod text;

use serde::{Deserialize, Serialize};

pub use dataplane::ProxyReport;
pub use routing::RoutingReport;

use crate::control::namespaces::Change;
use crate::failure::{Exit, Failure, chain};
use crate::flows::FlowsStatus;
use crate::forward::ForwardReport;
use crate::inquiry::path::PathReport;
use crate::inquiry::report::{FlushReport, QueryReport, TraceReport, UpstreamsReport};
use crate::netstack::PacketsStatus;
use crate::proxy::EnvReport;

pub use document::{
    LeftoverReport, Leftovers, dns_flush_document, dns_query_document, dns_trace_document,
    dns_upstreams_document, env_document, forward_document, hosts_document, namespace_document,
    recover_document, recovery_document, routes_document, status_document, trace_document,
    version_document,
};
pub use text::{hosts_text, namespaces_text, routes_text, status_text};

/// What is asked over the control socket, one JSON object per line.
///
/// The empty braces make serde refuse further fields: a newer client may mean something by them.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// How the session stands.
    Status {},
    /// What Services it knows.
    Routes {},
    /// What is in the hosts file for it.
    Hosts {},
    /// To resolve a name and tell how.
    DnsTrace {
        /// The name.
        name: String,
        /// The record type.
        rtype: String,
        /// To leave the manager's cache aside.
        fresh: bool,
    },
    /// To resolve a name.
    DnsQuery {
        /// The name.
        name: String,
        /// The record type.
        rtype: String,
    },
    /// To forget the answers it keeps.
    DnsFlush {},
    /// How the upstreams of both ends are.
    DnsUpstreams {},
    /// To change its namespaces.
    Namespace {
        /// How.
        change: Change,
    },
    /// To follow the way to a destination.
    Trace {
        /// `HOST:PORT`, with `/udp` for datagrams.
        target: String,
    },
    /// What sends programs to its proxy, with the password.
    Env {},
    /// To listen on ports of loopback for as long as the connection lives.
    Forward {
        /// `HOST:PORT=LOCAL` each.
        ports: Vec<String>,
    },
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
    /// To [`Request::Hosts`].
    Hosts(HostsListReport),
    /// To [`Request::DnsTrace`].
    DnsTrace(Box<TraceReport>),
    /// To [`Request::DnsQuery`].
    DnsQuery(QueryReport),
    /// To [`Request::DnsFlush`].
    DnsFlush(FlushReport),
    /// To [`Request::DnsUpstreams`].
    DnsUpstreams(UpstreamsReport),
    /// To [`Request::Namespace`], when it is done.
    Namespace(NamespacesReport),
    /// To [`Request::Trace`].
    Trace(Box<PathReport>),
    /// To [`Request::Env`].
    Env(EnvReport),
    /// To [`Request::Forward`], when all ports listen.
    Forward(ForwardReport),
    /// To [`Request::Namespace`] and [`Request::Forward`], when all is as it was, and to
    /// [`Request::Env`] without a proxy.
    NotChanged(NotChanged),
    /// To [`Request::Disconnect`], for each thing undone; to [`Request::Forward`], for each
    /// connection that led nowhere.
    Progress(String),
    /// To [`Request::Disconnect`], last: all is undone, or what could not be. To
    /// [`Request::Forward`]: the session ends.
    Ended(Option<String>),
    /// To anything else.
    Refused(String),
}

/// The namespaces of a session after a change.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct NamespacesReport {
    /// The session's id.
    pub session: String,
    /// The namespaces, the session's own first.
    pub namespaces: Vec<String>,
    /// What is known of them.
    pub kubernetes: Vec<NamespaceReport>,
    /// What on the machine did not follow.
    pub trouble: Option<String>,
}

/// Why a session is as it was.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct NotChanged {
    /// The reason.
    pub why: String,
    /// What helps.
    pub help: Option<String>,
    /// The exit code it leads to.
    pub exit: Exit,
}

impl From<Failure> for NotChanged {
    fn from(failure: Failure) -> Self {
        Self {
            why: chain(&failure.error),
            help: failure.hint,
            exit: failure.exit,
        }
    }
}

impl From<NotChanged> for Failure {
    fn from(refusal: NotChanged) -> Self {
        Self {
            hint: refusal.help,
            ..Self::message(refusal.exit, refusal.why)
        }
    }
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
    /// Asynchronous tasks of its process that have not ended.
    #[serde(default)]
    pub tasks: usize,
    /// The manager's address.
    pub manager: String,
    /// The manager's version.
    pub manager_version: Option<String>,
    /// The session's own version.
    #[serde(default)]
    pub client_version: String,
    /// How the two versions differ; `None` when they do not.
    #[serde(default)]
    pub skew: Option<String>,
    /// The cluster domain.
    pub cluster_domain: Option<String>,
    /// The namespaces, the session's own first.
    pub namespaces: Vec<String>,
    /// How the parts stand, one word each.
    #[serde(default)]
    pub health: HealthReport,
    /// The way to the manager.
    pub tunnel: Option<TunnelReport>,
    /// How long the session's tokens last; `None` where it has none.
    #[serde(default)]
    pub tokens: Option<TokensReport>,
    /// The kubeconfig's credentials; `None` where the way to the manager needs none.
    #[serde(default)]
    pub credentials: Option<CredentialsReport>,
    /// Answers given while the manager is out of reach.
    #[serde(default)]
    pub stale: StaleReport,
    /// The system's DNS.
    pub dns: DnsReport,
    /// The IP routes into the link.
    #[serde(default)]
    pub routing: RoutingReport,
    /// The hosts file.
    pub hosts: HostsReport,
    /// What is known of the namespaces.
    pub kubernetes: Vec<NamespaceReport>,
    /// What somebody changed on the machine and the session put back.
    #[serde(default)]
    pub repairs: RepairsReport,
    /// The steps done, with what they found and how long they took.
    pub steps: Vec<StepReport>,
    /// The context of the kubeconfig; `None` where the manager is reached by its address.
    #[serde(default)]
    pub context: Option<String>,
    /// The file with the log of a session in the background; `None` in the foreground.
    #[serde(default)]
    pub log: Option<String>,
    /// What another session of this machine has because it came first; `None` if nothing.
    #[serde(default)]
    pub withheld: Option<WithheldReport>,
    /// Connections into the cluster.
    #[serde(default)]
    pub flows: Option<FlowsStatus>,
    /// The packets of the link; `None` where there is no link.
    #[serde(default)]
    pub packets: Option<PacketsStatus>,
    /// The proxy; `None` where there is none.
    #[serde(default)]
    pub proxy: Option<ProxyReport>,
}

/// What another session has because it came first; it is ours when that one leaves.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct WithheldReport {
    /// That session.
    pub session: String,
    /// What its cluster is called.
    pub name: String,
    /// The domains it has.
    pub domains: Vec<String>,
    /// The number of names that have no hosts line for its sake.
    pub hosts_names: usize,
}

/// How long the tokens last by which the session has its namespaces. The first that expires counts.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct TokensReport {
    /// Until when, RFC 3339.
    pub until: String,
    /// Seconds until then; 0 when they have expired.
    pub seconds_left: u64,
    /// Seconds until they are renewed; 0 when that is due.
    pub renewal_seconds: u64,
}

/// How the kubeconfig's credentials stand. Without them a session that is connected stays so, but
/// cannot connect again nor get new tokens.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct CredentialsReport {
    /// The kubeconfig's user.
    pub user: String,
    /// Until when they are good, RFC 3339; `None` when that is not known.
    pub until: Option<String>,
    /// Why they could not be used the last time.
    pub trouble: Option<String>,
    /// The command that renews them.
    pub renew: String,
}

/// How the parts of a session stand, so that one can tell which is at fault.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct HealthReport {
    /// The way to the manager: `up`, `down` or `unknown`.
    pub tunnel: String,
    /// What the manager sees of the namespaces: `synced`, `waiting`, `forbidden`, `no source`
    /// or `unknown`; the worst counts.
    pub kubernetes: String,
    /// The Services known here: `current`, `stale` or `unknown`.
    pub routes: String,
    /// The system's DNS: `applied`, `not changed` or `in trouble`.
    pub dns: String,
    /// The IP routes: `set`, `not set` or `in trouble`.
    #[serde(default)]
    pub routing: String,
    /// The hosts file: `written`, `off` or `in trouble`.
    pub hosts: String,
}

/// Answers given while the manager is out of reach.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct StaleReport {
    /// Whether such answers are given now.
    pub serving: bool,
    /// How many names could be answered so.
    pub kept: usize,
    /// How many answers were given so since the session began.
    pub answered: u64,
}

/// What the session put back, and what it could not.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct RepairsReport {
    /// How many things were put back since the session began.
    pub count: u64,
    /// The last of them, oldest first.
    pub last: Vec<RepairReport>,
    /// What could not be looked at or put back, last time.
    pub troubles: Vec<String>,
}

/// One thing that was put back.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct RepairReport {
    /// What it was.
    pub what: String,
    /// When, in seconds since 1970 (UTC).
    pub unix_seconds: u64,
    /// How many seconds ago that is.
    pub ago_seconds: u64,
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
    /// Why the system's DNS is not as wanted now.
    #[serde(default)]
    pub error: Option<String>,
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

/// What is in the hosts file for a session.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct HostsListReport {
    /// The session's id.
    pub session: String,
    /// What was asked for with `--hosts`.
    pub form: String,
    /// Our lines, by service.
    pub lines: Vec<HostsLineReport>,
    /// The names left alone.
    pub conflicts: Vec<ConflictReport>,
    /// Why the file could not be brought up to date.
    pub error: Option<String>,
}

/// One line of ours in the hosts file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct HostsLineReport {
    /// The address.
    pub address: String,
    /// The names.
    pub names: Vec<String>,
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
    /// `synced`, `waiting`, `forbidden: VERB RESOURCE`, `no source`, `no token: WHY` or `unknown`.
    pub state: String,
    /// What helps where there is no token.
    #[serde(default)]
    pub help: Option<String>,
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
    /// The IP routes into the link.
    #[serde(default)]
    pub routing: RoutingReport,
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
