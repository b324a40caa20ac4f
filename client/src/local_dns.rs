//! The session's resolver: decides where a query goes, and answers when it goes nowhere.
//!
//! It keeps no cache: the manager has one for cluster names, the operating system for all others.
//! While the manager is out of reach, the cluster's last answers stand in ([`crate::stale`]).
//! Sockets, and what is done about packets in general, are `dns`'s server.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use kubebridge_dns::loops::Loops;
use kubebridge_dns::message::{self, Checked, Query};
use kubebridge_dns::name::ResponseCode;
use kubebridge_dns::server::{self, Handler, Limits, Transport};
use kubebridge_platform::Clock;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::control::exchange::{AskError, Exchange};
use crate::originals::Originals;
use crate::reachable::HostRoutes;
use crate::routes::RouteTable;
use crate::stale::StaleAnswers;
use crate::task::Essential;
use crate::zones::{Destination, Zones};

pub use explained::{Explained, ManagerSide, Source};

mod explained;

/// How long queries in flight may take when the resolver ends: nobody is sent to it any longer.
const DRAIN: Duration = Duration::from_millis(500);

/// Answers the queries of the operating system.
#[derive(Debug)]
pub struct LocalDns {
    /// Where names go.
    pub zones: watch::Receiver<Arc<Zones>>,
    /// The Services known.
    pub routes: watch::Receiver<RouteTable>,
    /// The way into the cluster.
    pub exchange: Exchange,
    /// The servers for everything else.
    pub originals: Arc<Originals>,
    /// The cluster's last answers.
    pub stale: Arc<StaleAnswers>,
    /// Where answered addresses outside the cluster's networks are told; `None` without routes.
    pub hosts: Option<HostRoutes>,
    /// What the age of answers is measured by.
    pub clock: Clock,
}

impl LocalDns {
    /// Answers one packet; `None` means to say nothing.
    pub async fn answer(&self, packet: Vec<u8>) -> Option<Vec<u8>> {
        let query = match message::check(&packet) {
            Checked::Query(query) => query,
            Checked::Reply(reply) => return Some(reply),
            Checked::Drop => return None,
        };
        if self.originals.came_back(&query) {
            return Some(Loops::reply(&query));
        }
        let destination = self
            .zones
            .borrow()
            .decide(&query.name, &self.routes.borrow());
        tracing::trace!(name = %query.name, kind = %query.rtype, ?destination, "query");
        match destination {
            Destination::Cluster => self.ask_cluster(packet, &query).await,
            Destination::Originals => self.originals.forward(&packet).await,
            Destination::NoSuchName => Some(message::error_reply(&query, ResponseCode::NXDOMAIN)),
            Destination::NoData => Some(message::error_reply(&query, ResponseCode::NOERROR)),
        }
    }

    /// Nothing outside our reach may keep an answer of the cluster, so its TTLs become 0, or follow
    /// an alias by itself, so that only the addresses at its end are given.
    async fn ask_cluster(&self, packet: Vec<u8>, query: &Query) -> Option<Vec<u8>> {
        let outcome = self.exchange.ask(packet).await;
        if let (Some(hosts), Ok(reply)) = (&self.hosts, &outcome) {
            hosts.admit(&query.name, reply, self.clock.now()).await;
        }
        self.take(outcome, query).map(|(reply, _)| reply)
    }

    /// Makes the answer out of what the cluster said, or did not say.
    fn take(&self, outcome: Result<Vec<u8>, AskError>, query: &Query) -> Option<(Vec<u8>, Source)> {
        match outcome {
            Ok(reply) => {
                let mut reply = message::flatten_addresses(reply, query);
                message::zero_ttls(&mut reply);
                self.stale.note(query, &reply, self.clock.now());
                Some((reply, Source::Manager))
            }
            Err(AskError::NotAQuery) => None,
            Err(
                error @ (AskError::TunnelDown
                | AskError::Timeout
                | AskError::Overloaded
                | AskError::Unavailable(_)),
            ) => {
                if let Some((reply, age)) = self.ask_memory(query, &error) {
                    tracing::debug!(name = %query.name, %error, "cluster name answered stale");
                    return Some((reply, Source::Stale { age }));
                }
                tracing::debug!(name = %query.name, %error, "cluster name not resolved");
                let failure = message::error_reply(query, ResponseCode::SERVFAIL);
                Some((failure, Source::Session))
            }
        }
    }

    /// The cluster's last answer and its age, while the manager is out of reach.
    fn ask_memory(&self, query: &Query, error: &AskError) -> Option<(Vec<u8>, Duration)> {
        if *error != AskError::TunnelDown && !self.exchange.is_down() {
            return None;
        }
        let service = self.zones.borrow().service_of(&query.name);
        let table = self.routes.borrow();
        self.stale
            .answer(query, service.as_ref(), &table, self.clock.now())
    }
}

impl Handler for LocalDns {
    async fn handle(
        &self,
        packet: Vec<u8>,
        _peer: SocketAddr,
        _transport: Transport,
    ) -> Option<Vec<u8>> {
        self.answer(packet).await
    }
}

/// Keeps an eye on the original servers.
#[derive(Debug)]
pub struct Watching(Essential);

impl Watching {
    /// Starts watching.
    #[must_use]
    pub fn start(originals: Arc<Originals>) -> Self {
        let shutdown = CancellationToken::new();
        let stop = shutdown.clone();
        let task = async move { originals.run(stop).await };
        let task = tokio::spawn(task.instrument(tracing::info_span!("originals")));
        Self(Essential::new("originals", shutdown, task))
    }

    /// Waits until watching ends by itself, which it should not.
    pub async fn ended(&mut self) {
        self.0.ended().await;
    }

    /// Ends watching.
    pub async fn stop(self) {
        self.0.stop(DRAIN).await;
    }
}

/// A resolver that is serving on sockets: the demo's, which has no link.
#[derive(Debug)]
pub struct Serving(Essential);

impl Serving {
    /// Starts serving on a pair of sockets.
    #[must_use]
    pub fn start(resolver: Arc<LocalDns>, udp: UdpSocket, tcp: TcpListener) -> Self {
        let shutdown = CancellationToken::new();
        let limits = Limits {
            drain: DRAIN,
            ..Limits::default()
        };
        let originals = Arc::clone(&resolver.originals);
        let serving = server::serve(vec![udp], vec![tcp], resolver, limits, shutdown.clone());
        let stop = shutdown.clone();
        let task = async move {
            // Ends before serving does, which answers first what is in flight.
            let watching = originals.run(stop).then(|()| pending::<()>());
            tokio::select! {
                ended = serving => if let Err(error) = ended {
                    tracing::error!(%error, "resolver failed");
                },
                () = watching => {}
            }
        };
        let task = tokio::spawn(task.instrument(tracing::info_span!("resolver")));
        Self(Essential::new("resolver", shutdown, task))
    }

    /// Waits until serving ends by itself, which it should not.
    pub async fn ended(&mut self) {
        self.0.ended().await;
    }

    /// Ends serving once what is in flight is answered, or after a moment.
    pub async fn stop(self) {
        self.0.stop(2 * DRAIN).await;
    }
}

#[cfg(test)]
pub(crate) mod tests;
