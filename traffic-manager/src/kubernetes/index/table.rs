//! The routes of one namespace with a bounded log of what changed, for [`super::Index`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use kubebridge_proto::routes::{NamespaceState, ServiceRoute};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Found, GONE_FOR};

/// How many changes are remembered: a reader further behind gets a snapshot. A rollout touches
/// hundreds of Services, and a snapshot of 5,000 costs a hundred pages, so 1,024 keeps deltas the rule
/// at some 30 KB a namespace.
const LOG_LENGTH: usize = 1024;

/// Where a namespace stands; cheap to compare, what changed is fetched apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The revision of the table.
    pub revision: u64,
    /// The state of the namespace.
    pub state: NamespaceState,
}

/// What a reader misses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Changes {
    /// Nothing.
    Nothing,
    /// A few changes on top of what it has. What is newer than the revision may show already, and
    /// is told again on top of it.
    Delta {
        /// The revision afterwards; not the newest where that is too much at once.
        revision: u64,
        /// New and changed routes.
        upserts: Vec<Arc<ServiceRoute>>,
        /// Names of routes that are gone.
        deletes: Vec<String>,
    },
    /// Too much to tell, or nothing is known of the reader's revision: the whole table is to be
    /// read page by page, and then what changed since this revision.
    Snapshot {
        /// The revision of the table.
        revision: u64,
    },
}

/// A route before and after; at least one is there.
pub(super) type Replaced = (Option<Arc<ServiceRoute>>, Option<Arc<ServiceRoute>>);

#[derive(Debug)]
pub(super) struct Table {
    routes: BTreeMap<String, Arc<ServiceRoute>>,
    /// When each recently deleted Service went away.
    gone: BTreeMap<String, Instant>,
    /// Revision and name of the last changes, oldest first.
    log: VecDeque<(u64, String)>,
    /// The oldest revision the log can lead on from.
    log_from: u64,
    head: Head,
    sender: watch::Sender<Head>,
}

impl Table {
    pub(super) fn new(state: NamespaceState, revision: u64) -> Self {
        let head = Head { revision, state };
        Self {
            routes: BTreeMap::new(),
            gone: BTreeMap::new(),
            log: VecDeque::new(),
            log_from: revision,
            sender: watch::Sender::new(head.clone()),
            head,
        }
    }

    /// Adds or replaces a route: `None` when that changes nothing, else what was there before.
    pub(super) fn upsert(&mut self, route: ServiceRoute) -> Option<Option<Arc<ServiceRoute>>> {
        if self
            .routes
            .get(&route.name)
            .is_some_and(|before| **before == route)
        {
            return None;
        }
        self.head.revision += 1;
        let name = route.name.clone();
        self.gone.remove(&name);
        let before = self.routes.insert(name.clone(), Arc::new(route));
        self.log_change(name);
        Some(before)
    }

    /// Removes a route and says what was there.
    pub(super) fn remove(&mut self, name: &str, now: Instant) -> Option<Arc<ServiceRoute>> {
        let before = self.routes.remove(name)?;
        self.head.revision += 1;
        self.bury(name.to_owned(), now);
        self.log_change(name.to_owned());
        Some(before)
    }

    /// Replaces all routes under one revision and says what differs.
    pub(super) fn replace(
        &mut self,
        mut wanted: BTreeMap<String, ServiceRoute>,
        now: Instant,
    ) -> Vec<Replaced> {
        let mut names: BTreeSet<String> = self.routes.keys().cloned().collect();
        names.extend(wanted.keys().cloned());
        let mut replaced = Vec::new();
        for name in names {
            let before = self.routes.get(&name).cloned();
            let after = wanted.remove(&name);
            if before.as_deref() == after.as_ref() {
                continue;
            }
            if replaced.is_empty() {
                self.head.revision += 1;
            }
            let after = after.map(Arc::new);
            match &after {
                Some(route) => {
                    self.gone.remove(&name);
                    self.routes.insert(name.clone(), Arc::clone(route));
                }
                None => {
                    self.routes.remove(&name);
                    self.bury(name.clone(), now);
                }
            }
            self.log_change(name);
            replaced.push((before, after));
        }
        replaced
    }

    pub(super) fn state(&self) -> NamespaceState {
        self.head.state.clone()
    }

    pub(super) fn set_state(&mut self, state: NamespaceState) {
        self.head.state = state;
    }

    /// Tells the readers.
    pub(super) fn publish(&self) {
        self.sender.send_if_modified(|current| {
            let changed = *current != self.head;
            if changed {
                current.clone_from(&self.head);
            }
            changed
        });
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Head> {
        self.sender.subscribe()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.routes.len()
    }

    pub(super) fn revision(&self) -> u64 {
        self.head.revision
    }

    /// Tells whether nothing would be lost without the table.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let forgotten = |at: &Instant| now.duration_since(*at) >= GONE_FOR;
        self.routes.is_empty()
            && self.gone.values().all(forgotten)
            && self.sender.receiver_count() == 0
    }

    pub(super) fn page(&self, after: Option<&str>, most: usize) -> (Vec<Arc<ServiceRoute>>, bool) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = self.routes.range::<str, _>((start, Bound::Unbounded));
        let routes = rest
            .by_ref()
            .take(most)
            .map(|(_, route)| Arc::clone(route))
            .collect();
        (routes, rest.next().is_none())
    }

    /// Tells what changed since a revision, at most this many routes at once.
    pub(super) fn since(&self, revision: u64, most: usize) -> Changes {
        let current = self.head.revision;
        if revision == current {
            return Changes::Nothing;
        }
        if revision < self.log_from || revision > current {
            return Changes::Snapshot { revision: current };
        }
        let Some((upto, names)) = self.changed_since(revision, most) else {
            return Changes::Snapshot { revision: current };
        };
        let mut upserts = Vec::new();
        let mut deletes = Vec::new();
        for name in names {
            match self.routes.get(name) {
                Some(route) => upserts.push(Arc::clone(route)),
                None => deletes.push(name.clone()),
            }
        }
        Changes::Delta {
            revision: upto,
            upserts,
            deletes,
        }
    }

    /// The names in the log after a revision, and up to which; `None` when the next revision alone
    /// has too many. Part of one would be a silent gap.
    fn changed_since(&self, revision: u64, most: usize) -> Option<(u64, BTreeSet<&String>)> {
        let newer = self.log.partition_point(|(at, _)| *at <= revision);
        let mut rest = self.log.range(newer..).peekable();
        let (mut seen, mut names) = (BTreeSet::new(), Vec::new());
        let mut fits = None;
        while let Some((at, name)) = rest.next() {
            if seen.insert(name) {
                names.push(name);
            }
            if names.len() > most {
                break;
            }
            if rest.peek().is_none_or(|(next, _)| next != at) {
                fits = Some((*at, names.len()));
            }
        }
        let (upto, count) = fits?;
        Some((upto, names.into_iter().take(count).collect()))
    }

    pub(super) fn lookup(&self, name: &str, now: Instant) -> Found {
        if self.head.state != NamespaceState::Synced {
            return Found::NotSynced;
        }
        if let Some(route) = self.routes.get(name) {
            return Found::Route(Arc::clone(route));
        }
        match self.gone.get(name) {
            Some(at) if now.duration_since(*at) < GONE_FOR => Found::Gone,
            Some(_) | None => Found::Unknown,
        }
    }

    fn bury(&mut self, name: String, now: Instant) {
        self.gone.retain(|_, at| now.duration_since(*at) < GONE_FOR);
        self.gone.insert(name, now);
    }

    fn log_change(&mut self, name: String) {
        self.log.push_back((self.head.revision, name));
        while self.log.len() > LOG_LENGTH {
            // All changes of one revision go together: half of them would be a silent gap.
            if let Some((revision, _)) = self.log.pop_front() {
                self.log_from = revision;
            }
        }
    }
}
