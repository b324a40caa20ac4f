//! The way of a query: check → access → cache → single flight → candidates → fan-out → settle → rewrite → cache → all waiters.
//!
//! This is the engine's only way in. It strings the decisions of the other modules together.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use self::noticed::Noticed;
use self::stats::{AtomicDuration, Counts};
use crate::access::{may_see, may_send_bare};
use crate::cache::{Cache, Dependencies, Entry, Key};
use crate::explain::{Event, Flight, Recording, Rule, note};
use crate::loops::Loops;
use crate::message::{Checked, Origin, Query, check, error_reply};
use crate::name::{Name, ResponseCode};
use crate::records::LocalRecords;
use crate::search::never_expanded;
use crate::upstream::Upstream;
use crate::upstreams::{self, Upstreams};
use crate::view::View;

pub use self::asker::Asker;
pub use self::stale::StaleSettings;
pub use self::stats::Stats;
pub use crate::policy::FanoutPolicy;
pub use crate::settle::AnswerOrder;

mod asked;
mod asker;
mod at_hand;
mod explained;
mod leading;
mod noticed;
mod special;
mod stale;
mod stats;
#[cfg(test)]
mod tests;

/// No query is answered later than this, whatever is configured: stub resolvers ask again after 5 s.
pub const LONGEST_TOTAL: Duration = Duration::from_millis(4500);
/// The most for `. NS`, by which DNS servers in front of us ask whether we live: CoreDNS waits one second
/// and takes any answer for life, so silent upstreams of ours must not make us look dead.
const PROBE_TOTAL: Duration = Duration::from_millis(500);
/// The total deadline when the source names none: two attempts of one second.
const DEFAULT_TOTAL: Duration = Duration::from_secs(2);
/// About 30,000 cached answers of the usual size.
const DEFAULT_CACHE_BYTES: usize = 16 << 20;
/// Enough for every Service of a large cluster in several types and views.
const DEFAULT_CACHE_ENTRIES: usize = 50_000;
/// Resolutions under way at once: 1,000 new names a second, all silent, for two seconds; some 30 MB with many candidates.
const DEFAULT_IN_FLIGHT: usize = 2048;
/// Queries that wait for a resolution, their own or another's: a task and a packet each.
const MOST_WAITING: usize = 16_384;
/// Answers made anew at once before their time is over: a few per upstream and round trip, and never
/// more than a small part of the resolutions under way.
const MOST_RENEWALS: usize = 64;

/// What a resolver is made of.
#[derive(Clone)]
pub struct ResolverConfig {
    /// The upstreams. Who made the set drives [`Upstreams::run`].
    pub upstreams: Arc<Upstreams>,
    /// The time a query may take in all, at most [`LONGEST_TOTAL`].
    pub total: Duration,
    /// Which candidate wins.
    pub answer_order: AnswerOrder,
    /// How the upstreams are asked.
    pub fanout: FanoutPolicy,
    /// The most bytes the cache holds.
    pub cache_bytes: usize,
    /// The most answers the cache holds.
    pub cache_entries: usize,
    /// The most resolutions under way at once; queries for more are answered SERVFAIL.
    pub in_flight_limit: usize,
    /// What is known about queries that come back. Who made it drives [`Loops::run`].
    pub loops: Arc<Loops>,
    /// Whether and how answers are given whose time is over, when no upstream replies.
    pub stale: Option<StaleSettings>,
    /// Whether answers that are asked for again and again are made anew before their time is over.
    pub prefetch: bool,
}

/// Answers queries.
pub struct Resolver {
    engine: Arc<Engine>,
    waiting: Arc<Semaphore>,
    renewals: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends the tasks when the resolver goes.
    _stop_on_drop: DropGuard,
}

/// What the tasks of a resolver share.
struct Engine {
    cache: Cache,
    local: Arc<dyn LocalRecords>,
    upstreams: Arc<Upstreams>,
    /// The changes of the upstreams that the cache knows of.
    noticed: Noticed,
    flights: Semaphore,
    total: AtomicDuration,
    counts: Counts,
    order: AnswerOrder,
    policy: FanoutPolicy,
    loops: Arc<Loops>,
    stale: Option<StaleSettings>,
    prefetch: bool,
}

impl ResolverConfig {
    /// Makes a configuration with the defaults of design §3 and a set of these upstreams.
    pub fn new(upstreams: Vec<Arc<dyn Upstream>>) -> Self {
        Self::of(Upstreams::new(upstreams, upstreams::Settings::default()))
    }

    /// Makes a configuration with the defaults of design §3 and a set that others share.
    pub fn of(upstreams: Arc<Upstreams>) -> Self {
        Self {
            upstreams,
            total: DEFAULT_TOTAL,
            answer_order: AnswerOrder::Search,
            fanout: FanoutPolicy::All,
            cache_bytes: DEFAULT_CACHE_BYTES,
            cache_entries: DEFAULT_CACHE_ENTRIES,
            in_flight_limit: DEFAULT_IN_FLIGHT,
            loops: Loops::new(),
            stale: None,
            prefetch: false,
        }
    }
}

impl Resolver {
    /// Makes a resolver; `local` are the records we hold ourselves.
    pub fn new(config: ResolverConfig, local: Arc<dyn LocalRecords>) -> Arc<Self> {
        let stop = CancellationToken::new();
        config.loops.look_after(&config.upstreams);
        let engine = Engine {
            cache: Cache::new(config.cache_bytes, config.cache_entries),
            local,
            noticed: Noticed::default(),
            upstreams: config.upstreams,
            flights: Semaphore::new(config.in_flight_limit.min(Semaphore::MAX_PERMITS)),
            total: AtomicDuration::new(config.total.min(LONGEST_TOTAL)),
            counts: Counts::default(),
            order: config.answer_order,
            policy: config.fanout,
            loops: config.loops,
            stale: config.stale,
            prefetch: config.prefetch,
        };
        Arc::new(Self {
            engine: Arc::new(engine),
            waiting: Arc::new(Semaphore::new(MOST_WAITING)),
            renewals: Arc::new(Semaphore::new(MOST_RENEWALS)),
            tasks: TaskTracker::new(),
            _stop_on_drop: stop.clone().drop_guard(),
            stop,
        })
    }

    /// Answers a packet with a whole, untruncated reply; `None` says nothing.
    pub async fn answer(self: &Arc<Self>, packet: &[u8], asker: &Asker) -> Option<Vec<u8>> {
        match check(packet) {
            Checked::Query(query) => Some(self.judged(packet, query, asker, &None).await),
            Checked::Reply(reply) => Some(reply),
            Checked::Drop => None,
        }
    }

    /// Forgets every answer, in all views, that could depend on `name` or on names below it: data, negatives and failures.
    ///
    /// Called when a Service changes, with its full name; and with the reverse name of an address that appears or goes.
    pub fn purge(&self, name: &Name) {
        self.engine.cache.purge(name);
    }

    /// Forgets every answer.
    pub fn flush(&self) {
        self.engine.cache.flush();
    }

    /// Replaces the upstreams and forgets every answer of the old ones.
    pub fn set_upstreams(&self, upstreams: Vec<Arc<dyn Upstream>>) {
        self.engine.upstreams.replace(upstreams);
        self.loops().look_after(self.upstreams());
        self.engine.notice_changes();
    }

    /// Returns the upstreams.
    pub fn upstreams(&self) -> &Arc<Upstreams> {
        &self.engine.upstreams
    }

    /// Returns what is known about queries that come back.
    pub fn loops(&self) -> &Arc<Loops> {
        &self.engine.loops
    }

    /// Answers a query, unless it is one of ours that came back.
    async fn judged(
        &self,
        packet: &[u8],
        query: Query,
        asker: &Asker,
        recording: &Recording,
    ) -> Vec<u8> {
        let origin = Origin::of_query(packet);
        if self.loops().judge(&query, origin, asker.address).is_some() {
            return Loops::reply(&query);
        }
        self.reply(query, &asker.view, origin, recording).await
    }

    async fn reply(
        &self,
        query: Query,
        view: &Arc<View>,
        origin: Option<Origin>,
        recording: &Recording,
    ) -> Vec<u8> {
        let now = Instant::now();
        if let Some(resolution) = special::answer(&query, view) {
            note(recording, || Event::Rule {
                name: query.name.clone(),
                rule: Rule::Special,
            });
            return Entry::new(&query, &resolution, Dependencies::default(), now)
                .reply(&query, now);
        }
        let shared = never_expanded(&query.name, view);
        explained::note_way(recording, &query.name, view);
        if !may_see(view, &query.name) || shared && !may_send_bare(view, &query.name) {
            return error_reply(&query, ResponseCode::REFUSED);
        }
        self.engine.notice_changes();
        let key = Key::new(&query, (!shared).then_some(view.id));
        let cached = self.engine.look_up(&key, now, recording);
        let entry = match cached {
            Some(entry) => {
                self.renew_if_due(&entry, now, || (key, query.clone(), Arc::clone(view)));
                Some(entry)
            }
            None if query.rd => {
                let key = match origin {
                    // It may be on its way back to where a query of ours waits for it, so it waits for none.
                    Some(origin) => Key::of_other_process(&query, origin.instance),
                    None => key,
                };
                let asked = self.asked(key, &query, view, origin, recording);
                self.resolve(asked).await
            }
            None => {
                note(recording, || Event::Flight(Flight::OwnRecordsOnly));
                self.engine.local_only(&query, view).await.map(Arc::new)
            }
        };
        let Some(entry) = entry else {
            let code = if query.rd {
                ResponseCode::SERVFAIL
            } else {
                ResponseCode::REFUSED
            };
            return error_reply(&query, code);
        };
        // Shared answers may have been made for a view that sees more.
        if !entry
            .dependencies()
            .shown
            .iter()
            .all(|name| may_see(view, name))
        {
            note(recording, || Event::Withheld);
            return error_reply(&query, ResponseCode::REFUSED);
        }
        entry.reply(&query, Instant::now())
    }
}

impl std::fmt::Debug for ResolverConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResolverConfig")
            .field("upstreams", &self.upstreams)
            .field("total", &self.total)
            .field("answer_order", &self.answer_order)
            .field("fanout", &self.fanout)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Resolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resolver")
            .field("cache", &self.engine.cache)
            .finish_non_exhaustive()
    }
}
