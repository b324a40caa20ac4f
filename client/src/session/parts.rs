//! What a session holds while it lives, and how each part goes away again.
//!
//! The steps that create the parts are in [`steps`](super::steps).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use kubebridge_platform::host::{Host, HostError, HostsConflict, Link};
use kubebridge_platform::intent::{HostsLine, Intent};
use kubebridge_platform::sys::SessionId;
use kubebridge_platform::tun::Tun;
use kubebridge_platform::{Clock, Drift, DriftWatch};
use kubebridge_proto::session::{SessionInfo, SessionRequest};
use tokio::sync::watch::error::RecvError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};
use tonic::transport::Channel;

use super::hosts::HostsKeeper;
use super::os::{Os, host_failure};
use super::{Event, Health, Step, Stop, steps};
use crate::connect::Config;
use crate::control::way::Reach;
use crate::control::{Control, Tunnel};
use crate::failure::Failure;
use crate::local_dns::Serving;
use crate::originals::Originals;
use crate::progress::Reporter;
use crate::stale::StaleAnswers;
use crate::status::HostsLineReport;
use crate::status::board::Board;
use crate::status::server::Server;

/// The wait before what was written is looked at again (H7).
pub(super) const SECOND_LOOK: Duration = Duration::from_secs(1);

/// What a session holds.
pub(super) struct Parts<'os, O: Os> {
    pub(super) os: &'os O,
    pub(super) id: SessionId,
    pub(super) config: Config,
    /// Known once the manager was dialled.
    pub(super) reach: Option<Reach>,
    pub(super) board: Arc<Board>,
    pub(super) reporter: Arc<Reporter>,
    pub(super) stops: mpsc::Sender<Stop>,
    pub(super) server: Option<Server>,
    pub(super) host: Option<O::Host>,
    pub(super) found: Option<Found>,
    pub(super) channel: Option<Channel>,
    pub(super) cluster: Option<Cluster>,
    pub(super) link: Option<LinkUp>,
    pub(super) serving: Option<Serving>,
    pub(super) intent: Intent,
    pub(super) hosts: Option<HostsKeeper>,
    pub(super) stale: Arc<StaleAnswers>,
    pub(super) clock: Clock,
    pub(super) watch: Option<DriftWatch>,
    /// What was noticed and not looked into yet.
    pub(super) drift: Option<Drift>,
    /// When to look at what was just written: another writer may have won the last instant.
    pub(super) second_look: Option<Instant>,
}

/// How the machine resolved names before, and what is made of it.
pub(super) struct Found {
    pub(super) originals: Arc<Originals>,
    pub(super) points_os: bool,
}

/// The cluster side.
pub(super) struct Cluster {
    pub(super) control: Control,
    pub(super) session: SessionInfo,
    pub(super) tunnel: watch::Receiver<Tunnel>,
    /// What the session was told last.
    pub(super) health: Health,
}

/// The link, without the sockets that the resolver took over.
pub(super) struct LinkUp {
    pub(super) name: String,
    pub(super) address: Ipv4Addr,
    pub(super) prefix: u8,
    pub(super) resolver: Ipv4Addr,
    /// Where the resolver is asked.
    pub(super) socket: std::net::SocketAddr,
    /// Until the resolver takes its sockets.
    pub(super) rest: Option<Link>,
    /// From then on: the link is gone when it is closed.
    pub(super) device: Option<Tun>,
}

impl<'os, O: Os> Parts<'os, O> {
    pub(super) fn new(
        os: &'os O,
        id: SessionId,
        config: Config,
        board: Arc<Board>,
        reporter: Arc<Reporter>,
        stops: mpsc::Sender<Stop>,
        clock: Clock,
    ) -> Self {
        let stale = Arc::new(StaleAnswers::default());
        board.note(|facts| facts.stale = Some(Arc::clone(&stale)));
        Self {
            os,
            id,
            reach: None,
            config,
            board,
            reporter,
            stops,
            server: None,
            host: None,
            found: None,
            channel: None,
            cluster: None,
            link: None,
            serving: None,
            intent: Intent::default(),
            hosts: None,
            stale,
            clock,
            watch: None,
            drift: None,
            second_look: None,
        }
    }

    /// Carries one step out and says what it found.
    pub(super) async fn step(&mut self, step: Step) -> Result<String, Failure> {
        match step {
            Step::Recover => steps::recover(self).await,
            Step::ReadDns => steps::read_dns(self).await,
            Step::Dial => steps::dial(self).await,
            Step::OpenSession => steps::open_session(self).await,
            Step::Link => steps::link(self).await,
            Step::Resolver => steps::resolver(self),
            Step::Probe => steps::probe(self).await,
            Step::PointOs => steps::point_os(self).await,
            Step::Hosts => steps::hosts(self).await,
            Step::Verify => steps::verify(self).await,
        }
    }

    /// What the manager is asked for.
    pub(super) fn request(&self) -> SessionRequest {
        SessionRequest {
            client_version: env!("CARGO_PKG_VERSION").to_owned(),
            id: None,
            namespaces: self.config.namespaces.clone(),
            domains: self.config.domains.clone(),
            tokens: Vec::new(),
        }
    }

    /// Applies the intent and passes on what the host has to say about it.
    pub(super) async fn apply(&mut self) -> Result<Vec<String>, Failure> {
        let Some(host) = &mut self.host else {
            return Ok(Vec::new());
        };
        let applied = host.apply(&self.intent).await.map_err(host_failure)?;
        self.note_applied(applied.warnings, applied.conflicts);
        Ok(applied.changes)
    }

    /// Tells the user, and `status`, of something that could not be had.
    pub(super) fn warn_once(&self, warning: String) {
        let mut is_new = false;
        self.board.note(|facts| {
            is_new = !facts.dns.warnings.contains(&warning);
            if is_new {
                facts.dns.warnings.push(warning.clone());
            }
        });
        if is_new {
            self.reporter.warn(&warning);
        }
    }

    /// Whether the machine's DNS is pointed at the session.
    pub(super) fn points_os(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.points_os)
    }

    /// Writes the hosts lines wanted now and returns their number.
    pub(super) async fn write_hosts(&mut self) -> Result<usize, Failure> {
        let Some(hosts) = &mut self.hosts else {
            return Ok(0);
        };
        self.intent.hosts = hosts.plan();
        let lines = self.intent.hosts.len();
        let listed = self.intent.hosts.iter().map(line_report).collect();
        let outcome = self.apply_hosts().await;
        let outcome = outcome.map(|changes| {
            if !changes.is_empty() {
                self.second_look = Some(Instant::now() + SECOND_LOOK);
            }
        });
        if let Some(hosts) = &mut self.hosts {
            hosts.note_write(&outcome);
            let conflicts = hosts.conflicts();
            let error = outcome
                .as_ref()
                .err()
                .map(|failure| format!("{:#}", failure.error));
            self.board.note(|facts| {
                if error.is_none() {
                    facts.hosts.lines = lines;
                    facts.lines = listed;
                }
                facts.hosts.conflicts = conflicts;
                facts.hosts.error = error;
            });
        }
        outcome.map(|()| lines)
    }

    /// Applies the intent for the sake of its hosts lines, which are written whatever becomes of
    /// DNS; that is put right at the next drift, when the system's resolver is back at the latest.
    async fn apply_hosts(&mut self) -> Result<Vec<String>, Failure> {
        let Some(host) = &mut self.host else {
            return Ok(Vec::new());
        };
        match host.apply(&self.intent).await {
            Ok(applied) => {
                self.note_applied(applied.warnings, applied.conflicts);
                Ok(applied.changes)
            }
            Err(error @ HostError::Dns(_)) => {
                let trouble = format!("{:#}", host_failure(error).error);
                tracing::warn!(error = %trouble, "system DNS not as wanted");
                self.board.note(|facts| facts.dns.error = Some(trouble));
                Ok(Vec::new())
            }
            Err(error) => Err(host_failure(error)),
        }
    }

    fn note_applied(&mut self, warnings: Vec<String>, conflicts: Vec<HostsConflict>) {
        for warning in warnings {
            self.warn_once(warning);
        }
        if let Some(hosts) = &mut self.hosts {
            hosts.note_conflicts(conflicts);
        }
    }

    /// Brings the hosts lines up to date; what fails is tried again later.
    pub(super) async fn refresh_hosts(&mut self) {
        match self.write_hosts().await {
            Ok(lines) => tracing::debug!(lines, "hosts lines written"),
            Err(failure) => {
                tracing::warn!(error = %format!("{:#}", failure.error), "hosts file not written");
            }
        }
    }

    /// Waits for something to happen to a part. May be dropped and called again.
    pub(super) async fn next_event(&mut self) -> Event {
        let Self {
            cluster,
            hosts,
            serving,
            server,
            watch,
            second_look,
            drift,
            ..
        } = self;
        tokio::select! {
            event = cluster_event(cluster.as_mut()) => event,
            event = hosts_due(hosts.as_mut()) => event,
            () = broken(serving.as_mut()) => Event::Stop(Stop::Broken),
            () = unheard(server.as_mut()) => Event::Stop(Stop::Broken),
            () = at(*second_look) => Event::Drifted,
            noticed = next_drift(watch.as_mut()) => {
                tracing::debug!(causes = ?noticed.causes, "drift");
                *drift = Some(noticed);
                Event::Drifted
            }
        }
    }

    /// Takes the machine's DNS and hosts lines back; the link stays.
    pub(super) async fn restore_host(&mut self) -> Result<String, Failure> {
        self.hosts = None;
        self.watch = None;
        self.intent = Intent::default();
        let changes = self.apply().await?;
        self.board.note(|facts| {
            facts.dns.applied = false;
            facts.hosts.lines = 0;
            facts.lines.clear();
        });
        Ok(steps::summary(&changes, "nothing to do"))
    }

    /// Stops the resolver, has the host undo the rest, and closes the device.
    pub(super) async fn remove_link(&mut self) -> Result<String, Failure> {
        if let Some(serving) = self.serving.take() {
            serving.stop().await;
        }
        // The lock goes with the host, and the next session may need the link's name.
        let mut host = self.host.take();
        let undone = match &mut host {
            Some(host) => host
                .undo()
                .await
                .map_err(host_failure)
                .map(|undone| undone.changes),
            None => Ok(Vec::new()),
        };
        let name = self.link.take().map(|link| link.name);
        drop(host);
        Ok(steps::summary(
            &undone?,
            name.as_deref().unwrap_or("nothing to do"),
        ))
    }

    /// Drops the connection to the manager.
    pub(super) async fn close_session(&mut self) -> Result<String, Failure> {
        self.channel = None;
        if let Some(cluster) = self.cluster.take() {
            cluster.control.stop().await;
        }
        Ok("closed".to_owned())
    }

    /// Gives the machine back to the next session, whatever was reached.
    pub(super) async fn release(&mut self) -> Result<(), Failure> {
        if let Some(mut host) = self.host.take() {
            host.undo().await.map_err(host_failure)?;
        }
        if let Some(server) = &self.server {
            server.hide();
        }
        Ok(())
    }

    /// Tells those who wait that the session is over.
    pub(super) async fn close_control_socket(&mut self) {
        if let Some(server) = self.server.take() {
            server.stop().await;
        }
    }
}

/// Waits until the manager starts or stops answering, or is no longer watched.
async fn cluster_event(cluster: Option<&mut Cluster>) -> Event {
    let Some(Cluster {
        control,
        tunnel,
        health,
        ..
    }) = cluster
    else {
        return std::future::pending().await;
    };
    let told = *health;
    tokio::select! {
        () = control.ended() => Event::Stop(Stop::Broken),
        Ok(now) = health_other_than(tunnel, told) => {
            *health = now;
            Event::Tunnel(now)
        }
    }
}

async fn health_other_than(
    tunnel: &mut watch::Receiver<Tunnel>,
    told: Health,
) -> Result<Health, RecvError> {
    let changed = tunnel.wait_for(|tunnel| tunnel.health() != told).await;
    changed.map(|tunnel| tunnel.health())
}

/// Waits until the hosts lines need another look.
async fn hosts_due(hosts: Option<&mut HostsKeeper>) -> Event {
    match hosts {
        Some(hosts) => match hosts.due().await {
            Ok(()) => Event::RoutesChanged,
            Err(_) => Event::Stop(Stop::Broken),
        },
        None => std::future::pending().await,
    }
}

/// Waits until nobody can speak to the session any more.
async fn unheard(server: Option<&mut Server>) {
    match server {
        Some(server) => server.ended().await,
        None => std::future::pending().await,
    }
}

async fn next_drift(watch: Option<&mut DriftWatch>) -> Drift {
    match watch {
        Some(watch) => watch.next().await,
        None => std::future::pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn line_report(line: &HostsLine) -> HostsLineReport {
    HostsLineReport {
        address: line.address.to_string(),
        names: line.names.clone(),
    }
}

/// Describes the link for the user.
pub(super) fn link_words(name: &str, address: Ipv4Addr, prefix: u8) -> String {
    format!("{name} {address}/{prefix}")
}

/// Waits until a part ends that must not.
async fn broken(serving: Option<&mut Serving>) {
    match serving {
        Some(serving) => serving.ended().await,
        None => std::future::pending().await,
    }
}
