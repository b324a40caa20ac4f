//! Where a session writes down what `status` and `routes` tell.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use kubebridge_proto::routes::{NamespaceState, PortProtocol, ServicePort, ServiceRoute};

use super::{
    DnsReport, HostsReport, NamespaceReport, RoutesReport, ServiceReport, StatusReport, StepReport,
    TunnelReport,
};
use crate::control::Tunnel;
use crate::routes::{NamespaceRoutes, RouteTable, kind_label};
use crate::session::{Health, State, Step};
use crate::zones::shadowed;

/// How far a session is, for those who wait for its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// It runs.
    Running(State),
    /// All is undone, or what could not be.
    Over(Option<String>),
}

/// What never changes about a session.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The session's id.
    pub session: String,
    /// The manager's address.
    pub manager: String,
    /// The namespaces, the session's own first.
    pub namespaces: Vec<String>,
}

/// What a session knows about itself; written by the session, read by the control socket.
#[derive(Debug)]
pub struct Board {
    identity: Identity,
    start: Instant,
    phase: watch::Sender<Phase>,
    facts: Mutex<Facts>,
}

/// What becomes known step by step.
#[derive(Debug, Default)]
pub struct Facts {
    /// The manager's version.
    pub manager_version: Option<String>,
    /// The cluster domain.
    pub cluster_domain: Option<String>,
    /// The way to the manager.
    pub tunnel: Option<watch::Receiver<Tunnel>>,
    /// The Services.
    pub routes: Option<watch::Receiver<RouteTable>>,
    /// The system's DNS.
    pub dns: DnsReport,
    /// The hosts file.
    pub hosts: HostsReport,
    /// The steps done.
    pub steps: Vec<StepReport>,
}

impl Facts {
    /// Takes down a step that is done.
    pub fn note_step(&mut self, step: Step, detail: String, took: Duration) {
        self.steps.push(StepReport {
            step: step.label().to_owned(),
            detail,
            millis: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        });
    }
}

impl Board {
    /// Makes the board of a session that starts now.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Self {
            identity,
            start: Instant::now(),
            phase: watch::Sender::new(Phase::Running(State::Ready)),
            facts: Mutex::default(),
        }
    }

    /// Says how far the session is.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Follows how far the session is.
    #[must_use]
    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Writes facts down.
    pub fn note(&self, write: impl FnOnce(&mut Facts)) {
        write(&mut self.facts.lock());
    }

    /// Reports how the session stands.
    #[must_use]
    pub fn status(&self) -> StatusReport {
        let facts = self.facts.lock();
        let phase = self.phase.borrow().clone();
        let (state, doing) = phase_words(&phase);
        let mut dns = facts.dns.clone();
        let mut kubernetes = Vec::new();
        if let Some(routes) = &facts.routes {
            let table = routes.borrow();
            dns.shadowed = shadowed(&self.identity.namespaces, &table);
            kubernetes = namespaces(&table);
        }
        StatusReport {
            session: self.identity.session.clone(),
            pid: std::process::id(),
            state: state.to_owned(),
            doing: doing.map(str::to_owned),
            uptime_seconds: self.start.elapsed().as_secs(),
            manager: self.identity.manager.clone(),
            manager_version: facts.manager_version.clone(),
            cluster_domain: facts.cluster_domain.clone(),
            namespaces: self.identity.namespaces.clone(),
            tunnel: facts
                .tunnel
                .as_ref()
                .map(|tunnel| tunnel_report(&tunnel.borrow())),
            dns,
            hosts: facts.hosts.clone(),
            kubernetes,
            steps: facts.steps.clone(),
        }
    }

    /// Reports the Services.
    #[must_use]
    pub fn routes(&self) -> RoutesReport {
        let facts = self.facts.lock();
        let mut report = RoutesReport {
            session: self.identity.session.clone(),
            namespaces: Vec::new(),
            services: Vec::new(),
        };
        if let Some(routes) = &facts.routes {
            let table = routes.borrow();
            report.namespaces = namespaces(&table);
            report.services = table
                .namespaces()
                .flat_map(|(namespace, _)| table.services(namespace))
                .map(service)
                .collect();
        }
        report
    }
}

fn phase_words(phase: &Phase) -> (&'static str, Option<&'static str>) {
    match phase {
        Phase::Running(State::Ready) => ("connecting", None),
        Phase::Running(State::Connecting(step, _)) => ("connecting", Some(step.label())),
        Phase::Running(State::Connected(Health::Good)) => ("connected", None),
        Phase::Running(State::Connected(Health::Degraded)) => ("degraded", None),
        Phase::Running(State::Undoing(undo, _)) => ("ending", Some(undo.label())),
        Phase::Running(State::Ended(_)) | Phase::Over(_) => ("ending", None),
    }
}

fn tunnel_report(tunnel: &Tunnel) -> TunnelReport {
    let millis = |since: &Instant| u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    match tunnel {
        Tunnel::Up { seen, round_trip } => TunnelReport {
            up: true,
            echo_age_millis: Some(millis(seen)),
            round_trip_micros: round_trip.and_then(|time| u64::try_from(time.as_micros()).ok()),
            down_millis: None,
            reason: None,
        },
        Tunnel::Down { since, reason } => TunnelReport {
            up: false,
            echo_age_millis: None,
            round_trip_micros: None,
            down_millis: Some(millis(since)),
            reason: Some(reason.clone()),
        },
    }
}

fn namespaces(table: &RouteTable) -> Vec<NamespaceReport> {
    table
        .namespaces()
        .map(|(namespace, routes)| NamespaceReport {
            namespace: namespace.to_owned(),
            state: state_words(routes),
            services: routes.len(),
        })
        .collect()
}

fn state_words(routes: &NamespaceRoutes) -> String {
    match routes.state() {
        None => "unknown".to_owned(),
        Some(NamespaceState::Synced) => "synced".to_owned(),
        Some(NamespaceState::Waiting) => "waiting".to_owned(),
        Some(NamespaceState::Forbidden { verb, resource }) => {
            format!("forbidden: {verb} {resource}")
        }
        Some(NamespaceState::NoSource) => "no source".to_owned(),
    }
}

fn service(route: &ServiceRoute) -> ServiceReport {
    ServiceReport {
        namespace: route.namespace.clone(),
        name: route.name.clone(),
        kind: kind_label(route.kind).to_owned(),
        cluster_ips: route.cluster_ips.iter().map(ToString::to_string).collect(),
        ports: route.ports.iter().map(port).collect(),
        external_name: route.external_name.clone(),
    }
}

fn port(port: &ServicePort) -> String {
    let protocol = match port.protocol {
        PortProtocol::Tcp => "TCP",
        PortProtocol::Udp => "UDP",
        PortProtocol::Sctp => "SCTP",
    };
    match port.name.as_str() {
        "" => format!("{}/{protocol}", port.port),
        name => format!("{name}:{}/{protocol}", port.port),
    }
}
