//! Where a session writes down what `status` and `routes` tell.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kubebridge_platform::host::Kind;
use kubebridge_platform::{Clock, HostError};
use kubebridge_proto::session::SessionInfo;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use self::reports::{
    credentials_report, namespaces, phase_words, repairs, routing, service, tasks, tokens_report,
    trouble_words, tunnel_report,
};
use super::{
    DnsReport, HostsLineReport, HostsListReport, HostsReport, NamespacesReport, ProxyReport,
    RoutesReport, RoutingReport, StaleReport, StatusReport, StepReport, WithheldReport, health,
};
use crate::cluster::Authorisation;
use crate::control::namespaces::{Change, Changes};
use crate::control::{Opened, Tunnel};
use crate::failure::{Exit, Failure};
use crate::flows::Flows;
use crate::inquiry::Inquiry;
use crate::netstack::Counts;
use crate::places::SessionPlaces;
use crate::proxy::Password;
use crate::routes::RouteTable;
use crate::session::{State, Step};
use crate::skew;
use crate::stale::StaleAnswers;
use crate::zones::shadowed;

mod answers;
mod reports;

/// Repairs told one by one; older ones are only counted.
const REPAIRS: usize = 20;
/// How long the machine may take to follow other namespaces: its DNS may take 5 s to give in, and
/// the hosts file waits for what names resolved to before.
const FOLLOW: Duration = Duration::from_secs(15);
/// How long the Services of a new namespace are waited for, as at the start of a session.
const ROUTES: Duration = Duration::from_secs(2);

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
    /// The context of the kubeconfig, if it is reached by one.
    pub context: Option<String>,
    /// The namespaces it begins with, the session's own first.
    pub namespaces: Vec<String>,
}

/// What a session knows about itself; written by the session, read by the control socket.
#[derive(Debug)]
pub struct Board {
    identity: Identity,
    clock: Clock,
    start: Instant,
    phase: watch::Sender<Phase>,
    followed: watch::Sender<Followed>,
    facts: Mutex<Facts>,
}

/// What the machine was last brought in line with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Followed {
    /// The namespaces, the session's own first.
    pub namespaces: Vec<String>,
    /// What could not be brought in line.
    pub trouble: Option<String>,
}

/// What becomes known step by step.
#[derive(Debug, Default)]
pub struct Facts {
    /// What the manager says about itself and the session.
    pub session: Option<watch::Receiver<SessionInfo>>,
    /// How long the session's tokens last.
    pub opened: Option<watch::Receiver<Opened>>,
    /// What changes the session's namespaces.
    pub changes: Option<Changes>,
    /// The way to the manager.
    pub tunnel: Option<watch::Receiver<Tunnel>>,
    /// How the user's credentials stand, where a kubeconfig has some.
    pub authorisation: Option<watch::Receiver<Authorisation>>,
    /// The Services.
    pub routes: Option<watch::Receiver<RouteTable>>,
    /// The system's DNS.
    pub dns: DnsReport,
    /// The last answers of the cluster.
    pub stale: Option<Arc<StaleAnswers>>,
    /// Connections into the cluster.
    pub flows: Option<Arc<Flows>>,
    /// The packets of the link.
    pub packets: Option<Counts>,
    /// Where the destinations of proxies and forwards are.
    pub places: Option<Arc<SessionPlaces>>,
    /// The proxy.
    pub proxy: Option<ProxyFacts>,
    /// What answers questions about names.
    pub inquiry: Option<Arc<Inquiry>>,
    /// The hosts file.
    pub hosts: HostsReport,
    /// The IP routes, without the hosts among them.
    pub routing: RoutingReport,
    /// Hosts that are routed for a while: address, name, and when they go.
    pub host_routes: Vec<(IpAddr, String, Instant)>,
    /// Our lines in it.
    pub lines: Vec<HostsLineReport>,
    /// What was put back.
    pub repairs: Repairs,
    /// The steps done.
    pub steps: Vec<StepReport>,
    /// Where its log is.
    pub log: Option<String>,
    /// What another session has.
    pub withheld: Option<WithheldReport>,
}

/// A proxy, and what its clients have to know.
#[derive(Debug)]
pub struct ProxyFacts {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its password.
    pub password: Password,
}

/// What was put back, and what could not be.
#[derive(Debug, Default)]
pub struct Repairs {
    count: u64,
    last: VecDeque<Repair>,
    troubles: Vec<String>,
}

#[derive(Debug)]
struct Repair {
    what: String,
    at: Instant,
    unix_seconds: u64,
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
    pub fn new(identity: Identity, clock: Clock) -> Self {
        let followed = Followed {
            namespaces: identity.namespaces.clone(),
            trouble: None,
        };
        Self {
            followed: watch::Sender::new(followed),
            identity,
            start: clock.now(),
            clock,
            phase: watch::Sender::new(Phase::Running(State::Ready)),
            facts: Mutex::default(),
        }
    }

    /// Says how far the session is.
    pub fn set_phase(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }

    /// Says what the machine was brought in line with.
    pub fn set_followed(&self, followed: Followed) {
        self.followed.send_replace(followed);
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

    /// Writes down what came of holding the machine against what the session wants.
    pub fn note_verified(&self, repairs: Vec<String>, troubles: Vec<HostError>) {
        let at = self.clock.now();
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_seconds = since_1970.map_or(0, |time| time.as_secs());
        let (mut of_dns, mut of_hosts, mut of_routes) = (None, None, None);
        let mut words = Vec::new();
        for trouble in troubles {
            let text = trouble_words(&trouble);
            match trouble.kind() {
                Kind::Dns => of_dns = Some(text.clone()),
                Kind::Hosts => of_hosts = Some(text.clone()),
                Kind::Routes => of_routes = Some(text.clone()),
                Kind::Busy
                | Kind::Clash
                | Kind::Intent
                | Kind::Files
                | Kind::Link
                | Kind::Ended
                | Kind::Internal
                | Kind::Helper => {}
            }
            words.push(text);
        }
        let mut facts = self.facts.lock();
        for what in repairs {
            facts.repairs.count += 1;
            if facts.repairs.last.len() == REPAIRS {
                facts.repairs.last.pop_front();
            }
            facts.repairs.last.push_back(Repair {
                what,
                at,
                unix_seconds,
            });
        }
        facts.repairs.troubles = words;
        facts.dns.error = of_dns;
        if of_routes.is_some() {
            facts.routing.error = of_routes;
        }
        if of_hosts.is_some() {
            facts.hosts.error = of_hosts;
        }
    }

    /// Reports how the session stands.
    #[must_use]
    pub fn status(&self) -> StatusReport {
        let now = self.clock.now();
        let facts = self.facts.lock();
        let manager = facts.session.as_ref().map(|session| session.borrow());
        let manager_version = manager.as_ref().map(|one| one.manager_version.clone());
        let cluster_domain = manager.as_ref().map(|one| one.cluster_domain.clone());
        drop(manager);
        let tunnel = facts
            .tunnel
            .as_ref()
            .map(|tunnel| tunnel_report(&tunnel.borrow(), now));
        let phase = self.phase.borrow().clone();
        let (state, doing) = phase_words(&phase);
        let mut dns = facts.dns.clone();
        let followed = self.followed.borrow().clone();
        let mut kubernetes = Vec::new();
        if let Some(routes) = &facts.routes {
            let table = routes.borrow();
            dns.shadowed = shadowed(&followed.namespaces, &table);
            kubernetes = namespaces(&table);
        }
        let stale = facts.stale.as_ref().map(|stale| StaleReport {
            serving: tunnel.as_ref().is_some_and(|tunnel| !tunnel.up) && stale.kept(now) > 0,
            kept: stale.kept(now),
            answered: stale.given(),
        });
        let credentials = facts.authorisation.as_ref();
        StatusReport {
            tokens: facts
                .opened
                .as_ref()
                .and_then(|opened| tokens_report(*opened.borrow(), now)),
            credentials: credentials.map(|credentials| credentials_report(&credentials.borrow())),
            session: self.identity.session.clone(),
            pid: std::process::id(),
            state: state.to_owned(),
            doing: doing.map(str::to_owned),
            uptime_seconds: now.saturating_duration_since(self.start).as_secs(),
            tasks: tasks(),
            manager: self.identity.manager.clone(),
            skew: manager_version.as_deref().and_then(skew::describe),
            manager_version,
            client_version: skew::CLIENT.to_owned(),
            cluster_domain,
            namespaces: followed.namespaces,
            health: health::health(
                tunnel.as_ref(),
                &kubernetes,
                &dns,
                &facts.routing,
                &facts.hosts,
            ),
            routing: routing(&facts, now),
            tunnel,
            stale: stale.unwrap_or_default(),
            dns,
            hosts: facts.hosts.clone(),
            kubernetes,
            repairs: repairs(&facts.repairs, now),
            steps: facts.steps.clone(),
            context: self.identity.context.clone(),
            log: facts.log.clone(),
            flows: facts.flows.as_ref().map(|flows| flows.status()),
            packets: facts.packets.as_ref().map(Counts::status),
            proxy: facts.proxy.as_ref().map(|proxy| ProxyReport {
                address: proxy.address,
            }),
            withheld: facts.withheld.clone(),
        }
    }

    /// Reports what is in the hosts file.
    #[must_use]
    pub fn hosts(&self) -> HostsListReport {
        let facts = self.facts.lock();
        HostsListReport {
            session: self.identity.session.clone(),
            form: facts.hosts.form.clone(),
            lines: facts.lines.clone(),
            conflicts: facts.hosts.conflicts.clone(),
            error: facts.hosts.error.clone(),
        }
    }

    /// Changes the session's namespaces, and waits until the machine has followed.
    ///
    /// # Errors
    ///
    /// They are as they were; the failure says why.
    pub async fn change(&self, change: Change) -> Result<NamespacesReport, Failure> {
        let (changes, routes) = {
            let facts = self.facts.lock();
            (facts.changes.clone(), facts.routes.clone())
        };
        let (Some(changes), Some(mut routes)) = (changes, routes) else {
            return Err(Failure::message(
                Exit::Other,
                "the session is not connected yet",
            ));
        };
        let mut followed = self.followed.subscribe();
        let wanted = changes.make(change).await?;
        let is_there = |followed: &Followed| followed.namespaces == wanted;
        let trouble = match timeout(FOLLOW, followed.wait_for(is_there)).await {
            Ok(Ok(followed)) => followed.trouble.clone(),
            Ok(Err(_)) | Err(_) => {
                Some("DNS settings and hosts lines do not follow yet".to_owned())
            }
        };
        // What is not there by then comes later, and is told as it is.
        let settled = timeout(ROUTES, routes.wait_for(RouteTable::is_settled));
        drop(settled.await);
        let kubernetes = namespaces(&routes.borrow());
        Ok(NamespacesReport {
            session: self.identity.session.clone(),
            namespaces: wanted,
            kubernetes,
            trouble,
        })
    }

    /// Reports the Services.
    #[must_use]
    pub fn routes(&self) -> RoutesReport {
        let facts = self.facts.lock();
        let mut report = RoutesReport {
            session: self.identity.session.clone(),
            namespaces: Vec::new(),
            services: Vec::new(),
            routing: routing(&facts, self.clock.now()),
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
