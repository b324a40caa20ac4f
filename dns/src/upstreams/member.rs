//! One upstream of a set: the transport, what is known about it, and what is under way to it.
//!
//! Every exchange and probe goes through here, so that its end, whatever it is, tells something about
//! the upstream's health. What that means is decided in `health`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{debug, info};

use super::UpstreamStatus;
use super::board::Board;
use crate::flight::{Flights, Reply};
use crate::health::{Event, Health};
use crate::interpret::Kind;
use crate::loops::{Outgoing, Sending};
use crate::name::{Name, RecordType};
use crate::upstream::{ExchangeError, OutgoingQuery, Upstream, UpstreamSpec};

/// One upstream with what is learned about it and what is under way to it.
pub(crate) struct Member {
    id: u32,
    upstream: Arc<dyn Upstream>,
    health: Mutex<Health>,
    board: Arc<Board>,
    flights: Flights,
}

impl Member {
    pub(super) fn new(id: u32, upstream: Arc<dyn Upstream>, board: Arc<Board>) -> Arc<Self> {
        Arc::new(Self {
            id,
            upstream,
            health: Mutex::default(),
            board,
            flights: Flights::default(),
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn spec(&self) -> &UpstreamSpec {
        self.upstream.spec()
    }

    /// Asks the upstream, or joins whoever is asking it the same already.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        name: &Name,
        kind: Kind,
        deadline: Instant,
        sending: &Sending,
    ) -> Reply {
        self.flights.ask(self, name, kind, deadline, sending).await
    }

    /// Makes a question one that is known again when it comes back, until the result is dropped.
    pub(crate) fn prepare(
        &self,
        query: &mut OutgoingQuery,
        waiter: &Name,
        sending: &Sending,
    ) -> Outgoing {
        let keeps_case = self.upstream.keeps_case();
        sending
            .loops
            .send(query, waiter, self.spec(), keeps_case, sending.origin)
    }

    /// Asks the upstream by an exchange of its own, and learns from how it ends.
    pub(crate) async fn exchange(
        &self,
        query: &OutgoingQuery,
        deadline: Instant,
    ) -> Result<Vec<u8>, ExchangeError> {
        let exchange = Exchange::begin(self);
        let reply = self.upstream.exchange(query, deadline).await;
        exchange.end(reply.as_ref().err());
        reply
    }

    /// Asks for the root's name servers, which every resolver knows; any reply is a sign of life.
    pub(super) async fn probe(&self, patience: Duration) {
        let query = OutgoingQuery::new(Name::root(), RecordType::NS);
        let asked = Instant::now();
        match self.upstream.exchange(&query, asked + patience).await {
            Ok(_) => self.tell(Event::Replied { asked }),
            // Our own bounds say nothing about the upstream.
            Err(ExchangeError::Overloaded) => {}
            Err(error) => {
                debug!(upstream = %self.spec(), %error, "upstream probe failed");
                let why = error.in_full();
                self.tell(Event::Failed { asked, why });
            }
        }
    }

    /// Returns the window in which a negative waits for other upstreams, by this one's round trip.
    pub(crate) fn window(&self) -> Duration {
        self.health.lock().window()
    }

    /// Returns how long it may take before another upstream is asked beside it.
    pub(crate) fn patience(&self) -> Duration {
        self.health.lock().patience()
    }

    /// Says whether it is down, and somebody watches for its return.
    ///
    /// Where nobody does, nothing but queries would find out that it is back.
    pub(crate) fn is_avoided(&self) -> bool {
        self.board.is_watched() && self.health.lock().is_down()
    }

    pub(crate) fn is_looped_for(&self, name: &Name) -> bool {
        self.health.lock().is_looped_for(name)
    }

    /// Orders upstreams from the best to the worst: the doubtful ones last, else by round trip.
    pub(crate) fn rank(&self) -> (bool, Duration) {
        let health = self.health.lock();
        (health.is_doubtful(), health.rtt().unwrap_or_default())
    }

    pub(crate) fn status(&self) -> UpstreamStatus {
        let health = self.health.lock();
        UpstreamStatus {
            id: self.id,
            spec: self.spec().clone(),
            state: health.state(),
            fails: health.fails(),
            last_error: health.last_error().map(ToOwned::to_owned),
            rtt: health.rtt(),
            last_ok: health.last_reply(),
            looped_zones: health.looped_zones(),
        }
    }

    /// Takes in what happened, and passes on what follows from it.
    pub(super) fn tell(&self, event: Event) {
        let change = self.health.lock().apply(event, Instant::now());
        if change.went_down {
            info!(upstream = %self.spec(), "upstream is down");
        }
        if change.recovered {
            info!(upstream = %self.spec(), "upstream is back");
            self.board.recovered();
        }
        if change.visible {
            self.board.publish(self);
        }
        if change.wants_probe {
            self.board.call_prober();
        }
    }

    /// Returns the time before which no probe is sent, `None` if none ever was; nothing at all when none is wanted.
    pub(super) fn next_probe(&self) -> Option<Option<Instant>> {
        let health = self.health.lock();
        health.wants_probe().then(|| health.next_probe())
    }

    pub(super) fn probe_sent(&self, next: Instant) {
        self.health.lock().probe_sent(next);
    }

    #[cfg(test)]
    pub(crate) fn flights(&self) -> &Flights {
        &self.flights
    }
}

/// An exchange under way. Dropped before its end it was waited for in vain.
struct Exchange<'a> {
    member: &'a Member,
    asked: Instant,
    ended: bool,
}

impl<'a> Exchange<'a> {
    fn begin(member: &'a Member) -> Self {
        member.tell(Event::Asked);
        Self {
            member,
            asked: Instant::now(),
            ended: false,
        }
    }

    fn end(mut self, error: Option<&ExchangeError>) {
        self.ended = true;
        let asked = self.asked;
        match error {
            None => self.member.tell(Event::Replied { asked }),
            Some(ExchangeError::Timeout) => self.member.tell(Event::Unanswered { asked }),
            // Our own bounds say nothing about the upstream.
            Some(ExchangeError::Overloaded) => {}
            Some(error) => {
                let why = error.in_full();
                self.member.tell(Event::Failed { asked, why });
            }
        }
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let asked = self.asked;
            self.member.tell(Event::Unanswered { asked });
        }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member")
            .field("id", &self.id)
            .field("upstream", self.spec())
            .finish_non_exhaustive()
    }
}
