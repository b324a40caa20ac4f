//! The command line: arguments, environment and configuration file become one [`Cli`].
//!
//! Does not run anything. What a command needs beyond the type of a value (`connect` needs a
//! manager) is checked where the command builds its own configuration.

mod explain;
mod install;
mod values;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config;
use crate::doctor::MOST_TARGETS;
use crate::doctor::wanted::wanted;
use crate::failure::{Exit, Failure};
use crate::flows::MOST_CONNECTIONS;
use crate::forward::{MOST, Wanted};
use crate::inquiry::path::PathTarget;

pub(crate) use explain::is_later_flag;
pub use install::{InstallArgs, InstallationArgs, ManifestArgs, UninstallArgs};
pub use values::{
    DnsChoice, HostsForm, ManagerAddress, Mode, Namespace, Output, Progress, TokenFile,
};

/// Connects a laptop to a Kubernetes cluster.
#[derive(Clone, Debug, Parser, PartialEq)]
#[command(
    name = "kubebridge",
    version,
    arg_required_else_help = false,
    subcommand_required = true
)]
pub struct Cli {
    /// Options every command has.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Options every command has.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Global {
    /// Namespace to resolve names of; the first is the session's own (repeatable)
    #[arg(
        short = 'n',
        long = "namespace",
        value_name = "NAMESPACE",
        env = "KUBEBRIDGE_NAMESPACE",
        value_delimiter = ',',
        global = true
    )]
    pub namespaces: Vec<Namespace>,
    /// Context of the kubeconfig that names cluster and user
    #[arg(long, value_name = "NAME", env = "KUBEBRIDGE_CONTEXT", global = true)]
    pub context: Option<String>,
    /// Kubeconfig file, in place of KUBECONFIG and ~/.kube/config
    #[arg(
        long,
        value_name = "FILE",
        env = "KUBEBRIDGE_KUBECONFIG",
        global = true
    )]
    pub kubeconfig: Option<PathBuf>,
    /// Session that the command is about, where several run (not for `connect`)
    #[arg(long, value_name = "ID", env = "KUBEBRIDGE_SESSION", global = true)]
    pub session: Option<kubebridge_platform::SessionId>,
    /// Form of what is written to stdout
    #[arg(
        short,
        long,
        value_enum,
        default_value_t,
        env = "KUBEBRIDGE_OUTPUT",
        global = true
    )]
    pub output: Output,
    /// Form of the progress written to stderr
    #[arg(
        long,
        value_enum,
        default_value_t,
        env = "KUBEBRIDGE_PROGRESS",
        global = true
    )]
    pub progress: Progress,
    /// Log more (repeatable)
    #[arg(short, long, action = ArgAction::Count, env = "KUBEBRIDGE_VERBOSE", global = true)]
    pub verbose: u8,
    /// YAML file with flag names as keys
    #[arg(long, value_name = "FILE", env = "KUBEBRIDGE_CONFIG", global = true)]
    pub config: Option<PathBuf>,
}

/// What the program can do.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum Command {
    /// Make the names of a cluster resolve on this machine
    Connect(ConnectArgs),
    /// End the session and restore the machine
    Disconnect(DisconnectArgs),
    /// Put back what sessions that died left on this machine
    Recover,
    /// Have this machine put back what dead sessions left when it starts (systemd)
    InstallRecovery(InstallRecoveryArgs),
    /// Show the session
    Status,
    /// Show the services the session knows
    Routes,
    /// Show what is in the hosts file
    #[command(subcommand)]
    Hosts(HostsCommand),
    /// Ask the session about names
    #[command(subcommand)]
    Dns(DnsCommand),
    /// Follow the way to a destination: name, route, permission, dial, endpoints
    Trace(TraceArgs),
    /// Look for what is wrong on this machine, in its sessions and on the way to destinations
    Doctor(DoctorArgs),
    /// Print the variables that send programs to the proxy of a session with `--mode proxy`
    Env,
    /// Have ports of this machine lead to services while the command runs
    Forward(ForwardArgs),
    /// Change the namespaces of the session, which goes on meanwhile
    Namespace(NamespaceArgs),
    /// Show a manager and a session at work on loopback, without cluster or root
    Demo(DemoArgs),
    /// Install the manager in the cluster, or add namespaces to what is installed
    Install(InstallArgs),
    /// Bring what is installed to this version, with the choices of before
    Upgrade(InstallArgs),
    /// Remove from the cluster what was installed
    Uninstall(UninstallArgs),
    /// Print the manifests that `install` would apply
    Manifest(ManifestArgs),
    /// Make an authority and certificates for a manager over a network
    Certs(CertsArgs),
    /// Print the version
    Version,
}

/// What can be done about the hosts file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Subcommand)]
pub enum HostsCommand {
    /// List the session's lines and the names left alone
    List,
}

/// What can be done about the session's namespaces.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct NamespaceArgs {
    /// The change
    #[command(subcommand)]
    pub change: NamespaceCommand,
}

/// How namespaces are changed.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub enum NamespaceCommand {
    /// Make a namespace the session's own: short names are those of its services
    Use {
        /// Namespace
        #[arg(value_name = "NAMESPACE")]
        name: Namespace,
    },
    /// Add a namespace behind the others
    Add {
        /// Namespace
        #[arg(value_name = "NAMESPACE")]
        name: Namespace,
    },
    /// Take a namespace out of the session
    Remove {
        /// Namespace
        #[arg(value_name = "NAMESPACE")]
        name: Namespace,
    },
}

/// What can be asked about names.
#[derive(Clone, Debug, PartialEq, Subcommand)]
pub enum DnsCommand {
    /// Resolve a name and tell how the answer came about
    Trace {
        /// The name and the type
        #[command(flatten)]
        question: QuestionArgs,
        /// Leave the manager's cache aside
        #[arg(long, env = "KUBEBRIDGE_FRESH", value_parser = FalseyValueParser::new())]
        fresh: bool,
    },
    /// Resolve a name as the session does
    Query {
        /// The name and the type
        #[command(flatten)]
        question: QuestionArgs,
    },
    /// Forget the answers kept by the session and the system
    Flush,
    /// Show the upstreams of the manager and of this machine, and their health
    Upstreams,
}

/// Options of `trace`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct TraceArgs {
    /// Where the way leads; with /udp, for datagrams
    #[arg(value_name = "HOST:PORT[/udp]")]
    pub target: PathTarget,
    /// For datagrams, as /udp
    #[arg(long, env = "KUBEBRIDGE_UDP", value_parser = FalseyValueParser::new())]
    pub udp: bool,
}

/// Options of `doctor`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct DoctorArgs {
    /// Where a way leads that is followed: HOST alone is pinged
    #[arg(value_name = "HOST[:PORT[/udp]]", value_parser = wanted, num_args = ..=MOST_TARGETS)]
    pub targets: Vec<PathTarget>,
    /// Name outside the cluster that is asked for by every way (repeatable)
    #[arg(
        long = "probe",
        value_name = "NAME",
        env = "KUBEBRIDGE_PROBE",
        value_delimiter = ','
    )]
    pub probes: Vec<kubebridge_dns::name::Name>,
    /// Network whose routes are looked at where no session knows the cluster's (repeatable)
    #[arg(
        long = "include-cidr",
        value_name = "CIDR",
        env = "KUBEBRIDGE_INCLUDE_CIDR",
        value_delimiter = ','
    )]
    pub include: Vec<kubebridge_platform::net::IpNet>,
    /// Network that is left alone (repeatable)
    #[arg(
        long = "exclude-cidr",
        value_name = "CIDR",
        env = "KUBEBRIDGE_EXCLUDE_CIDR",
        value_delimiter = ','
    )]
    pub exclude: Vec<kubebridge_platform::net::IpNet>,
}

/// Options of `forward`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct ForwardArgs {
    /// Service and port, and the port of 127.0.0.1 that leads there: the same by default, 0 for any
    #[arg(value_name = "SVC[.NS]:PORT[=LOCAL]", required = true, num_args = 1..=MOST)]
    pub ports: Vec<Wanted>,
}

/// A name and a record type.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct QuestionArgs {
    /// Name to resolve
    #[arg(value_name = "NAME")]
    pub name: kubebridge_dns::name::Name,
    /// Record type
    #[arg(value_name = "TYPE", default_value = "A")]
    pub rtype: kubebridge_dns::name::RecordType,
}

/// Options of `connect`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct ConnectArgs {
    /// The traffic-manager's gRPC port, in place of the kubeconfig: on loopback, or any host with TLS
    #[arg(long, value_name = "ADDR:PORT", env = "KUBEBRIDGE_MANAGER")]
    pub manager: Option<ManagerAddress>,
    /// Stay in the foreground until interrupted
    #[arg(long, env = "KUBEBRIDGE_FOREGROUND", value_parser = FalseyValueParser::new())]
    pub foreground: bool,
    /// Say what would be changed on this machine, and change nothing
    #[arg(long, env = "KUBEBRIDGE_DRY_RUN", value_parser = FalseyValueParser::new(), conflicts_with = "program")]
    pub dry_run: bool,
    /// How programs get into the cluster
    #[arg(long, value_enum, default_value_t, env = "KUBEBRIDGE_MODE")]
    pub mode: Mode,
    /// Where the proxy of `--mode proxy` listens, on loopback; any free port by default
    #[arg(long, value_name = "ADDR:PORT", env = "KUBEBRIDGE_PROXY_LISTEN")]
    pub proxy_listen: Option<SocketAddr>,
    /// How the system's DNS is pointed at the cluster
    #[arg(long, value_enum, default_value_t, env = "KUBEBRIDGE_DNS")]
    pub dns: DnsChoice,
    /// Which names go into the hosts file; each form adds to the one before
    #[arg(long, value_enum, default_value_t, env = "KUBEBRIDGE_HOSTS")]
    pub hosts: HostsForm,
    /// Name outside the cluster that has to resolve as before
    #[arg(long, value_name = "NAME", env = "KUBEBRIDGE_PROBE")]
    pub probe: Option<kubebridge_dns::name::Name>,
    /// Suffix outside the cluster domain that is resolved in the cluster (repeatable)
    #[arg(
        long = "domain",
        value_name = "SUFFIX",
        env = "KUBEBRIDGE_DOMAIN",
        value_delimiter = ','
    )]
    pub domains: Vec<String>,
    /// IPv4 network to take the link's /30 from
    #[arg(long, value_name = "CIDR", env = "KUBEBRIDGE_TUN_CIDR")]
    pub tun_cidr: Option<kubebridge_platform::net::Ipv4Net>,
    /// Most connections to the manager that programs' connections are spread over
    #[arg(
        long,
        value_name = "N",
        default_value_t = MOST_CONNECTIONS,
        value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_CONNECTIONS)),
        env = "KUBEBRIDGE_DATA_CONNECTIONS"
    )]
    pub data_connections: u8,
    /// Network to reach beside those of the cluster (repeatable)
    #[arg(
        long = "include-cidr",
        value_name = "CIDR",
        env = "KUBEBRIDGE_INCLUDE_CIDR",
        value_delimiter = ','
    )]
    pub include: Vec<kubebridge_platform::net::IpNet>,
    /// Network to reach though a wider route of this machine, a VPN's say, has it (repeatable)
    #[arg(
        long = "take-cidr",
        value_name = "CIDR",
        env = "KUBEBRIDGE_TAKE_CIDR",
        value_delimiter = ','
    )]
    pub take: Vec<kubebridge_platform::net::IpNet>,
    /// Network to leave alone, whatever the cluster has (repeatable)
    #[arg(
        long = "exclude-cidr",
        value_name = "CIDR",
        env = "KUBEBRIDGE_EXCLUDE_CIDR",
        value_delimiter = ','
    )]
    pub exclude: Vec<kubebridge_platform::net::IpNet>,
    /// File with a token for a namespace, read anew whenever one is needed (repeatable)
    #[arg(
        long = "token",
        value_name = "NAMESPACE=FILE",
        env = "KUBEBRIDGE_TOKEN",
        value_delimiter = ','
    )]
    pub tokens: Vec<TokenFile>,
    /// Our certificate for a manager over a network, PEM
    #[arg(long, value_name = "FILE", env = "KUBEBRIDGE_TLS_CERT")]
    pub tls_cert: Option<PathBuf>,
    /// Key of that certificate, PEM
    #[arg(long, value_name = "FILE", env = "KUBEBRIDGE_TLS_KEY")]
    pub tls_key: Option<PathBuf>,
    /// Authority of the manager's certificate, PEM
    #[arg(long, value_name = "FILE", env = "KUBEBRIDGE_TLS_CA")]
    pub tls_ca: Option<PathBuf>,
    /// Program to run while connected, with its arguments; its exit code is ours
    #[arg(last = true, value_name = "CMD")]
    pub program: Vec<OsString>,
}

/// Options of `disconnect`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct DisconnectArgs {
    /// Session to end, where several run
    #[arg(value_name = "SESSION", conflicts_with_all = ["all", "session"])]
    pub id: Option<kubebridge_platform::SessionId>,
    /// End all sessions
    #[arg(long, env = "KUBEBRIDGE_ALL", value_parser = FalseyValueParser::new(), conflicts_with = "session")]
    pub all: bool,
}

/// Options of `install-recovery`.
#[derive(Args, Clone, Copy, Debug, PartialEq, Eq)]
pub struct InstallRecoveryArgs {
    /// Show what would be written, and write nothing
    #[arg(long, env = "KUBEBRIDGE_DRY_RUN", value_parser = FalseyValueParser::new(), conflicts_with = "remove")]
    pub dry_run: bool,
    /// Remove what was installed
    #[arg(long, env = "KUBEBRIDGE_REMOVE", value_parser = FalseyValueParser::new())]
    pub remove: bool,
}

/// Options of `certs`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct CertsArgs {
    /// Folder for the files; an authority that is there already is used
    #[arg(long, value_name = "DIR", env = "KUBEBRIDGE_OUT")]
    pub out: PathBuf,
    /// Name or address the manager is reached by (repeatable); makes server.crt and server.key
    #[arg(
        long = "host",
        value_name = "HOST",
        env = "KUBEBRIDGE_HOST",
        value_delimiter = ','
    )]
    pub hosts: Vec<String>,
    /// Name of a client (repeatable); makes NAME.crt and NAME.key
    #[arg(
        long = "client",
        value_name = "NAME",
        default_value = "client",
        env = "KUBEBRIDGE_CLIENT",
        value_delimiter = ','
    )]
    pub clients: Vec<Namespace>,
    /// How long the certificates are valid; the authority is for ten years
    #[arg(
        long,
        value_name = "N",
        default_value = "365",
        env = "KUBEBRIDGE_DAYS",
        value_parser = clap::value_parser!(u16).range(1..=3650)
    )]
    pub days: u16,
}

/// Options of `demo`.
#[derive(Args, Clone, Debug, PartialEq)]
pub struct DemoArgs {
    /// Where the session's resolver listens
    #[arg(
        long,
        value_name = "ADDR:PORT",
        default_value = "127.0.0.1:1053",
        env = "KUBEBRIDGE_DNS_LISTEN"
    )]
    pub dns_listen: SocketAddr,
    /// Exit after the checks: 0 when all answers were right, else 1
    #[arg(long, env = "KUBEBRIDGE_ONCE", value_parser = FalseyValueParser::new())]
    pub once: bool,
}

/// What the arguments ask for.
#[derive(Debug)]
pub enum Parsed {
    /// Run a command.
    Run(Box<Cli>),
    /// Print this text (help, version) and exit 0.
    Print(String),
}

/// Reads arguments, environment and, where `--config` names one, the file.
///
/// A flag beats the environment, which beats the file, which beats the default.
///
/// # Errors
///
/// Wrong arguments (exit 64), or a file that cannot be read or used (exit 78).
pub fn parse(arguments: &[OsString]) -> Result<Parsed, Failure> {
    let matches = match Cli::command().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => return explain::outcome(&error),
    };
    let chosen = matches
        .subcommand()
        .map_or(&matches, |(_, of_command)| of_command);
    let file = chosen.get_one::<PathBuf>("config").cloned();
    let matches = match file {
        None => matches,
        Some(path) => {
            // Behind `--` are the words of somebody else's program.
            let end = arguments.iter().position(|word| word == "--");
            let (own, program) = arguments.split_at(end.unwrap_or(arguments.len()));
            let mut completed = own.to_vec();
            completed.extend(config::arguments(&path, &Cli::command(), &matches)?);
            completed.extend_from_slice(program);
            Cli::command()
                .try_get_matches_from(completed)
                .map_err(|error| {
                    Failure::message(
                        Exit::File,
                        format!("{}: {}", path.display(), explain::one_line(&error)),
                    )
                })?
        }
    };
    let cli = Cli::from_arg_matches(&matches)
        .map_err(|error| Failure::usage(explain::one_line(&error)))?;
    Ok(Parsed::Run(Box::new(cli)))
}

#[cfg(test)]
mod tests;
