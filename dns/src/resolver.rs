//! The way of a query: check → access → cache → single flight → candidates → fan-out → settle → rewrite → cache → all waiters.
//!
//! This is the engine's only way in. It strings the decisions of the other modules together and owns
//! the tasks in which names are resolved, so that a client that goes away strands nobody.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use tracing::{Instrument, trace, trace_span};

use self::noticed::Noticed;
use self::stale::Asked;
use self::stats::{AtomicDuration, Counts};
use crate::access::{may_see, may_send_bare};
use crate::cache::{Cache, Dependencies, Entry, Key};
use crate::explain::{Event, Flight, Recording, Rule, Verdict, note};
use crate::fanout::{Fanout, Outcomes};
use crate::interpret::Kind;
use crate::message::{Checked, Query, check, error_reply};
use crate::name::{Name, RecordType, ResponseCode};
use crate::records::LocalRecords;
use crate::rewrite::{Resolution, data, no_data, no_name};
use crate::search::{Candidate, candidates, never_expanded};
use crate::settle::Settled;
use crate::upstream::Upstream;
use crate::upstreams::{self, Member, Upstreams};
use crate::view::View;

pub use self::asker::Asker;
pub use self::stale::StaleSettings;
pub use self::stats::Stats;
pub use crate::policy::FanoutPolicy;
pub use crate::settle::AnswerOrder;

mod asker;
mod at_hand;
mod explained;
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
            stale: None,
            prefetch: false,
        }
    }
}

impl Resolver {
    /// Makes a resolver; `local` are the records we hold ourselves.
    pub fn new(config: ResolverConfig, local: Arc<dyn LocalRecords>) -> Arc<Self> {
        let stop = CancellationToken::new();
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
            Checked::Query(query) => Some(self.reply(query, &asker.view, &None).await),
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
        self.engine.notice_changes();
    }

    /// Returns the upstreams.
    pub fn upstreams(&self) -> &Arc<Upstreams> {
        &self.engine.upstreams
    }

    async fn reply(&self, query: Query, view: &Arc<View>, recording: &Recording) -> Vec<u8> {
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
            None if query.rd => self.resolve(key, &query, view, recording).await,
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

    /// Resolves in a task of our own; `None` when there are too many already, or we are stopping.
    async fn resolve(
        &self,
        key: Key,
        query: &Query,
        view: &Arc<View>,
        recording: &Recording,
    ) -> Option<Arc<Entry>> {
        let Ok(permit) = Arc::clone(&self.waiting).try_acquire_owned() else {
            self.engine.counts.shed();
            note(recording, || Event::Shed);
            return None;
        };
        let asked = self.asked(key, query, view, recording);
        let resolving = async move {
            let _permit = permit;
            tokio::select! {
                entry = asked.make() => Some(entry),
                () = asked.stop.cancelled() => None,
            }
        };
        self.tasks
            .spawn(resolving.instrument(trace_span!("resolve")))
            .await
            .ok()?
    }

    /// Makes an answer anew in the background, if its time is nearly over and it is wanted.
    fn renew_if_due(
        &self,
        entry: &Arc<Entry>,
        now: Instant,
        question: impl FnOnce() -> (Key, Query, Arc<View>),
    ) {
        if !self.engine.prefetch || !entry.is_due(now) {
            return;
        }
        let Ok(permit) = Arc::clone(&self.renewals).try_acquire_owned() else {
            return entry.put_off();
        };
        self.engine.counts.renewed();
        let (key, query, view) = question();
        let (asked, entry) = (self.asked(key, &query, &view, &None), Arc::clone(entry));
        let renewing = async move {
            let _permit = permit;
            let cache = &asked.engine.cache;
            tokio::select! {
                () = cache.renew(&asked.key, &entry, || asked.renew(&entry)) => {}
                () = asked.stop.cancelled() => {}
            }
        };
        self.tasks.spawn(renewing.instrument(trace_span!("renew")));
    }

    fn asked(&self, key: Key, query: &Query, view: &Arc<View>, recording: &Recording) -> Asked {
        Asked {
            engine: Arc::clone(&self.engine),
            key,
            query: query.clone(),
            view: Arc::clone(view),
            recording: recording.clone(),
            tasks: self.tasks.clone(),
            stop: self.stop.clone(),
        }
    }
}

impl Engine {
    /// Resolves a query for everyone who waits for it.
    async fn lead(&self, query: &Query, view: &View, recording: &Recording) -> Entry {
        let candidates = candidates(&query.name, view);
        let (resolution, aliases) = match self.flights.try_acquire() {
            // Shed: not remembered, the next query may find room.
            Err(_) => {
                self.counts.shed();
                note(recording, || Event::Shed);
                (Resolution::failure(false), vec![])
            }
            Ok(_) if candidates.is_empty() => {
                note(recording, || Event::Verdict(Verdict::NothingToTry));
                (Resolution::empty(ResponseCode::REFUSED), vec![])
            }
            Ok(_flight) => {
                let (members, before) = (self.upstreams.members(), self.upstreams.epoch());
                let fanout = self.fanout(query, view, members, recording);
                let mut outcomes = fanout.run(&candidates).await;
                // A failure from before an upstream came back tells nothing about now.
                outcomes.keeps_failure &= self.upstreams.epoch() == before;
                let aliases = outcomes.aliases.clone();
                let passed_over = outcomes.verdict.passed_over;
                explained::note_outcomes(recording, &query.name, &candidates, &outcomes);
                let resolution = conclude(&query.name, &candidates, outcomes);
                explained::note_kept(recording, &resolution, passed_over);
                (resolution, aliases)
            }
        };
        trace!(name = %query.name, rtype = %query.rtype, code = %resolution.code, keep = resolution.keep, "resolved");
        finish(query, view, candidates, aliases, &resolution)
    }

    /// Forgets what was kept under upstreams that have changed since (K6, K12).
    fn notice_changes(&self) {
        let now = self.upstreams.epoch();
        if self.noticed.replaced.is_news(now.replaced) {
            self.cache.flush();
        }
        if self.noticed.recoveries.is_news(now.recoveries) {
            self.cache.forget_failures(Instant::now());
        }
    }

    /// Answers a query that asks for no recursion, if our own records alone can.
    async fn local_only(&self, query: &Query, view: &View) -> Option<Entry> {
        let candidates = candidates(&query.name, view);
        let outcomes = self
            .fanout(query, view, Arc::from([]), &None)
            .run(&candidates)
            .await;
        let aliases = outcomes.aliases.clone();
        let resolution = conclude(&query.name, &candidates, outcomes);
        (resolution.code != ResponseCode::SERVFAIL)
            .then(|| finish(query, view, candidates, aliases, &resolution))
    }

    fn fanout(
        &self,
        query: &Query,
        view: &View,
        members: Arc<[Arc<Member>]>,
        recording: &Recording,
    ) -> Fanout {
        let is_probe = query.name.is_root() && query.rtype == RecordType::NS;
        let total = if is_probe {
            self.total.get().min(PROBE_TOTAL)
        } else {
            self.total.get()
        };
        Fanout {
            members,
            local: Arc::clone(&self.local),
            cluster_domain: view.cluster_domain.clone(),
            kind: Kind {
                rtype: query.rtype,
                dnssec_ok: query.dnssec_ok(),
                checking_disabled: query.cd,
            },
            order: self.order,
            policy: self.policy,
            deadline: Instant::now() + total,
            spent: Arc::new(AtomicUsize::new(0)),
            recording: recording.clone(),
        }
    }
}

/// Turns the verdict into an answer under the asked name.
fn conclude(asked: &Name, candidates: &[Candidate], outcomes: Outcomes) -> Resolution {
    let Outcomes {
        verdict,
        finding,
        keeps_failure,
        reason,
        ..
    } = outcomes;
    match verdict.result {
        Settled::Data(spot) => data(asked, &candidates[spot.candidate], finding, &verdict),
        Settled::NoData(spot, ttl) => {
            no_data(asked, &candidates[spot.candidate], finding, ttl, &verdict)
        }
        Settled::NxDomain(spot, ttl) => no_name(asked, candidates, spot.candidate, finding, ttl),
        Settled::Failed => Resolution {
            reason,
            ..Resolution::failure(keeps_failure)
        },
    }
}

fn finish(
    query: &Query,
    view: &View,
    candidates: Vec<Candidate>,
    aliases: Vec<Name>,
    resolution: &Resolution,
) -> Entry {
    let tried = candidates
        .into_iter()
        .map(|candidate| candidate.name)
        .filter(|name| *name != query.name);
    let asked = std::iter::once(query.name.clone())
        .chain(tried)
        .chain(aliases);
    let dependencies = Dependencies::new(asked, &resolution.answer, &view.cluster_domain);
    Entry::new(query, resolution, dependencies, Instant::now())
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
