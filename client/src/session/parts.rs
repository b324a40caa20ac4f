//! What a session holds while it lives.
//!
//! The steps that create the parts are in [`steps`](super::steps), what they have to tell in
//! `events`, what is written for them in `writing`, and how they go away again in `ending`.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use kubebridge_platform::claims::Withheld;
use kubebridge_platform::intent::Intent;
use kubebridge_platform::sys::SessionId;
use kubebridge_platform::tun::{Packets, Tun};
use kubebridge_platform::{Clock, Drift, DriftWatch};
use kubebridge_proto::session::{SessionInfo, SessionRequest};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tonic::transport::Channel;

use super::hosts::HostsKeeper;
use super::os::Os;
use super::routes::RoutesKeeper;
use super::{Health, Step, Stop, steps};
use crate::background::log::LogFile;
use crate::connect::Config;
use crate::control::way::Reach;
use crate::control::{Control, Tunnel};
use crate::failure::Failure;
use crate::flows::Flows;
use crate::local_dns::{LocalDns, Watching};
use crate::netstack::Netstack;
use crate::originals::Originals;
use crate::progress::Reporter;
use crate::proxy::Proxy;
use crate::stale::StaleAnswers;
use crate::status::board::Board;
use crate::status::server::Server;
use crate::zones::Zones;

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
    /// What reads the link, with the resolver in it.
    pub(super) netstack: Option<Netstack<Packets>>,
    pub(super) watching: Option<Watching>,
    pub(super) local: Option<Arc<LocalDns>>,
    pub(super) proxy: Option<Proxy>,
    /// Where the resolver's queries go.
    pub(super) zones: Option<watch::Sender<Arc<Zones>>>,
    pub(super) intent: Intent,
    /// The IP routes, from the moment they are planned.
    pub(super) routes: Option<RoutesKeeper>,
    /// What of it another session has.
    pub(super) withheld: Option<Withheld>,
    pub(super) hosts: Option<HostsKeeper>,
    pub(super) stale: Arc<StaleAnswers>,
    pub(super) clock: Clock,
    pub(super) log: Option<Arc<LogFile>>,
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
    /// Connections into the cluster; nothing is opened before one is wanted.
    pub(super) flows: Arc<Flows>,
    /// What the settings are made of now.
    pub(super) session: SessionInfo,
    /// What the manager said last.
    pub(super) sessions: watch::Receiver<SessionInfo>,
    pub(super) tunnel: watch::Receiver<Tunnel>,
    /// What the session was told last.
    pub(super) health: Health,
}

/// The link.
pub(super) struct LinkUp {
    pub(super) name: String,
    pub(super) index: u32,
    pub(super) address: Ipv4Addr,
    pub(super) prefix: u8,
    pub(super) resolver: Ipv4Addr,
    /// Where the resolver is asked.
    pub(super) socket: std::net::SocketAddr,
    pub(super) mtu: u16,
    /// Until the terminator takes it: the link is gone when it is closed.
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
            netstack: None,
            watching: None,
            local: None,
            proxy: None,
            zones: None,
            intent: Intent::default(),
            routes: None,
            withheld: None,
            hosts: None,
            stale,
            clock,
            log: None,
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
            Step::Claim => steps::claim(self).await,
            Step::Plan => steps::plan(self).await,
            Step::Link => steps::link(self).await,
            Step::Resolver => steps::resolver(self),
            Step::Routes => steps::routes(self).await,
            Step::Probe => steps::probe(self).await,
            Step::Proxy => steps::proxy(self).await,
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
}

/// Describes the link for the user.
pub(super) fn link_words(name: &str, address: Ipv4Addr, prefix: u8) -> String {
    format!("{name} {address}/{prefix}")
}
