//! `kubebridge connect`: arguments become a configuration, and a session runs until it is stopped.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use kubebridge_dns::name::Name;
use kubebridge_platform::intent::{DnsIntent, Intent};
use kubebridge_platform::net::Ipv4Net;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use crate::access::{NoTokens, TokenFiles, TokenSource};
use crate::cli::{ConnectArgs, DnsChoice, Global, HostsForm, Namespace, Output, TokenFile};
use crate::control::way::{Direct, Reach};
use crate::failure::Failure;
use crate::progress::Reporter;
use crate::session::Stop;
use crate::session::os::ThisMachine;
use crate::session::run;

/// Requests to end a session that wait to be read: one of each kind, and some impatience.
pub(crate) const STOPS: usize = 8;

/// What a session needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The manager's gRPC port.
    pub manager: SocketAddr,
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
        } = arguments;
        let manager = manager.ok_or_else(|| {
            Failure::usage("connect needs --manager ADDR:PORT: finding the manager by the kubeconfig is not built yet")
                .with_hint("kubectl -n kubebridge port-forward deploy/traffic-manager 7080:7080, then --manager 127.0.0.1:7080")
        })?;
        if !manager.ip().is_loopback() {
            return Err(Failure::usage(format!(
                "--manager {manager} is not a loopback address: connecting over a network needs TLS, which is not built yet"
            ))
            .with_hint("kubectl port-forward, and --manager 127.0.0.1:PORT"));
        }
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
            manager,
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

impl Config {
    /// Says how the manager is reached, and where tokens come from.
    #[must_use]
    pub fn reach(&self) -> Reach {
        let tokens: Arc<dyn TokenSource> = if self.token_files.0.is_empty() {
            Arc::new(NoTokens)
        } else {
            Arc::new(self.token_files.clone())
        };
        Reach {
            way: Arc::new(Direct(self.manager)),
            tokens,
        }
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
