//! `kubebridge connect`: arguments become a configuration, and a session runs until it is stopped.

mod program;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use kubebridge_dns::name::Name;
use kubebridge_platform::intent::{DnsIntent, Intent, IntentError};
use kubebridge_platform::net::Ipv4Net;
use kubebridge_platform::routes::ssh_peer;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::access::{NoTokens, TokenFiles, TokenSource};
use crate::background;
use crate::cli::{
    ConnectArgs, DnsChoice, Global, HostsForm, ManagerAddress, Mode, Namespace, Output, TokenFile,
};
use crate::cluster::{AccountTokens, Cluster, Environment, PortForward, Source};
use crate::command::leftovers;
use crate::control::secure::{Secure, TlsFiles};
use crate::control::way::{Direct, Reach, Way};
use crate::failure::{Exit, Failure};
use crate::originals::Originals;
use crate::output::{print, print_line};
use crate::progress::Reporter;
use crate::session::Stop;
use crate::session::os::ThisMachine;
use crate::session::preview::preview;
use crate::session::routes::RouteChoice;
use crate::session::run::{Surroundings, run};
use program::{Program, Signals};

/// Requests to end a session that wait to be read: one of each kind, and some impatience.
pub(crate) const STOPS: usize = 8;

/// Where the proxy listens unless it is told: a port that nobody can have taken.
pub(crate) const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// What a session needs to know.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Which manager.
    pub target: Target,
    /// The namespaces, the session's own first; none is for the kubeconfig to say.
    pub namespaces: Vec<String>,
    /// Suffixes outside the cluster domain that are resolved in the cluster.
    pub domains: Vec<String>,
    /// How programs get into the cluster.
    pub mode: Mode,
    /// How the system's DNS is pointed at the cluster.
    pub dns: DnsChoice,
    /// Which names go into the hosts file.
    pub hosts: HostsForm,
    /// A name outside that has to resolve as before.
    pub probe: Option<Name>,
    /// Where to take the link's network from.
    pub tun_cidr: Option<Ipv4Net>,
    /// The most connections that flows are spread over.
    pub data_connections: u8,
    /// Where the proxy listens, on loopback.
    pub proxy_listen: SocketAddr,
    /// What the user says about IP routes.
    pub routes: RouteChoice,
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
            foreground: _,
            mode,
            dns,
            hosts,
            probe,
            domains,
            tun_cidr,
            data_connections,
            include,
            take,
            exclude,
            proxy_listen,
            tokens,
            tls_cert,
            tls_key,
            tls_ca,
            program: _,
            dry_run: _,
        } = arguments;
        if let Some(session) = &global.session {
            return Err(Failure::usage(format!(
                "--session {session} names a session that is there; connect makes a new one"
            )));
        }
        let tls = tls_files(tls_cert.as_ref(), tls_key.as_ref(), tls_ca.as_ref())?;
        let target = target(manager.as_ref(), tls, global)?;
        let mut names = namespaces(&global.namespaces);
        if names.is_empty() && matches!(target, Target::Address { .. }) {
            names.push(Namespace::default().to_string());
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
        check_networks("--include-cidr", |wish| wish.with_routes(include.clone()))?;
        check_networks("--take-cidr", |wish| wish.with_given(take.clone()))?;
        let proxy_listen = proxy_listen.map(|at| check_listen(at, *mode)).transpose()?;
        Ok(Self {
            target,
            namespaces: names,
            domains: domains.clone(),
            mode: *mode,
            dns: *dns,
            hosts: *hosts,
            probe: probe.clone(),
            tun_cidr: *tun_cidr,
            data_connections: *data_connections,
            proxy_listen: proxy_listen.unwrap_or(ANY_PORT),
            routes: RouteChoice {
                include: include.clone(),
                take: take.clone(),
                exclude: exclude.clone(),
                peers: ssh_peers(),
            },
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
    /// The one in the cluster of a kubeconfig.
    Cluster(Source),
}

impl Target {
    /// Returns the context of the kubeconfig, where one leads to the manager.
    #[must_use]
    pub fn context(&self) -> Option<&str> {
        match self {
            Self::Address { .. } => None,
            Self::Cluster(source) => source.context.as_deref(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, tls: _ } => address.fmt(f),
            Self::Cluster(source) => match &source.context {
                Some(context) => write!(f, "in the cluster of context {context}"),
                None => f.write_str("in the cluster of the kubeconfig"),
            },
        }
    }
}

impl Config {
    /// Reads what the kubeconfig says of the rest: nothing of a broken one is met half-way.
    ///
    /// # Errors
    ///
    /// It cannot be used; exit code 78, or 64 for a context that is not there.
    pub(crate) async fn complete(self) -> Result<Self, Failure> {
        let Target::Cluster(source) = self.target else {
            return Ok(self);
        };
        let (source, namespace) = source.settle().await?;
        Ok(Self {
            target: Target::Cluster(source),
            namespaces: if self.namespaces.is_empty() {
                vec![namespace]
            } else {
                self.namespaces
            },
            ..self
        })
    }

    /// Says how the manager is reached, and where tokens come from; by the original servers where
    /// the way leads through a cluster, which is returned too.
    ///
    /// # Errors
    ///
    /// The kubeconfig cannot be used any more.
    pub(crate) async fn reach(
        &self,
        originals: &Arc<Originals>,
    ) -> Result<(Reach, Option<Arc<Cluster>>), Failure> {
        let files = &self.token_files;
        let files = (!files.0.is_empty()).then(|| Arc::new(files.clone()) as Arc<dyn TokenSource>);
        match &self.target {
            Target::Address { address, tls } => {
                let reach = Reach {
                    way: by_address(address, tls.as_ref())?,
                    tokens: files.unwrap_or_else(|| Arc::new(NoTokens)),
                };
                Ok((reach, None))
            }
            Target::Cluster(source) => {
                let cluster = Cluster::load(source.clone(), Arc::clone(originals)).await?;
                let cluster = Arc::new(cluster);
                let accounts = || Arc::new(AccountTokens::new(Arc::clone(&cluster))) as _;
                let reach = Reach {
                    way: Arc::new(PortForward::new(Arc::clone(&cluster))),
                    tokens: files.unwrap_or_else(accounts),
                };
                Ok((reach, Some(cluster)))
            }
        }
    }
}

fn by_address(address: &ManagerAddress, tls: Option<&TlsFiles>) -> Result<Arc<dyn Way>, Failure> {
    Ok(match (tls, address.ip()) {
        (Some(files), _) => Arc::new(Secure::new(address.clone(), files.clone())),
        (None, Some(ip)) => Arc::new(Direct(SocketAddr::new(ip, address.port))),
        (None, None) => return Err(needs_tls(address)),
    })
}

fn target(
    manager: Option<&ManagerAddress>,
    tls: Option<TlsFiles>,
    global: &Global,
) -> Result<Target, Failure> {
    let Some(address) = manager else {
        if tls.is_some() {
            return Err(
                Failure::usage("--tls-cert, --tls-key and --tls-ca are for --manager").with_hint(
                    "add --manager HOST:PORT, or leave them out: the kubeconfig has its own",
                ),
            );
        }
        return Ok(Target::Cluster(Source {
            file: global.kubeconfig.clone(),
            context: global.context.clone(),
            environment: Environment::of_process(),
        }));
    };
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

/// Finds out before anything is done whether networks may be routed at all.
fn check_networks(
    flag: &str,
    wish: impl FnOnce(Intent) -> Result<Intent, IntentError>,
) -> Result<(), Failure> {
    match wish(Intent::default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::usage(format!("{flag}: {error}"))),
    }
}

/// Finds out before anything is done whether a proxy may listen there: whoever reaches it needs
/// the password, but it goes over the wire in clear.
fn check_listen(at: SocketAddr, mode: Mode) -> Result<SocketAddr, Failure> {
    if mode != Mode::Proxy {
        return Err(Failure::usage("--proxy-listen is for --mode proxy")
            .with_hint("add --mode proxy, or leave it out"));
    }
    if !at.ip().is_loopback() {
        let port = at.port();
        return Err(Failure::usage(format!(
            "--proxy-listen {at} is not a loopback address: the proxy is for this machine alone"
        ))
        .with_hint(format!("--proxy-listen 127.0.0.1:{port}")));
    }
    Ok(at)
}

/// Whoever is logged in by SSH shall not be cut off; sudo drops the variable, the helper reads the
/// connections.
fn ssh_peers() -> Vec<IpAddr> {
    let variable = std::env::var("SSH_CONNECTION").unwrap_or_default();
    ssh_peer(&variable).into_iter().collect()
}

/// Each namespace once, in order.
fn namespaces(given: &[Namespace]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for namespace in given {
        if !names.iter().any(|name| name == namespace.as_str()) {
            names.push(namespace.to_string());
        }
    }
    names
}

/// Connects, and leaves the session in the background or stays until it is stopped.
///
/// # Errors
///
/// It could not be connected, or not everything could be undone.
pub async fn connect(arguments: &ConnectArgs, global: &Global) -> Result<u8, Failure> {
    if arguments.dry_run && arguments.mode == Mode::Proxy {
        Err(Failure::usage(
            "--mode proxy changes nothing on this machine: there is nothing to plan",
        ))
    } else if arguments.dry_run {
        dry_run(arguments, global).await.map(|()| 0)
    } else if !arguments.program.is_empty() {
        beside_program(arguments, global).await
    } else if arguments.foreground {
        foreground(arguments, global).await.map(|()| 0)
    } else {
        background::command::connect(arguments.mode)
            .await
            .map(|()| 0)
    }
}

/// Prints what a session would change.
async fn dry_run(arguments: &ConnectArgs, global: &Global) -> Result<(), Failure> {
    let config = Config::resolve(arguments, global)?.complete().await?;
    let reporter = Arc::new(Reporter::stderr(global.progress));
    let left = leftovers().await;
    let planned = preview(&ThisMachine::default(), config, Arc::clone(&reporter), left).await?;
    match global.output {
        Output::Json => print_line(&planned.json()),
        Output::Text => print(&planned.text()),
    }
    reporter.say("nothing was changed");
    Ok(())
}

/// Runs a session for as long as a program runs, and returns the program's exit code.
async fn beside_program(arguments: &ConnectArgs, global: &Global) -> Result<u8, Failure> {
    let config = Config::resolve(arguments, global)?.complete().await?;
    let (stop_sender, stops) = mpsc::channel(STOPS);
    let (connected, is_connected) = oneshot::channel();
    let (code_sender, code) = oneshot::channel();
    // stdout is the program's.
    let reporter = Arc::new(Reporter::new(global.progress, Box::new(std::io::stderr())));
    let over = CancellationToken::new();
    let program = Program {
        words: arguments.program.clone(),
        connected: is_connected,
        over: over.clone(),
        stops: stop_sender.clone(),
        reporter: Arc::clone(&reporter),
    };
    let running = program.run(Signals::new()?, code_sender);
    let _running = AbortOnDropHandle::new(tokio::spawn(running));
    let surroundings = Surroundings {
        reporter,
        stop_sender,
        stops,
        connected: Some(connected),
        log: None,
    };
    let outcome = run(&ThisMachine::default(), config, surroundings).await;
    // A program that still runs ends now; there is none where the session was never connected.
    over.cancel();
    let code = code.await;
    outcome.map(|()| code.unwrap_or(Exit::Other as u8))
}

async fn foreground(arguments: &ConnectArgs, global: &Global) -> Result<(), Failure> {
    let config = Config::resolve(arguments, global)?.complete().await?;
    let (sender, stops) = mpsc::channel(STOPS);
    let _signals = signals(sender.clone())?;
    let reporter = Arc::new(Reporter::stderr(global.progress).timed(global.verbose > 0));
    let surroundings = Surroundings {
        reporter,
        stop_sender: sender,
        stops,
        connected: None,
        log: None,
    };
    run(&ThisMachine::default(), config, surroundings).await
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
