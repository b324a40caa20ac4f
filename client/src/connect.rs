//! `kubebridge connect`: arguments become a configuration, and a session runs until it is stopped.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use kubebridge_dns::name::Name;
use kubebridge_platform::intent::{DnsIntent, Intent};
use kubebridge_platform::net::Ipv4Net;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::access::{NoTokens, TokenFiles, TokenSource};
use crate::cli::{
    ConnectArgs, DnsChoice, Global, HostsForm, ManagerAddress, Namespace, Output, TokenFile,
};
use crate::control::secure::{Secure, TlsFiles};
use crate::control::way::{Direct, Reach, Way};
use crate::failure::{Exit, Failure};
use crate::progress::Reporter;
use crate::session::Stop;
use crate::session::os::ThisMachine;
use crate::session::run;

/// Requests to end a session that wait to be read: one of each kind, and some impatience.
pub(crate) const STOPS: usize = 8;

/// What a session needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which manager.
    pub target: Target,
    /// The namespaces, the session's own first.
    pub namespaces: Vec<String>,
    /// Suffixes outside the cluster domain that are resolved in the cluster.
    pub domains: Vec<String>,
    /// How the system's DNS is pointed at the cluster.
    pub dns: DnsChoice,
    /// Which names go into the hosts file.
    pub hosts: HostsForm,
    /// A name outside that has to resolve as before.
    pub probe: Option<Name>,
    /// Where to take the link's network from.
    pub tun_cidr: Option<Ipv4Net>,
    /// Files with tokens, by namespace.
    pub token_files: TokenFiles,
    /// The form of what is written to stdout.
    pub output: Output,
}

impl Config {
    /// Makes a configuration from arguments.
    ///
    /// # Errors
    ///
    /// Something `connect` needs is missing or makes no sense; exit code 64.
    pub fn resolve(arguments: &ConnectArgs, global: &Global) -> Result<Self, Failure> {
        let ConnectArgs {
            manager,
            foreground,
            dns,
            hosts,
            probe,
            domains,
            tun_cidr,
            tokens,
            tls_cert,
            tls_key,
            tls_ca,
        } = arguments;
        let tls = tls_files(tls_cert.as_ref(), tls_key.as_ref(), tls_ca.as_ref())?;
        let target = target(manager.as_ref(), tls)?;
        if !foreground {
            return Err(Failure::usage(
                "connect needs --foreground: sessions in the background are not built yet",
            )
            .with_hint("add --foreground; Ctrl-C or `kubebridge disconnect` ends the session"));
        }
        let mut token_files = TokenFiles::default();
        for TokenFile { namespace, path } in tokens {
            if token_files
                .0
                .insert(namespace.to_string(), path.clone())
                .is_some()
            {
                return Err(Failure::usage(format!("--token names {namespace} twice")));
            }
        }
        check_domains(domains)?;
        Ok(Self {
            target,
            namespaces: namespaces(&global.namespaces),
            domains: domains.clone(),
            dns: *dns,
            hosts: *hosts,
            probe: probe.clone(),
            tun_cidr: *tun_cidr,
            token_files,
            output: global.output,
        })
    }
}

/// Which manager a session is with.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// The one at an address.
    Address {
        /// Where it is.
        address: ManagerAddress,
        /// What proves who is who; without it the address is on loopback.
        tls: Option<TlsFiles>,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, tls: _ } => address.fmt(f),
        }
    }
}

impl Config {
    /// Says how the manager is reached, and where tokens come from.
    ///
    /// # Errors
    ///
    /// The address is a name, and there are no files for TLS.
    pub fn reach(&self) -> Result<Reach, Failure> {
        let tokens: Arc<dyn TokenSource> = if self.token_files.0.is_empty() {
            Arc::new(NoTokens)
        } else {
            Arc::new(self.token_files.clone())
        };
        let way: Arc<dyn Way> = match &self.target {
            Target::Address {
                address,
                tls: Some(files),
            } => Arc::new(Secure::new(address.clone(), files.clone())),
            Target::Address { address, tls: None } => match address.ip() {
                Some(ip) => Arc::new(Direct(SocketAddr::new(ip, address.port))),
                None => return Err(needs_tls(address)),
            },
        };
        Ok(Reach { way, tokens })
    }
}

fn target(manager: Option<&ManagerAddress>, tls: Option<TlsFiles>) -> Result<Target, Failure> {
    let address = manager.ok_or_else(|| {
        Failure::usage("connect needs --manager ADDR:PORT: finding the manager by the kubeconfig is not built yet")
            .with_hint("kubectl -n kubebridge port-forward deploy/traffic-manager 7080:7080, then --manager 127.0.0.1:7080")
    })?;
    if tls.is_none() && !address.ip().is_some_and(|ip| ip.is_loopback()) {
        return Err(needs_tls(address));
    }
    Ok(Target::Address {
        address: address.clone(),
        tls,
    })
}

fn needs_tls(address: &ManagerAddress) -> Failure {
    Failure::usage(format!(
        "--manager {address} is not a loopback address: over a network it needs --tls-cert, --tls-key and --tls-ca"
    ))
    .with_hint("`kubebridge certs` makes them; or kubectl port-forward, and --manager 127.0.0.1:PORT")
}

fn tls_files(
    cert: Option<&PathBuf>,
    key: Option<&PathBuf>,
    ca: Option<&PathBuf>,
) -> Result<Option<TlsFiles>, Failure> {
    match (cert, key, ca) {
        (None, None, None) => Ok(None),
        (Some(cert), Some(key), Some(ca)) => {
            let files = TlsFiles {
                cert: cert.clone(),
                key: key.clone(),
                ca: ca.clone(),
            };
            // What cannot work is told before anything is done.
            match files.config() {
                Ok(_) => Ok(Some(files)),
                Err(error) => Err(Failure::new(Exit::File, error)
                    .context("cannot use the files for TLS")
                    .with_hint("`kubebridge certs` makes them")),
            }
        }
        _ => Err(
            Failure::usage("mutual TLS needs --tls-cert, --tls-key and --tls-ca")
                .with_hint("give all three; `kubebridge certs` makes them"),
        ),
    }
}

/// Finds out before anything is done whether a suffix may be sent to the cluster at all.
fn check_domains(domains: &[String]) -> Result<(), Failure> {
    let wish = DnsIntent {
        // Stands for the resolver, which has no address yet.
        servers: vec![Ipv4Addr::new(198, 19, 248, 2).into()],
        routes: domains.to_vec(),
        ..DnsIntent::default()
    };
    match Intent::new(Some(wish), Vec::new()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::usage(format!("--domain: {error}"))),
    }
}

/// Each namespace once, in order; `default` when none was given.
fn namespaces(given: &[Namespace]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for namespace in given {
        if !names.iter().any(|name| name == namespace.as_str()) {
            names.push(namespace.to_string());
        }
    }
    if names.is_empty() {
        names.push(Namespace::default().to_string());
    }
    names
}

/// Runs a session on this machine until it is stopped.
///
/// # Errors
///
/// It could not be connected, or not everything could be undone.
pub async fn connect(arguments: &ConnectArgs, global: &Global) -> Result<(), Failure> {
    let config = Config::resolve(arguments, global)?;
    let (sender, stops) = mpsc::channel(STOPS);
    let _signals = signals(sender.clone())?;
    let reporter = Arc::new(Reporter::stderr(global.progress));
    run::run(&ThisMachine::default(), config, reporter, sender, stops).await
}

/// Turns signals into stops, from now on until the handle is dropped.
pub(crate) fn signals(stops: mpsc::Sender<Stop>) -> Result<AbortOnDropHandle<()>, Failure> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let forward = async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            // A full queue has a stop in it already.
            let _ = stops.try_send(Stop::Signal);
        }
    };
    Ok(AbortOnDropHandle::new(tokio::spawn(forward)))
}

#[cfg(test)]
mod tests;
