//! The routes of every namespace, and who is told when they change. Pure: no IO, `now` is given.
//!
//! One feeder per namespace (or one for all) calls [`Index::apply`], [`Index::delete`],
//! [`Index::reset`] and [`Index::set_state`]. Readers follow a namespace by a `watch` of its
//! [`Head`] and fetch what they miss with [`Index::since`], so that what is kept for a reader is
//! one revision however slow it is. A relist becomes one revision: no removal of a Service that
//! still exists is ever seen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use kubebridge_proto::routes::{NamespaceState, ServiceRoute};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use self::table::Table;

pub use self::table::{Changes, Head};
pub use self::terms::{Changed, Found, Scope, Served, ServiceKey};

mod table;
mod terms;

/// How long a deleted Service is known to be gone: longer than the 30 s `CoreDNS` may go on
/// answering for it from its cache, so that we never ask an upstream that has not heard yet.
pub const GONE_FOR: Duration = Duration::from_secs(60);

/// The most namespaces kept only because somebody asked for them while all are served. Twice what
/// a large cluster has; beyond it the ones nobody follows are dropped.
const MAX_IDLE_NAMESPACES: usize = 4096;

/// The least time between two looks for namespaces to drop: each goes over all of them.
const DROP_EVERY: Duration = Duration::from_secs(1);

/// The routes of every namespace.
#[derive(Debug)]
pub struct Index {
    served: Served,
    inner: Mutex<Inner>,
    names: watch::Sender<Arc<BTreeSet<String>>>,
}

#[derive(Debug)]
struct Inner {
    tables: BTreeMap<String, Table>,
    /// The state of namespaces not seen yet, while all are served.
    elsewhere: NamespaceState,
    pointers: BTreeMap<IpAddr, BTreeSet<ServiceKey>>,
    /// The revision a new table starts with, above those of all tables dropped.
    first_revision: u64,
    /// No look for tables to drop before this.
    next_drop: Option<Instant>,
}

/// How many namespaces and routes there are in one state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Total {
    /// Namespaces.
    pub namespaces: usize,
    /// Routes in them.
    pub routes: usize,
}

impl Index {
    /// Makes an index without routes.
    ///
    /// `first_revision` should be random: a client coming from another manager must not hold a
    /// revision that means something else here. It is above 0, which stands for no revision.
    #[must_use]
    pub fn new(served: Served, first_revision: u64) -> Self {
        let first_revision = first_revision.max(1);
        let mut tables = BTreeMap::new();
        if let Served::Namespaces(names) = &served {
            for name in names {
                tables.insert(
                    name.clone(),
                    Table::new(NamespaceState::Waiting, first_revision),
                );
            }
        }
        let elsewhere = match served {
            Served::All => NamespaceState::Waiting,
            Served::Nothing | Served::Namespaces(_) => NamespaceState::NoSource,
        };
        let names = watch::Sender::new(Arc::new(tables.keys().cloned().collect()));
        let inner = Mutex::new(Inner {
            tables,
            elsewhere,
            pointers: BTreeMap::new(),
            first_revision,
            next_drop: None,
        });
        Self {
            served,
            inner,
            names,
        }
    }

    /// Returns which namespaces are fed.
    #[must_use]
    pub fn served(&self) -> &Served {
        &self.served
    }

    /// Adds or replaces a Service; what changed.
    pub fn apply(&self, route: ServiceRoute) -> Vec<Changed> {
        if !self.served.covers(&route.namespace) {
            return Vec::new();
        }
        let mut inner = self.inner.lock();
        let key = ServiceKey::of(&route);
        let table = inner.table(&route.namespace);
        let Some(before) = table.upsert(route.clone()) else {
            return Vec::new();
        };
        table.publish();
        let first = before.is_none() && table.len() == 1;
        inner.repoint(&key, before.as_deref(), Some(&route));
        if first {
            self.publish_names(&inner);
        }
        vec![Changed::new(key, before.as_deref(), Some(&route))]
    }

    /// Removes a Service; what changed.
    pub fn delete(&self, namespace: &str, name: &str, now: Instant) -> Vec<Changed> {
        let mut inner = self.inner.lock();
        let Some(table) = inner.tables.get_mut(namespace) else {
            return Vec::new();
        };
        let Some(before) = table.remove(name, now) else {
            return Vec::new();
        };
        table.publish();
        let now_empty = table.is_empty();
        let key = ServiceKey::of(&before);
        inner.repoint(&key, Some(&before), None);
        if now_empty {
            inner.drop_idle(now);
            self.publish_names(&inner);
        }
        vec![Changed::new(key, Some(&before), None)]
    }

    /// Replaces all Services of a scope in one step, which is now synced; what changed.
    pub fn reset(&self, scope: &Scope, routes: Vec<ServiceRoute>, now: Instant) -> Vec<Changed> {
        let mut wanted: BTreeMap<String, BTreeMap<String, ServiceRoute>> = BTreeMap::new();
        for route in routes {
            let fits = match scope {
                Scope::Namespace(namespace) => route.namespace == *namespace,
                Scope::All => true,
            };
            if fits && self.served.covers(&route.namespace) {
                let of_namespace = wanted.entry(route.namespace.clone()).or_default();
                of_namespace.insert(route.name.clone(), route);
            }
        }
        let mut inner = self.inner.lock();
        if *scope == Scope::All && self.served == Served::All {
            inner.elsewhere = NamespaceState::Synced;
        }
        let mut namespaces: BTreeSet<String> = wanted.keys().cloned().collect();
        match scope {
            Scope::Namespace(namespace) => drop(namespaces.insert(namespace.clone())),
            Scope::All => {
                let covered = |name: &&String| self.served.covers(name);
                namespaces.extend(inner.tables.keys().filter(covered).cloned());
            }
        }
        let mut changed = Vec::new();
        for namespace in namespaces {
            let routes = wanted.remove(&namespace).unwrap_or_default();
            changed.extend(inner.replace(&namespace, routes, now));
        }
        self.publish_names(&inner);
        changed
    }

    /// Says where the namespaces of a scope stand; routes stay as they are.
    pub fn set_state(&self, scope: &Scope, state: &NamespaceState) {
        let mut inner = self.inner.lock();
        match scope {
            Scope::Namespace(namespace) => {
                if let Some(table) = inner.tables.get_mut(namespace) {
                    table.set_state(state.clone());
                    table.publish();
                }
            }
            Scope::All => {
                if self.served == Served::All {
                    inner.elsewhere = state.clone();
                }
                for (name, table) in &mut inner.tables {
                    if !self.served.covers(name) {
                        continue;
                    }
                    table.set_state(state.clone());
                    table.publish();
                }
            }
        }
    }

    /// Follows a namespace. One that is not served has the state [`NamespaceState::NoSource`].
    #[must_use]
    pub fn subscribe(&self, namespace: &str, now: Instant) -> watch::Receiver<Head> {
        let mut inner = self.inner.lock();
        inner.drop_idle(now);
        inner.table(namespace).subscribe()
    }

    /// Returns the next routes of a namespace by name, after a name, and whether they are the last.
    #[must_use]
    pub fn page(
        &self,
        namespace: &str,
        after: Option<&str>,
        most: usize,
    ) -> (Vec<Arc<ServiceRoute>>, bool) {
        let inner = self.inner.lock();
        match inner.tables.get(namespace) {
            Some(table) => table.page(after, most),
            None => (Vec::new(), true),
        }
    }

    /// Counts namespaces and routes by the word for the state of the namespace.
    #[must_use]
    pub fn totals(&self) -> BTreeMap<&'static str, Total> {
        let words = ["synced", "waiting", "forbidden", "no_source"];
        let mut totals = BTreeMap::from(words.map(|word| (word, Total::default())));
        for table in self.inner.lock().tables.values() {
            let word = match table.state() {
                NamespaceState::Synced => "synced",
                NamespaceState::Waiting => "waiting",
                NamespaceState::Forbidden { .. } => "forbidden",
                NamespaceState::NoSource => "no_source",
            };
            let total = totals.entry(word).or_default();
            total.namespaces += 1;
            total.routes += table.len();
        }
        totals
    }

    /// Returns what changed in a namespace since a revision, 0 for all, and at most that many
    /// routes at once.
    #[must_use]
    pub fn since(&self, namespace: &str, revision: u64, most: usize) -> Changes {
        let inner = self.inner.lock();
        match inner.tables.get(namespace) {
            Some(table) => table.since(revision, most),
            None => Changes::Nothing,
        }
    }

    /// Looks a Service up.
    #[must_use]
    pub fn lookup(&self, namespace: &str, name: &str, now: Instant) -> Found {
        let inner = self.inner.lock();
        match inner.tables.get(namespace) {
            Some(table) => table.lookup(name, now),
            None if inner.elsewhere == NamespaceState::Synced => Found::Unknown,
            None => Found::NotSynced,
        }
    }

    /// Returns the Services in synced namespaces that have a `ClusterIP`.
    #[must_use]
    pub fn pointers(&self, address: IpAddr) -> Vec<ServiceKey> {
        let inner = self.inner.lock();
        let synced = |key: &&ServiceKey| {
            inner.tables.get(&key.namespace).map(Table::state) == Some(NamespaceState::Synced)
        };
        let keys = inner.pointers.get(&address);
        keys.into_iter().flatten().filter(synced).cloned().collect()
    }

    /// Follows the names of the namespaces that have routes or are served by name.
    #[must_use]
    pub fn names(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.names.subscribe()
    }

    fn publish_names(&self, inner: &Inner) {
        let known = |(name, table): (&String, &Table)| {
            let named = matches!(&self.served, Served::Namespaces(set) if set.contains(name));
            (named || !table.is_empty()).then(|| name.clone())
        };
        let names: BTreeSet<String> = inner.tables.iter().filter_map(known).collect();
        self.names.send_if_modified(|current| {
            let changed = **current != names;
            if changed {
                *current = Arc::new(names);
            }
            changed
        });
    }
}

impl Inner {
    fn table(&mut self, namespace: &str) -> &mut Table {
        let (state, first_revision) = (&self.elsewhere, self.first_revision);
        self.tables
            .entry(namespace.to_owned())
            .or_insert_with(|| Table::new(state.clone(), first_revision))
    }

    fn replace(
        &mut self,
        namespace: &str,
        routes: BTreeMap<String, ServiceRoute>,
        now: Instant,
    ) -> Vec<Changed> {
        let table = self.table(namespace);
        table.set_state(NamespaceState::Synced);
        let replaced = table.replace(routes, now);
        table.publish();
        let mut changed = Vec::with_capacity(replaced.len());
        for (before, after) in replaced {
            let Some(route) = after.as_deref().or(before.as_deref()) else {
                continue;
            };
            let key = ServiceKey::of(route);
            self.repoint(&key, before.as_deref(), after.as_deref());
            changed.push(Changed::new(key, before.as_deref(), after.as_deref()));
        }
        changed
    }

    fn repoint(
        &mut self,
        key: &ServiceKey,
        before: Option<&ServiceRoute>,
        after: Option<&ServiceRoute>,
    ) {
        for ip in before.into_iter().flat_map(|route| &route.cluster_ips) {
            if let Some(keys) = self.pointers.get_mut(ip) {
                keys.remove(key);
                if keys.is_empty() {
                    self.pointers.remove(ip);
                }
            }
        }
        for ip in after.into_iter().flat_map(|route| &route.cluster_ips) {
            self.pointers.entry(*ip).or_default().insert(key.clone());
        }
    }

    fn drop_idle(&mut self, now: Instant) {
        let early = self.next_drop.is_some_and(|at| now < at);
        if self.tables.len() <= MAX_IDLE_NAMESPACES || early {
            return;
        }
        self.next_drop = Some(now + DROP_EVERY);
        let mut newest = self.first_revision;
        self.tables.retain(|_, table| {
            let idle = table.is_idle(now);
            if idle {
                newest = newest.max(table.revision());
            }
            !idle
        });
        // Who comes back with a revision of a dropped table must not find it in a later one.
        self.first_revision = newest + 1;
    }
}

#[cfg(test)]
mod tests;
