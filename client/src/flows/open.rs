//! Opening flows: a place among the session's, a connection, the manager's verdict.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kubebridge_proto::flow::{
    self, Attached, FailureKind, FlowId, How, Open, Protocol, carry_datagrams, verdict,
};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::connection::Connection;
use super::shared::{Held, Unanswered};
use super::tcp::Flow;
use super::{BoxTcpFlow, DatagramFlow, Failure, Flows, MOST_CONNECTIONS};
use crate::control::way::Place;

/// How long a flow waits for a connection: the deadline of a SYN (5 s) decides before.
const CONNECTION: Duration = Duration::from_secs(5);
/// How long the manager may take to answer: above its own dial timeout.
const VERDICT: Duration = Duration::from_secs(15);
/// How long it may take before its connection is doubted: a dial within a cluster is faster, and
/// one echo more costs nothing.
const DOUBT: Duration = Duration::from_secs(1);
/// How long a new session may take to become known after the manager has forgotten one.
const SESSION: Duration = Duration::from_secs(3);
/// Connections tried for one flow: a path that breaks takes all there are with it, and the one after
/// them is new.
const TRIES: usize = MOST_CONNECTIONS as usize + 1;
/// Datagrams: how long a flow may be idle.
const IDLE: Duration = Duration::from_secs(60);
/// The same for DNS and ICMP echo, which have nothing after the answer.
const IDLE_AFTER_ANSWER: Duration = Duration::from_secs(10);
/// DNS.
const DNS: u16 = 53;

/// A flow that the manager has opened.
struct Opened {
    open: Open,
    place: Place,
    stream: Attached,
    held: Held,
}

impl Flows {
    pub(super) async fn open_stream(&self, to: SocketAddr) -> Result<BoxTcpFlow, Failure> {
        let Opened {
            open,
            place,
            stream,
            held,
        } = self.open(Protocol::Tcp, to).await?;
        Ok(Box::new(Flow {
            open,
            place,
            stream,
            held,
        }))
    }

    pub(super) async fn open_datagrams(&self, to: SocketAddr) -> Result<DatagramFlow, Failure> {
        let opened = self.open(Protocol::Udp, to).await?;
        let idle = match to.port() {
            DNS => IDLE_AFTER_ANSWER,
            _ => IDLE,
        };
        Ok(self.carry(opened, idle))
    }

    pub(super) async fn open_echo(&self, to: IpAddr) -> Result<DatagramFlow, Failure> {
        let opened = self.open(Protocol::Icmp, SocketAddr::new(to, 0)).await?;
        Ok(self.carry(opened, IDLE_AFTER_ANSWER))
    }

    /// Carries datagrams until either side ends.
    fn carry(&self, opened: Opened, idle: Duration) -> DatagramFlow {
        let (flow, mut ends) = DatagramFlow::pair();
        let shutdown = self.shutdown.clone();
        self.carrying.spawn(async move {
            let Opened { stream, held, .. } = opened;
            let carrying = carry_datagrams(&mut ends, stream, idle, &held.entry.meter);
            let ended = tokio::select! {
                ended = carrying => ended,
                () = shutdown.cancelled() => return,
            };
            let counters = &held.shared.counters;
            counters.note_end(&ended);
            counters
                .dropped
                .add_many(held.entry.meter.dropped() + ends.0.dropped());
            if ended.how == How::Refused {
                ends.1.refuse();
            }
        });
        flow
    }

    async fn open(&self, protocol: Protocol, to: SocketAddr) -> Result<Opened, Failure> {
        let outcome = self.try_open(protocol, to).await;
        match &outcome {
            Ok(_) => self.shared.counters.opened.add(),
            Err(failure) => self.shared.counters.note_failure(failure),
        }
        outcome
    }

    async fn try_open(&self, protocol: Protocol, to: SocketAddr) -> Result<Opened, Failure> {
        let mut held = self.shared.admit(protocol)?;
        let mut deadline = Instant::now() + CONNECTION;
        for _ in 0..TRIES {
            let finding = self.shared.connection();
            let Ok(connection) = timeout_at(deadline, finding).await else {
                break;
            };
            held.put_on(Some(Arc::clone(&connection)));
            let session = self.shared.session.borrow().id.clone();
            let open = Open {
                session,
                flow: FlowId::new(rand::random()),
                protocol,
                destination: to,
                resume: None,
            };
            match self.ask(&connection, &open).await {
                Ok(stream) => {
                    return Ok(Opened {
                        open,
                        place: connection.place.clone(),
                        stream,
                        held,
                    });
                }
                // Behind a balancer it may be another manager's: the next one has to be ours.
                Err(Some(failure))
                    if failure.kind == FailureKind::Session && connection.place.is_unnamed() =>
                {
                    self.shared.put_aside(&connection);
                }
                Err(Some(failure)) if failure.kind == FailureKind::Session => {
                    if !self.wait_for_another_session(&open.session).await {
                        return Err(failure.into());
                    }
                }
                Err(Some(failure)) => return Err(failure.into()),
                // The connection is lost: nothing was opened that anybody uses.
                Err(None) => deadline = deadline.max(Instant::now() + DOUBT),
            }
        }
        Err(Failure::Down)
    }

    /// Whether the session was replaced by another within a moment.
    async fn wait_for_another_session(&self, known: &str) -> bool {
        let mut session = self.shared.session.clone();
        let waiting = session.wait_for(|session| session.id != known);
        matches!(timeout(SESSION, waiting).await, Ok(Ok(_)))
    }

    /// Asks for a flow; `None` when the connection was lost before the answer.
    async fn ask(
        &self,
        connection: &Connection,
        open: &Open,
    ) -> Result<Attached, Option<flow::Failure>> {
        let asking = self.shared.request(connection, open);
        let doubting = async {
            sleep(DOUBT).await;
            connection.doubt();
            std::future::pending::<()>().await;
        };
        let answered = tokio::select! {
            answered = timeout(VERDICT, asking) => answered,
            () = doubting => return Err(None),
        };
        match answered {
            Ok(Ok((response, stream))) => {
                verdict(&response)?;
                Ok(stream)
            }
            Ok(Err(Unanswered)) => Err(None),
            Err(_) => Err(Some(FailureKind::Timeout.into())),
        }
    }
}
