//! What the program was told to do, with every value resolved and valid.
//!
//! Where the values come from is the business of [`crate::args`]; tests and the demo make a
//! [`Config`] themselves.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use kubebridge_dns::name::Name;
use kubebridge_dns::upstream::UpstreamSpec;
use tokio::sync::mpsc;

use crate::access::key_file::KeyFile;
use crate::egress::rules::Rules;
use crate::failure::{Exit, Failure};
use crate::host_network::Addresses;
use crate::tls::TlsFiles;

/// Everything `traffic-manager serve` needs to know.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where DNS is served, over UDP and TCP.
    pub dns_listen: Vec<SocketAddr>,
    /// Where gRPC is served; on loopback, or with TLS.
    pub grpc_listen: SocketAddr,
    /// Where `/livez` and `/readyz` are served.
    pub admin_listen: SocketAddr,
    /// How names are resolved.
    pub resolution: Resolution,
    /// Where Services come from.
    pub source: Source,
    /// Who answers for Services.
    pub answer_services: AnswerServices,
    /// How a session proves what it may do.
    pub auth: Auth,
    /// The namespace of the pod, where it is known.
    pub pod_namespace: Option<String>,
    /// The pod's addresses, where they are known.
    pub pod_ips: Addresses,
    /// The addresses of its node, where they are known.
    pub host_ips: Addresses,
    /// Keys of tokens in place of the cluster's.
    pub token_keys: Option<KeyFile>,
    /// Mutual TLS for gRPC; without it gRPC is on loopback.
    pub tls: Option<TlsFiles>,
    /// What flows may reach.
    pub egress: Rules,
    /// The most open flows of one session.
    pub flows_per_session: u16,
    /// Where the audit log goes.
    pub audit: AuditLog,
    /// How log lines look.
    pub log_format: LogFormat,
}

/// How names are resolved. What is `None` or empty comes from the `resolv.conf`.
#[derive(Debug, Clone)]
pub struct Resolution {
    /// The file, read again when it changes; `None` for none.
    pub resolv_conf: Option<PathBuf>,
    /// Upstreams in place of the file's nameservers.
    pub upstreams: Vec<UpstreamSpec>,
    /// The authorities that encrypted upstreams must be certified by; none for the system's.
    pub upstream_cas: Vec<PathBuf>,
    /// A search list in place of the file's.
    pub search: Vec<Name>,
    /// Names with fewer dots than this are expanded first.
    pub ndots: Option<u8>,
    /// How long one attempt may take.
    pub timeout: Option<Duration>,
    /// How often an upstream is tried.
    pub attempts: Option<u8>,
    /// The cluster domain.
    pub cluster_domain: Option<Name>,
    /// Which answer wins.
    pub answer_order: AnswerOrder,
    /// How upstreams are asked.
    pub fanout: Fanout,
    /// Whether an expanded name is also tried as it is.
    pub bare_single_label: BareSingleLabel,
    /// Zones whose names are never expanded.
    pub absolute_zones: Vec<Name>,
    /// How long after their time answers are given when no upstream replies; not at all without it.
    pub serve_stale: Option<Duration>,
    /// Whether answers that are asked for again and again are made anew before their time is over.
    pub prefetch: bool,
}

/// Where Services come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// From nowhere: DNS only.
    None,
    /// From the API server.
    Kubernetes(Namespaces),
    /// From a file of manifests.
    Manifests {
        /// The file.
        file: PathBuf,
        /// Which of its namespaces are served; [`Namespaces::Own`] stands for all here.
        namespaces: Namespaces,
    },
}

/// Which namespaces are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Namespaces {
    /// The one the manager runs in.
    Own,
    /// These.
    These(BTreeSet<String>),
    /// All.
    All,
}

/// Who answers for Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AnswerServices {
    /// The index, right at once.
    Index,
    /// The upstreams, like any other name.
    Upstream,
}

/// Which answer wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AnswerOrder {
    /// The first in search order with data.
    Search,
    /// The first to arrive.
    First,
}

/// How upstreams are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Fanout {
    /// All at once.
    All,
    /// The best one first, the next when it fails or is late.
    Hedged,
}

/// Whether an expanded name is also tried as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum BareSingleLabel {
    /// After every expanded name was negative.
    Last,
    /// Not at all.
    Never,
}

/// How a session proves what it may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Auth {
    /// By a token per namespace.
    Token,
    /// By having got through a port-forward at all.
    PortForward,
    /// By being in the same process: for the demo, which no flag asks for.
    #[value(skip)]
    Demo,
}

/// Where the audit log goes.
#[derive(Debug, Clone)]
pub enum AuditLog {
    /// Nowhere.
    Off,
    /// To stdout, where a pod's logs are collected.
    Stdout,
    /// To whoever asked for the lines.
    Lines(mpsc::Sender<String>),
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The default DNS port of the pod; a Service maps 53 to it, so that no privilege is needed.
pub const DNS_PORT: u16 = 1053;
/// The default gRPC port, reached by a port-forward.
pub const GRPC_PORT: u16 = 7080;
/// The default of open flows per session: a browser has some hundred, a load test raises it.
pub const FLOWS_PER_SESSION: u16 = 1024;
/// The most open flows per session that may be asked for: 10,000 idle ones are tested, and all
/// sessions have 20,000.
pub const MOST_FLOWS_PER_SESSION: u16 = 16_384;
/// The default port of the probes.
pub const ADMIN_PORT: u16 = 7081;

impl Config {
    /// Refuses combinations that would give away more than was meant (design §4, R5).
    ///
    /// # Errors
    /// With exit code 64, the reason and the fix.
    pub fn check(&self) -> Result<(), Failure> {
        let on_loopback = self.grpc_listen.ip().is_loopback();
        if !on_loopback && self.tls.is_none() {
            let message = format!("--grpc-listen {} is not on loopback", self.grpc_listen);
            let hint = "a network listener needs --tls-cert, --tls-key and --tls-ca";
            return Err(usage(message, hint));
        }
        match self.auth {
            Auth::Token => Ok(()),
            Auth::Demo if on_loopback => Ok(()),
            Auth::PortForward if on_loopback => self.own_namespace().map(drop),
            Auth::Demo | Auth::PortForward => Err(usage(
                "--auth port-forward is for gRPC on loopback",
                "a network listener needs --auth token",
            )),
        }
    }

    /// Returns the only namespace that sessions may have under R5: `None` stands for the one the
    /// cluster's configuration names.
    ///
    /// # Errors
    /// With exit code 64 when there are several, or none is known.
    pub fn own_namespace(&self) -> Result<Option<String>, Failure> {
        let own = self.pod_namespace.as_ref();
        match &self.source {
            Source::Kubernetes(Namespaces::Own) => Ok(own.cloned()),
            Source::None => own.cloned().map(Some).ok_or_else(|| {
                let hint = "name the pod's namespace with --pod-namespace, or use --auth token";
                usage(
                    "--auth port-forward serves one namespace, and none is known",
                    hint,
                )
            }),
            Source::Kubernetes(Namespaces::These(names))
            | Source::Manifests {
                namespaces: Namespaces::These(names),
                ..
            } => match names.iter().collect::<Vec<_>>().as_slice() {
                [one] if own.is_none_or(|own| own == *one) => Ok(Some((*one).clone())),
                [one] => {
                    let own = own.map_or("", String::as_str);
                    let message = format!(
                        "--auth port-forward serves the manager's own namespace {own}, not {one}"
                    );
                    Err(usage(message, TOKENS))
                }
                _ => Err(usage(SEVERAL, TOKENS)),
            },
            Source::Kubernetes(Namespaces::All)
            | Source::Manifests {
                namespaces: Namespaces::All | Namespaces::Own,
                ..
            } => Err(usage(SEVERAL, TOKENS)),
        }
    }
}

/// What R5 refuses, and the way out.
const SEVERAL: &str = "--auth port-forward serves one namespace, not several: \
     whoever may port-forward to the manager would see them all";
const TOKENS: &str = "use --auth token, or give one --namespace";

fn usage(message: impl Into<String>, hint: &str) -> Failure {
    Failure::new(Exit::Usage, message).hint(hint)
}

impl Default for Config {
    fn default() -> Self {
        Self {
            dns_listen: vec![SocketAddr::from((Ipv6Addr::UNSPECIFIED, DNS_PORT))],
            grpc_listen: SocketAddr::from((Ipv4Addr::LOCALHOST, GRPC_PORT)),
            admin_listen: SocketAddr::from((Ipv6Addr::UNSPECIFIED, ADMIN_PORT)),
            resolution: Resolution::default(),
            source: Source::None,
            answer_services: AnswerServices::Index,
            auth: Auth::Token,
            pod_namespace: None,
            pod_ips: Addresses::default(),
            host_ips: Addresses::default(),
            token_keys: None,
            tls: None,
            egress: Rules::default(),
            flows_per_session: FLOWS_PER_SESSION,
            audit: AuditLog::Off,
            log_format: LogFormat::Text,
        }
    }
}

impl Default for Resolution {
    fn default() -> Self {
        Self {
            resolv_conf: Some(PathBuf::from("/etc/resolv.conf")),
            upstreams: Vec::new(),
            upstream_cas: Vec::new(),
            search: Vec::new(),
            ndots: None,
            timeout: None,
            attempts: None,
            cluster_domain: None,
            answer_order: AnswerOrder::Search,
            fanout: Fanout::All,
            bare_single_label: BareSingleLabel::Last,
            absolute_zones: Vec::new(),
            serve_stale: None,
            prefetch: false,
        }
    }
}
