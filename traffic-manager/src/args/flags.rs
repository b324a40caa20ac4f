//! The flags of `traffic-manager serve`, each with its environment variable `KUBEBRIDGE_FLAG`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand};
use kubebridge_dns::name::Name;
use kubebridge_dns::upstream::UpstreamSpec;
use kubebridge_proto::names::check_label;

use super::duration;
use crate::config::{
    AnswerOrder, AnswerServices, Auth, BareSingleLabel, Fanout, LogFormat, MOST_FLOWS_PER_SESSION,
};
use crate::egress::rules::Rule;
use crate::host_network::Addresses;
use crate::upstreams::ask::Output;

/// Resolves and streams the Services of a cluster for kubebridge laptops.
#[derive(Debug, Parser)]
#[command(
    name = "traffic-manager",
    version,
    about,
    disable_help_subcommand = true
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serve DNS, gRPC and the probes until SIGTERM or SIGINT.
    Serve(Box<Serve>),
    /// Check flags, environment and file, and print the configuration they make.
    CheckConfig(Box<Serve>),
    /// Show the health of a running manager's upstreams; exit 1 when none is good.
    Upstreams(UpstreamsFlags),
}

impl Command {
    /// Returns the file with more flags.
    pub(super) fn config_file(&self) -> Option<&PathBuf> {
        match self {
            Self::Serve(flags) | Self::CheckConfig(flags) => flags.config.as_ref(),
            Self::Upstreams(_) => None,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct UpstreamsFlags {
    /// Admin address and port of the manager; it answers this to loopback alone.
    #[arg(long, env = "KUBEBRIDGE_ADMIN", value_name = "ADDR:PORT")]
    #[arg(default_value = "127.0.0.1:7081")]
    pub(super) admin: SocketAddr,

    /// How the answer is printed.
    #[arg(
        short,
        long,
        env = "KUBEBRIDGE_OUTPUT",
        value_enum,
        default_value = "text"
    )]
    pub(super) output: Output,
}

impl Cli {
    /// Parses arguments that were extended with those of a file.
    pub(super) fn try_parse_from_all(arguments: &[OsString]) -> Result<Self, clap::Error> {
        Self::try_parse_from(arguments)
    }
}

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// Address and port for DNS over UDP and TCP; may be repeated.
    #[arg(
        long,
        env = "KUBEBRIDGE_DNS_LISTEN",
        value_name = "ADDR:PORT",
        value_delimiter = ','
    )]
    #[arg(default_value = "[::]:1053")]
    pub(super) dns_listen: Vec<SocketAddr>,

    /// Address and port for gRPC: loopback, reached by a port-forward, or any with TLS.
    #[arg(long, env = "KUBEBRIDGE_GRPC_LISTEN", value_name = "ADDR:PORT")]
    #[arg(default_value = "127.0.0.1:7080")]
    pub(super) grpc_listen: SocketAddr,

    /// Address and port for `/livez`, `/readyz` and `/metrics`.
    #[arg(long, env = "KUBEBRIDGE_ADMIN_LISTEN", value_name = "ADDR:PORT")]
    #[arg(default_value = "[::]:7081")]
    pub(super) admin_listen: SocketAddr,

    /// File with nameservers, search list and options; read again when it changes.
    #[arg(long, env = "KUBEBRIDGE_RESOLV_CONF", value_name = "FILE")]
    pub(super) resolv_conf: Option<PathBuf>,

    /// Upstream DNS server in place of the file's nameservers: `ADDRESS[:PORT]`, `tls://ADDRESS#NAME` or `https://ADDRESS#NAME`; may be repeated.
    #[arg(
        long,
        env = "KUBEBRIDGE_UPSTREAM",
        value_name = "SPEC",
        value_delimiter = ','
    )]
    pub(super) upstream: Vec<UpstreamSpec>,

    /// PEM file of authorities for encrypted upstreams in place of the system's, read again when it changes; may be repeated.
    #[arg(
        long,
        env = "KUBEBRIDGE_UPSTREAM_CA",
        value_name = "FILE",
        value_delimiter = ','
    )]
    pub(super) upstream_ca: Vec<PathBuf>,

    /// Search domain in place of the file's, in order; may be repeated.
    #[arg(
        long,
        env = "KUBEBRIDGE_SEARCH",
        value_name = "DOMAIN",
        value_delimiter = ','
    )]
    pub(super) search: Vec<Name>,

    /// Names with fewer dots than this are expanded before they are tried as they are.
    #[arg(long, env = "KUBEBRIDGE_NDOTS", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(0..=15))]
    pub(super) ndots: Option<u8>,

    /// How long one attempt at an upstream may take, for example `1s` or `500ms`.
    #[arg(long, env = "KUBEBRIDGE_TIMEOUT", value_name = "DURATION", value_parser = duration::parse)]
    pub(super) timeout: Option<Duration>,

    /// How often an upstream is tried.
    #[arg(long, env = "KUBEBRIDGE_ATTEMPTS", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    pub(super) attempts: Option<u8>,

    /// The cluster domain; else from the search list, else `cluster.local`.
    #[arg(long, env = "KUBEBRIDGE_CLUSTER_DOMAIN", value_name = "DOMAIN")]
    pub(super) cluster_domain: Option<Name>,

    /// Watch Services of the cluster the pod runs in, or of the kubeconfig.
    #[arg(long, env = "KUBEBRIDGE_KUBERNETES", action = ArgAction::SetTrue)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(super) kubernetes: bool,

    /// Namespace to serve, the own one by default; may be repeated.
    #[arg(
        long,
        env = "KUBEBRIDGE_NAMESPACE",
        value_name = "NAME",
        value_delimiter = ','
    )]
    #[arg(value_parser = namespace)]
    pub(super) namespace: Vec<String>,

    /// Serve every namespace.
    #[arg(long, env = "KUBEBRIDGE_ALL_NAMESPACES", action = ArgAction::SetTrue)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(super) all_namespaces: bool,

    /// Take Services from a file of Kubernetes manifests instead; read again when it changes.
    #[arg(long, env = "KUBEBRIDGE_SERVICES", value_name = "FILE")]
    pub(super) services: Option<PathBuf>,

    /// Who answers for Services.
    #[arg(
        long,
        env = "KUBEBRIDGE_ANSWER_SERVICES",
        value_enum,
        default_value = "index"
    )]
    pub(super) answer_services: AnswerServices,

    /// Which answer of an expanded name wins.
    #[arg(
        long,
        env = "KUBEBRIDGE_ANSWER_ORDER",
        value_enum,
        default_value = "search"
    )]
    pub(super) answer_order: AnswerOrder,

    /// Whether an expanded name is also tried as it is.
    #[arg(
        long,
        env = "KUBEBRIDGE_BARE_SINGLE_LABEL",
        value_enum,
        default_value = "last"
    )]
    pub(super) bare_single_label: BareSingleLabel,

    /// Zone whose names are never expanded; may be repeated.
    #[arg(
        long,
        env = "KUBEBRIDGE_ABSOLUTE_ZONE",
        value_name = "DOMAIN",
        value_delimiter = ','
    )]
    pub(super) absolute_zone: Vec<Name>,

    /// Give answers for so long after their time when no upstream replies, for example `60m`.
    #[arg(long, env = "KUBEBRIDGE_SERVE_STALE", value_name = "DURATION", value_parser = duration::parse)]
    pub(super) serve_stale: Option<Duration>,

    /// Ask again before its time is over for what is asked for again and again.
    #[arg(long, env = "KUBEBRIDGE_PREFETCH", action = ArgAction::SetTrue)]
    #[arg(value_parser = FalseyValueParser::new())]
    pub(super) prefetch: bool,

    /// How upstreams are asked: all at once, or the best first and the next when it fails or is late.
    #[arg(long, env = "KUBEBRIDGE_FANOUT", value_enum, default_value = "all")]
    pub(super) fanout: Fanout,

    /// How a session proves what it may do: a token for each namespace, or a port-forward to a manager of one.
    #[arg(long, env = "KUBEBRIDGE_AUTH", value_enum, default_value = "token")]
    pub(super) auth: Auth,

    /// The namespace the manager runs in, for `--auth port-forward`.
    #[arg(long, env = "KUBEBRIDGE_POD_NAMESPACE", value_name = "NAME", value_parser = namespace)]
    pub(super) pod_namespace: Option<String>,

    /// Addresses of the pod (`status.podIPs` of the downward API): one that is also the node's ends the program.
    #[arg(long, env = "KUBEBRIDGE_POD_IP", value_name = "IPS")]
    pub(super) pod_ip: Option<Addresses>,

    /// Addresses of the pod's node (`status.hostIPs` or `status.hostIP`).
    #[arg(long, env = "KUBEBRIDGE_HOST_IP", value_name = "IPS")]
    pub(super) host_ip: Option<Addresses>,

    /// JSON Web Key Set to verify tokens with in place of the cluster's; read again every 5 minutes.
    #[arg(long, env = "KUBEBRIDGE_TOKEN_KEYS", value_name = "FILE")]
    pub(super) token_keys: Option<PathBuf>,

    /// Issuer of the tokens that the keys of `--token-keys` are for.
    #[arg(long, env = "KUBEBRIDGE_TOKEN_ISSUER", value_name = "URL")]
    pub(super) token_issuer: Option<String>,

    /// Certificate chain for gRPC over mutual TLS (PEM); read again when it changes.
    #[arg(long, env = "KUBEBRIDGE_TLS_CERT", value_name = "FILE")]
    pub(super) tls_cert: Option<PathBuf>,

    /// Key of that certificate (PEM); read again when it changes.
    #[arg(long, env = "KUBEBRIDGE_TLS_KEY", value_name = "FILE")]
    pub(super) tls_key: Option<PathBuf>,

    /// Authorities of the clients' certificates (PEM); read again when it changes.
    #[arg(long, env = "KUBEBRIDGE_TLS_CA", value_name = "FILE")]
    pub(super) tls_ca: Option<PathBuf>,

    /// What flows may reach beside the Services of granted namespaces: `pods`, `cidr=ADDRESS/PREFIX`, `domains=SUFFIX` or `domains=none`; and what they may not, `except=ADDRESS/PREFIX`; may be repeated.
    #[arg(
        long,
        env = "KUBEBRIDGE_EGRESS",
        value_name = "RULE",
        value_delimiter = ','
    )]
    #[arg(default_value = "services")]
    pub(super) egress: Vec<Rule>,

    /// The most open flows of one session.
    #[arg(long, env = "KUBEBRIDGE_FLOWS_PER_SESSION", value_name = "N")]
    #[arg(default_value = "1024", value_parser = clap::value_parser!(u16).range(1..=i64::from(MOST_FLOWS_PER_SESSION)))]
    pub(super) flows_per_session: u16,

    /// How log lines look; they go to stderr.
    #[arg(
        long,
        env = "KUBEBRIDGE_LOG_FORMAT",
        value_enum,
        default_value = "text"
    )]
    pub(super) log_format: LogFormat,

    /// YAML file with flag names as keys.
    #[arg(long, env = "KUBEBRIDGE_CONFIG", value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
}

impl Serve {
    /// The flags as a command of their own, to look keys of a file up.
    pub(super) fn command_for_keys() -> clap::Command {
        Cli::command()
            .find_subcommand("serve")
            .cloned()
            .unwrap_or_default()
    }
}

fn namespace(text: &str) -> Result<String, String> {
    check_label("namespace", text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}
