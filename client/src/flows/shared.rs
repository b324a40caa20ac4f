//! What a session's flows and the keeper of its data connections share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use kubebridge_proto::flow::{Attached, Budget, Meter, Open, Protocol};
use kubebridge_proto::session::SessionInfo;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::Failure;
use super::abrupt::Abrupt;
use super::connection::Connection;
use super::counters::Counters;
use super::plan::{Seen, least_loaded};
use crate::control::way::{Place, Way};

/// The most flows of a session where the manager names no number.
const FLOWS: usize = 1024;
/// What a session's flows may hold beyond the least windows.
const MEMORY: usize = 64 * 1024 * 1024;
/// Attempts that fail before a manager that is not the session's any longer counts as gone.
const GONE: u32 = 2;
/// What a flow has to move between two looks to be busy: a quarter of a second of 1 Mbit/s. One of
/// four has little more of a connection that loses a packet in a hundred.
const BUSY: u64 = 32 * 1024;

/// Shared by all parts of a session's data plane.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) way: Arc<dyn Way>,
    pub(super) session: watch::Receiver<SessionInfo>,
    /// The most connections to one place.
    pub(super) most: usize,
    pub(super) memory: Budget,
    pub(super) counters: Counters,
    pub(super) abrupt: Abrupt,
    /// Connections that have echoed.
    pub(super) ready: watch::Sender<Vec<Arc<Connection>>>,
    flows: Mutex<BTreeMap<u64, Arc<Entry>>>,
    next: AtomicU64,
    /// Places that flows wait for a connection to.
    waiting: Mutex<BTreeMap<Place, usize>>,
    /// Places where the last attempts to connect failed, and how many.
    unreachable: Mutex<BTreeMap<Place, u32>>,
    /// Rung when a flow waits or begins.
    pub(super) demand: Notify,
    /// Whether anybody ever wanted a connection.
    is_wanted: AtomicBool,
}

/// A request for a flow got no answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unanswered;

/// An open flow as the keeper sees it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) meter: Meter,
    /// Whether it can go on over another connection, which datagrams cannot.
    can_move: bool,
    connection: AtomicU64,
    /// What its meter said at the last look, and whether it moved much before that.
    looked: AtomicU64,
    is_busy: AtomicBool,
    moving: Mutex<Moving>,
}

#[derive(Debug, Default)]
struct Moving {
    is_asked: bool,
    waker: Option<Waker>,
}

impl Entry {
    /// Asks the flow to go on over another connection.
    fn ask_to_move(&self) {
        let mut moving = self.moving.lock();
        moving.is_asked = true;
        if let Some(waker) = moving.waker.take() {
            waker.wake();
        }
    }

    /// Resolves when the flow shall go on over another connection.
    pub(super) fn poll_move(&self, context: &Context<'_>) -> Poll<()> {
        let mut moving = self.moving.lock();
        if std::mem::take(&mut moving.is_asked) {
            return Poll::Ready(());
        }
        match &mut moving.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

impl Shared {
    pub(super) fn new(
        way: Arc<dyn Way>,
        session: watch::Receiver<SessionInfo>,
        most: usize,
    ) -> Self {
        Self {
            way,
            session,
            most,
            memory: Budget::new(MEMORY),
            counters: Counters::default(),
            abrupt: Abrupt::default(),
            ready: watch::Sender::new(Vec::new()),
            flows: Mutex::default(),
            next: AtomicU64::new(0),
            waiting: Mutex::default(),
            unreachable: Mutex::default(),
            demand: Notify::new(),
            is_wanted: AtomicBool::new(false),
        }
    }

    /// Has the keeper open the first connection, if there is none yet.
    pub(super) fn want(&self) {
        if !self.is_wanted.swap(true, Ordering::Relaxed) {
            self.demand.notify_one();
        }
    }

    /// Whether anybody ever wanted a connection.
    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed)
    }

    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns how many flows are open.
    pub(super) fn open_flows(&self) -> usize {
        self.flows.lock().len()
    }

    /// Takes a place for one more flow.
    pub(super) fn admit(self: &Arc<Self>, protocol: Protocol) -> Result<Held, Failure> {
        let most = self.session.borrow().limits.flows;
        let most = most.map_or(FLOWS, |most| most as usize);
        let id = self.number();
        let entry = Arc::new(Entry {
            meter: Meter::default(),
            can_move: protocol == Protocol::Tcp,
            connection: AtomicU64::new(u64::MAX),
            looked: AtomicU64::new(0),
            is_busy: AtomicBool::new(false),
            moving: Mutex::default(),
        });
        let mut flows = self.flows.lock();
        if flows.len() >= most {
            return Err(Failure::Full);
        }
        flows.insert(id, Arc::clone(&entry));
        if flows.len() == 1 {
            // The keeper looks at flows only while there are any.
            self.demand.notify_one();
        }
        Ok(Held {
            shared: Arc::clone(self),
            id,
            entry,
            on: None,
        })
    }

    /// Returns the least loaded connection to a place.
    pub(super) fn choose(&self, place: &Place) -> Option<Arc<Connection>> {
        let ready = self.ready.borrow();
        let seen: Vec<_> = ready.iter().map(|one| Self::see(one)).collect();
        let id = least_loaded(&seen, place)?;
        ready.iter().find(|one| one.id == id).cloned()
    }

    pub(super) fn note_reachable(&self, place: &Place) {
        self.unreachable.lock().remove(place);
    }

    pub(super) fn note_unreachable(&self, place: Place) {
        *self.unreachable.lock().entry(place).or_default() += 1;
        // Who waits for it looks again.
        self.ready.send_modify(|_| {});
    }

    /// Whether a manager is gone: new flows go to another, and this one takes no connection.
    fn is_gone(&self, place: &Place) -> bool {
        let failed = self.unreachable.lock().get(place).copied();
        failed.unwrap_or_default() >= GONE && *place != self.way.place()
    }

    /// Sends a request for a flow. A connection that takes none is no longer chosen: it is dead, or
    /// its manager is ending and lets the flows it has go on.
    pub(super) async fn request(
        &self,
        connection: &Connection,
        open: &Open,
    ) -> Result<(http::Response<()>, Attached), Unanswered> {
        let request = open.request().map_err(|_| Unanswered)?;
        connection.request(request).await.map_err(|error| {
            tracing::debug!(%error, "no verdict on a flow");
            if !error.is_reset() {
                self.ready
                    .send_modify(|ready| ready.retain(|one| one.id != connection.id));
            }
            Unanswered
        })
    }

    /// Has no further flows go over a connection, whose manager does not know the session; those it
    /// has go on.
    pub(super) fn put_aside(&self, connection: &Connection) {
        self.ready
            .send_modify(|ready| ready.retain(|one| one.id != connection.id));
        connection.put_aside();
    }

    /// Waits for a connection to where a flow lives; `None` when that manager is gone.
    pub(super) async fn connection_to(&self, place: &Place) -> Option<Arc<Connection>> {
        let mut changes = self.ready.subscribe();
        loop {
            changes.mark_unchanged();
            if let Some(connection) = self.choose(place) {
                return Some(connection);
            }
            if self.is_gone(place) {
                return None;
            }
            self.wait_for(place.clone(), &mut changes).await;
        }
    }

    /// Waits for a connection to where new flows go.
    pub(super) async fn connection(&self) -> Arc<Connection> {
        let mut changes = self.ready.subscribe();
        loop {
            changes.mark_unchanged();
            let home = self.way.place();
            if let Some(connection) = self.choose(&home) {
                return connection;
            }
            self.wait_for(home, &mut changes).await;
        }
    }

    async fn wait_for(&self, place: Place, changes: &mut watch::Receiver<Vec<Arc<Connection>>>) {
        let _waiting = Waiting::new(self, place);
        self.want();
        self.demand.notify_one();
        // The sender is ours: it never goes.
        let _ = changes.changed().await;
    }

    /// Returns the places that flows wait for.
    pub(super) fn waiting(&self) -> Vec<Place> {
        self.waiting.lock().keys().cloned().collect()
    }

    /// Looks at a connection.
    pub(super) fn see(connection: &Connection) -> Seen {
        Seen {
            id: connection.id,
            place: connection.place.clone(),
            is_ready: true,
            flows: connection.flows.load(Ordering::Relaxed),
            busy: connection.busy.load(Ordering::Relaxed),
            quiet: connection.quiet(),
            is_lossy: connection.is_lossy(),
        }
    }

    /// Looks which flows are busy.
    pub(super) fn look(&self) {
        let mut busy: BTreeMap<u64, usize> = BTreeMap::new();
        for entry in self.flows.lock().values() {
            let moved = entry.meter.sent() + entry.meter.received();
            let before = entry.looked.swap(moved, Ordering::Relaxed);
            let is_busy = moved - before >= BUSY;
            entry.is_busy.store(is_busy, Ordering::Relaxed);
            if is_busy {
                let on = entry.connection.load(Ordering::Relaxed);
                *busy.entry(on).or_default() += 1;
            }
        }
        for connection in self.ready.borrow().iter() {
            let count = busy.get(&connection.id).copied().unwrap_or_default();
            connection.busy.store(count, Ordering::Relaxed);
        }
    }

    /// Has one busy flow of a connection go on over another.
    pub(super) fn move_one(&self, from: u64) {
        let flows = self.flows.lock();
        let entry = flows.values().find(|entry| {
            entry.can_move
                && entry.is_busy.load(Ordering::Relaxed)
                && entry.connection.load(Ordering::Relaxed) == from
        });
        if let Some(entry) = entry {
            entry.ask_to_move();
            // It counts as busy again after the next look, wherever it is then.
            entry.is_busy.store(false, Ordering::Relaxed);
            for connection in self.ready.borrow().iter().filter(|one| one.id == from) {
                connection.busy.fetch_sub(1, Ordering::Relaxed);
            }
            self.counters.moved.add();
        }
    }
}

/// A flow's place among the session's flows, and on a connection.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) shared: Arc<Shared>,
    id: u64,
    pub(super) entry: Arc<Entry>,
    on: Option<Arc<Connection>>,
}

impl Held {
    /// Puts the flow on a connection, off the one before.
    pub(super) fn put_on(&mut self, connection: Option<Arc<Connection>>) {
        if let Some(before) = self.on.take() {
            before.note_left();
        }
        let id = connection.as_ref().map_or(u64::MAX, |on| on.id);
        self.entry.connection.store(id, Ordering::Relaxed);
        if let Some(on) = &connection {
            on.flows.fetch_add(1, Ordering::Relaxed);
        }
        self.on = connection;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.put_on(None);
        self.shared.flows.lock().remove(&self.id);
    }
}

/// Says that a flow waits for a connection, as long as it does.
struct Waiting<'a> {
    shared: &'a Shared,
    place: Place,
}

impl<'a> Waiting<'a> {
    fn new(shared: &'a Shared, place: Place) -> Self {
        *shared.waiting.lock().entry(place.clone()).or_default() += 1;
        Self { shared, place }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.shared.waiting.lock();
        if let Some(count) = waiting.get_mut(&self.place) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.place);
            }
        }
    }
}
