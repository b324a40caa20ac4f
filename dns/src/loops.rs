//! Queries that come back to us, and the upstreams that send them back.
//!
//! A query is known again by where it began (an option of ours), by the spelling it was sent in, by
//! the address it comes from, or because it is a probe. It is answered SERVFAIL at once. Whether an
//! upstream leads back to us for a whole zone is found out by probes (`loops/prober.rs`); then it is
//! left out there. Nothing here ends the process, and nothing here is remembered as an answer.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use self::casing::{is_mixed, tagged};
use self::in_flight::{InFlight, Key, Sign};
use self::looped::Looped;
use self::prober::Event;
use self::probes::{Probes, Target};
use crate::message::{ExtendedError, Origin, Query, error_reply_saying};
use crate::name::{Name, ResponseCode};
use crate::upstream::{OutgoingQuery, Protocol, UpstreamSpec};
use crate::upstreams::{Member, Upstreams};

pub use self::own::OwnAddresses;

mod casing;
mod in_flight;
mod looped;
mod own;
mod prober;
mod probes;
mod schedule;

/// How many of our processes a query may pass. A laptop, a manager and another cluster's are three.
const MOST_HOPS: u8 = 4;
/// Tellings to the prober that may wait: more say nothing new.
const MOST_EVENTS: usize = 64;

/// What is known about loops in one process, shared by all that ask and answer in it.
pub struct Loops {
    /// Tells this process from all others, to other parts of ours.
    instance: u64,
    /// Questions on their way to upstreams.
    in_flight: InFlight,
    probes: Probes,
    looped: Mutex<Looped>,
    upstreams: RwLock<Option<Arc<Upstreams>>>,
    addresses: RwLock<OwnAddresses>,
    /// Upstreams, zones or addresses are others than before.
    changed: Notify,
    events: mpsc::Sender<Event>,
    /// Waits for the prober.
    told: Mutex<Option<mpsc::Receiver<Event>>>,
}

/// How a query was recognised as one that came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// Its option says that it began here.
    Origin,
    /// Its option says that it passed too many of our processes.
    Hops,
    /// It is spelled as one on its way.
    Tag,
    /// It comes from the server to which the same question is on its way.
    Source,
    /// It is a probe of ours.
    Probe,
}

/// A query on its way; dropping it tells that its exchange has ended.
pub(crate) struct Outgoing {
    loops: Arc<Loops>,
    key: Key,
    /// Nothing when there was no room for it.
    number: Option<u64>,
}

/// What a resolution tells its upstream queries about loops.
#[derive(Debug, Clone)]
pub(crate) struct Sending {
    pub(crate) loops: Arc<Loops>,
    /// Where the query that is resolved began, if another part of ours sent it.
    pub(crate) origin: Option<Origin>,
}

impl Loops {
    /// Knows nothing yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let (events, told) = mpsc::channel(MOST_EVENTS);
        Arc::new(Self {
            instance: rand::random(),
            in_flight: InFlight::default(),
            probes: Probes::default(),
            looped: Mutex::default(),
            upstreams: RwLock::new(None),
            addresses: RwLock::default(),
            changed: Notify::new(),
            events,
            told: Mutex::new(Some(told)),
        })
    }

    /// Names the upstreams that are looked after. Called again when the set was replaced.
    pub fn look_after(&self, upstreams: &Arc<Upstreams>) {
        *self.upstreams.write() = Some(Arc::clone(upstreams));
        self.settle();
    }

    /// Replaces what is known of the addresses that lead to us; nothing happens when it is the same.
    pub fn set_addresses(&self, addresses: OwnAddresses) {
        if *self.addresses.read() != addresses {
            *self.addresses.write() = addresses;
            self.settle();
        }
    }

    /// Replaces the zones below the root that may be routed in another way than the rest.
    pub fn set_zones(&self, zones: &[Name]) {
        let Some(gone) = self.looped.lock().set_zones(zones) else {
            return;
        };
        // Nobody looks after these any more, so nothing may stay left out for them.
        for member in self.members().iter() {
            for zone in &gone {
                mark(&self.upstreams, member.id(), zone, false);
            }
        }
        self.settle();
    }

    /// Has everything probed again, as after a change of routes.
    pub fn probe_again(&self) {
        self.changed.notify_one();
    }

    /// Tells the upstreams what is known about them, and the prober that something changed.
    fn settle(&self) {
        let members = self.members();
        let specs: BTreeSet<_> = members.iter().map(|member| member.spec().clone()).collect();
        let addresses = self.addresses.read();
        let own = specs.iter().filter(|spec| addresses.include(spec.address));
        let mut looped = self.looped.lock();
        for upstream in looped.set_own(own.cloned().collect()) {
            tracing::warn!(%upstream, "upstream is this process itself, left out");
        }
        looped.keep(&specs);
        for member in members.iter() {
            for zone in looped.zones() {
                let verdict = looped.verdict(member.spec(), &zone);
                mark(
                    &self.upstreams,
                    member.id(),
                    &zone,
                    verdict.unwrap_or_default(),
                );
            }
        }
        drop(looped);
        self.changed.notify_one();
    }

    /// Notes what a probe showed, and tells the upstream.
    fn note(&self, target: &Arc<Target>, leads_back: bool) {
        let Target { upstream, zone } = &**target;
        let mut looped = self.looped.lock();
        if !looped.has_zone(zone) {
            // It went while the probe was under way.
            return;
        }
        let news = looped.note(target, leads_back);
        drop(looped);
        match (news, leads_back) {
            (true, true) => {
                tracing::warn!(%upstream, %zone, "upstream leads back to us, left out for this zone");
            }
            (true, false) => {
                tracing::info!(%upstream, %zone, "upstream leads back to us no longer");
            }
            (false, _) => {}
        }
        for member in self
            .members()
            .iter()
            .filter(|member| member.spec() == upstream)
        {
            mark(&self.upstreams, member.id(), zone, leads_back);
        }
    }

    fn members(&self) -> Arc<[Arc<Member>]> {
        let upstreams = self.upstreams.read();
        upstreams
            .as_ref()
            .map_or_else(|| Arc::from([]), |set| set.members())
    }

    /// Says whether a query that came in is one of ours that came back.
    pub fn judge(
        &self,
        query: &Query,
        origin: Option<Origin>,
        from: Option<SocketAddr>,
    ) -> Option<Seen> {
        let seen = self.recognise(query, origin, from)?;
        tracing::debug!(name = %query.name, rtype = %query.rtype, ?seen, "query came back");
        Some(seen)
    }

    fn recognise(
        &self,
        query: &Query,
        origin: Option<Origin>,
        from: Option<SocketAddr>,
    ) -> Option<Seen> {
        let now = Instant::now();
        if let Some(probe) = self.probes.find(&query.name, now) {
            self.tell(Event::Seen(probe));
            return Some(Seen::Probe);
        }
        let is_ours = |origin: Origin| origin.instance == self.instance;
        let by_option = match origin {
            Some(origin) if is_ours(origin) => Some(Seen::Origin),
            Some(origin) if origin.hops >= MOST_HOPS => Some(Seen::Hops),
            Some(_) | None => None,
        };
        let spelled = is_mixed(query.name.as_wire());
        let from = from.filter(|_| self.in_flight.has_unspelled());
        if by_option.is_none() && !spelled && from.is_none() {
            return None;
        }
        let key = Key::new(&query.name, query.rtype);
        if by_option.is_some() {
            let upstream = self.in_flight.see(&key, Sign::Other, now);
            self.tell(Event::Suspect(upstream, query.name.clone()));
            return by_option;
        }
        let by_spelling = || {
            let seen = self.in_flight.see(&key, Sign::Spelling(&query.name), now);
            seen.map(|upstream| (upstream, Seen::Tag))
        };
        let by_address = || {
            let seen = self.in_flight.see(&key, Sign::Address(from?.ip()), now);
            seen.map(|upstream| (upstream, Seen::Source))
        };
        let found = spelled.then(by_spelling).flatten();
        let (upstream, seen) = found.or_else(by_address)?;
        self.tell(Event::Suspect(Some(upstream), query.name.clone()));
        Some(seen)
    }

    /// Answers a query that came back. Never NXDOMAIN, which would be remembered on its way.
    #[must_use]
    pub fn reply(query: &Query) -> Vec<u8> {
        error_reply_saying(query, ResponseCode::SERVFAIL, Some(ExtendedError::LOOP))
    }

    /// Prepares a question for an upstream so that it is recognised if it comes back: gives it a
    /// spelling of its own where that says something, and enters it until the result is dropped.
    pub(crate) fn send(
        self: &Arc<Self>,
        query: &mut OutgoingQuery,
        waiter: &Name,
        upstream: &UpstreamSpec,
        keeps_case: bool,
        origin: Option<Origin>,
    ) -> Outgoing {
        let now = Instant::now();
        // None of our parts serves anything but plain DNS.
        if upstream.protocol == Protocol::Do53 {
            query.origin = Some(self.origin(origin));
        }
        let key = Key::new(&query.name, query.rtype);
        let tag = keeps_case
            .then(|| tagged(&query.name, waiter, &mut rand::rng()))
            .flatten();
        let number = self
            .in_flight
            .begin(&key, tag.clone(), upstream.clone(), now);
        if let Some(tag) = tag.filter(|_| number.is_some()) {
            query.name = tag;
            query.exact_case = true;
        }
        Outgoing {
            loops: Arc::clone(self),
            key,
            number,
        }
    }

    /// Gives what a query that is sent on tells about its beginning.
    fn origin(&self, of: Option<Origin>) -> Origin {
        match of {
            Some(origin) => Origin {
                hops: origin.hops.saturating_add(1),
                ..origin
            },
            None => Origin {
                instance: self.instance,
                hops: 1,
                probe: false,
            },
        }
    }

    fn tell(&self, event: Event) {
        // A full queue holds the same many times over: the prober looks at each pair once.
        let _ = self.events.try_send(event);
    }
}

impl Outgoing {
    /// Says whether the query has come back to us.
    pub(crate) fn came_back(&self) -> bool {
        let came_back = |number| self.loops.in_flight.came_back(&self.key, number);
        self.number.is_some_and(came_back)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.loops.in_flight.end(&self.key, number, Instant::now());
        }
    }
}

fn mark(upstreams: &RwLock<Option<Arc<Upstreams>>>, id: u32, zone: &Name, leads_back: bool) {
    if let Some(upstreams) = &*upstreams.read() {
        // One that is gone need not know.
        let _ = if leads_back {
            upstreams.mark_looped(id, zone)
        } else {
            upstreams.clear_looped(id, zone)
        };
    }
}

impl std::fmt::Debug for Loops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loops")
            .field("looped", &self.looped.lock())
            .finish_non_exhaustive()
    }
}
