//! The open flows: how many there may be, and how another stream finds the one it goes on with.
//!
//! Pure but for a lock: `now` is given, nothing waits here. A flow that is over leaves behind how
//! far it had come, for a laptop that lost its connection in the last moment.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use kubebridge_proto::flow::FlowId;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::again::Handover;
use super::rate::Rate;
use crate::sessions::MAX_SESSIONS;

/// How long a flow without a stream, or the end of one, is kept for a laptop that comes back.
pub(super) const PARKED: Duration = Duration::from_secs(30);

/// The most ends that are kept: those of the flows a busy pod has in a second, some 3 MB. Who
/// comes later than that hears that the flow is gone.
const LATE: usize = 20_000;

/// How many flows there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) of_session: usize,
    pub(super) of_pod: usize,
}

/// Why there is no room for a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The session has too many.
    Session,
    /// All sessions together have.
    Pod,
    /// The session dials too often.
    Rate,
    /// There is one of this name.
    Name,
}

impl Full {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Session => "too many flows of this session",
            Self::Pod => "too many flows of all sessions",
            Self::Rate => "too many dials a second",
            Self::Name => "there is a flow of this name",
        }
    }
}

#[derive(Debug)]
pub(super) struct Table {
    limits: Limits,
    inner: Mutex<Inner>,
}

type Key = (Arc<str>, FlowId);

#[derive(Debug, Default)]
struct Inner {
    flows: BTreeMap<Key, Entry>,
    open: usize,
    sessions: BTreeMap<Arc<str>, Dialled>,
    late: VecDeque<(Instant, Key)>,
}

#[derive(Debug)]
enum Entry {
    Open(Arc<Handover>),
    /// How far a flow that is over had come.
    Over(u64),
}

#[derive(Debug)]
struct Dialled {
    open: usize,
    rate: Rate,
}

/// The place of an open flow, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    table: Arc<Table>,
    key: Key,
    pub(super) handover: Arc<Handover>,
    reached: Option<u64>,
}

/// What there is of a flow that somebody wants to go on with.
#[derive(Debug)]
pub(super) enum Known {
    Open(Arc<Handover>),
    Over(u64),
}

impl Table {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            inner: Mutex::default(),
        }
    }

    /// Counts the open flows.
    pub(super) fn open(&self) -> usize {
        self.inner.lock().open
    }

    /// Counts a dial of a session that makes no flow.
    pub(super) fn dials(&self, session: &str, now: Instant) -> Result<(), Full> {
        let mut inner = self.inner.lock();
        let fits = inner.dialled(session.into(), now).rate.take(now);
        fits.then_some(()).ok_or(Full::Rate)
    }

    /// Makes room for a flow.
    pub(super) fn admit(
        self: &Arc<Self>,
        session: &str,
        flow: FlowId,
        now: Instant,
    ) -> Result<Slot, Full> {
        let mut inner = self.inner.lock();
        inner.forget_late(now);
        let session: Arc<str> = session.into();
        let of_pod = inner.open;
        let dialled = inner.dialled(Arc::clone(&session), now);
        let of_session = dialled.open;
        // A flow that is turned away was no dial.
        if of_session >= self.limits.of_session {
            return Err(Full::Session);
        }
        if of_pod >= self.limits.of_pod {
            return Err(Full::Pod);
        }
        if !dialled.rate.take(now) {
            return Err(Full::Rate);
        }
        let key = (session, flow);
        if inner.flows.contains_key(&key) {
            return Err(Full::Name);
        }
        let handover = Arc::new(Handover::default());
        let entry = Entry::Open(Arc::clone(&handover));
        inner.dialled(Arc::clone(&key.0), now).open += 1;
        inner.flows.insert(key.clone(), entry);
        inner.open += 1;
        Ok(Slot {
            table: Arc::clone(self),
            key,
            handover,
            reached: None,
        })
    }

    /// Finds a flow to go on with.
    pub(super) fn find(&self, session: &str, flow: FlowId, now: Instant) -> Option<Known> {
        let mut inner = self.inner.lock();
        inner.forget_late(now);
        Some(match inner.flows.get(&(session.into(), flow))? {
            Entry::Open(handover) => Known::Open(Arc::clone(handover)),
            Entry::Over(reached) => Known::Over(*reached),
        })
    }
}

impl Slot {
    /// Remembers for a while how far the flow had come.
    pub(super) fn leave(&mut self, reached: u64) {
        self.reached = Some(reached);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut inner = self.table.inner.lock();
        inner.flows.remove(&self.key);
        inner.open -= 1;
        if let Some(dialled) = inner.sessions.get_mut(&self.key.0) {
            dialled.open -= 1;
        }
        if let Some(reached) = self.reached
            && inner.late.len() < LATE
        {
            inner.late.push_back((now + PARKED, self.key.clone()));
            inner.flows.insert(self.key.clone(), Entry::Over(reached));
        }
    }
}

impl Inner {
    fn dialled(&mut self, session: Arc<str>, now: Instant) -> &mut Dialled {
        if self.sessions.len() > 2 * MAX_SESSIONS {
            let is_used = |dialled: &Dialled| dialled.open > 0 || !dialled.rate.is_full(now);
            self.sessions.retain(|_, dialled| is_used(dialled));
        }
        self.sessions.entry(session).or_insert_with(|| Dialled {
            open: 0,
            rate: Rate::new(now),
        })
    }

    fn forget_late(&mut self, now: Instant) {
        while let Some((until, _)) = self.late.front()
            && *until <= now
            && let Some((_, key)) = self.late.pop_front()
        {
            // A name that is used again by then is not ours to remove.
            if let Some(Entry::Over(_)) = self.flows.get(&key) {
                self.flows.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        of_session: 2,
        of_pod: 3,
    };

    fn flow(number: u8) -> FlowId {
        FlowId::new([number; 16])
    }

    fn admit(table: &Arc<Table>, session: &str, number: u8) -> Result<Slot, Full> {
        table.admit(session, flow(number), Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_and_the_pod_have_so_many_flows_and_no_more() {
        let table = Arc::new(Table::new(LIMITS));
        let first = admit(&table, "a", 1).unwrap();
        let _second = admit(&table, "a", 2).unwrap();
        assert_eq!(admit(&table, "a", 3).unwrap_err(), Full::Session);
        let _third = admit(&table, "b", 3).unwrap();
        assert_eq!(admit(&table, "b", 4).unwrap_err(), Full::Pod);
        drop(first);
        assert_eq!(table.open(), 2);
        assert_eq!(admit(&table, "b", 3).unwrap_err(), Full::Name);
        let _again = admit(&table, "b", 4).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_flow_is_found_by_its_own_session_alone() {
        let table = Arc::new(Table::new(LIMITS));
        let slot = admit(&table, "a", 1).unwrap();
        let now = Instant::now();
        assert!(matches!(
            table.find("a", flow(1), now),
            Some(Known::Open(_))
        ));
        assert!(table.find("b", flow(1), now).is_none());
        drop(slot);
        assert!(table.find("a", flow(1), now).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_flow_is_remembered_for_half_a_minute() {
        let table = Arc::new(Table::new(LIMITS));
        let mut slot = admit(&table, "a", 1).unwrap();
        slot.leave(77);
        drop(slot);
        assert_eq!(table.open(), 0);
        let start = Instant::now();
        let at = |seconds| table.find("a", flow(1), start + Duration::from_secs(seconds));
        assert!(matches!(at(29), Some(Known::Over(77))));
        assert!(at(30).is_none());
        assert!(table.inner.lock().flows.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_kept_of_sessions_that_are_over_is_bounded() {
        let table = Arc::new(Table::new(LIMITS));
        for number in 0..5 * MAX_SESSIONS {
            tokio::time::advance(Duration::from_millis(1)).await;
            drop(admit(&table, &number.to_string(), 1).unwrap());
        }
        assert!(table.inner.lock().sessions.len() <= 2 * MAX_SESSIONS + 1);
    }
}
