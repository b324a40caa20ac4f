//! The Services of the session's namespaces, put together from the manager's route stream.
//!
//! [`RouteTable`] is pure: frames go in, and it says what to do. Reading the stream is
//! [`crate::control`]'s; what the table means for the machine is [`crate::apply`]'s.

use std::collections::BTreeMap;

use kubebridge_proto::routes::{NamespaceState, RouteUpdate, ServiceKind, ServiceRoute};

use crate::control::namespaces::{Lost, Namespaces};

/// What is known about the Services of the session's namespaces.
///
/// Namespaces stay what they were while the manager is away: a new snapshot replaces the old one
/// as a whole, so that what disappeared in between is withdrawn then.
#[derive(Debug, Default)]
pub struct RouteTable {
    namespaces: BTreeMap<String, NamespaceRoutes>,
}

/// What is known about the Services of one namespace.
#[derive(Debug, Default)]
pub struct NamespaceRoutes {
    revision: u64,
    state: Option<NamespaceState>,
    services: BTreeMap<String, ServiceRoute>,
    /// Pages of a snapshot that is not complete yet, and its revision.
    pages: BTreeMap<String, ServiceRoute>,
    pages_revision: u64,
    /// A gap was found; changes mean nothing until the snapshot asked for is there.
    awaits_snapshot: bool,
    /// Why the session has to do without it.
    lost: Option<Lost>,
}

/// What a frame led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merged {
    /// Nothing that can be seen changed.
    Unchanged,
    /// Services or the state of the namespace changed.
    Changed,
    /// A change is missing: the namespace has to be asked for afresh.
    Gap,
}

impl RouteTable {
    /// Makes the empty table of the wanted namespaces.
    #[must_use]
    pub fn new(namespaces: &[String]) -> Self {
        let empty = |name: &String| (name.clone(), NamespaceRoutes::default());
        Self {
            namespaces: namespaces.iter().map(empty).collect(),
        }
    }

    /// Makes the table one of these namespaces: new ones are empty, others go, and of those that
    /// are lost nothing stays.
    pub fn cover(&mut self, namespaces: &Namespaces) {
        let wanted = namespaces.wanted();
        self.namespaces.retain(|name, _| wanted.contains(name));
        for name in wanted {
            let lost = namespaces.lost().get(name);
            let routes = self.namespaces.entry(name.clone()).or_default();
            if routes.lost.as_ref() != lost {
                *routes = NamespaceRoutes {
                    lost: lost.cloned(),
                    ..NamespaceRoutes::default()
                };
            }
        }
    }

    /// Returns the namespaces by name.
    pub fn namespaces(&self) -> impl Iterator<Item = (&str, &NamespaceRoutes)> {
        self.namespaces
            .iter()
            .map(|(name, routes)| (name.as_str(), routes))
    }

    /// Finds a Service by lower-case name and namespace.
    #[must_use]
    pub fn service(&self, namespace: &str, name: &str) -> Option<&ServiceRoute> {
        self.namespaces.get(namespace)?.services.get(name)
    }

    /// Returns the Services of a namespace by name.
    pub fn services(&self, namespace: &str) -> impl Iterator<Item = &ServiceRoute> {
        self.namespaces
            .get(namespace)
            .into_iter()
            .flat_map(|routes| routes.services.values())
    }

    /// Whether the Services of a namespace were ever complete; of one that is lost there are none.
    #[must_use]
    pub fn is_known(&self, namespace: &str) -> bool {
        self.namespaces
            .get(namespace)
            .is_some_and(|routes| routes.revision != 0 || routes.lost.is_some())
    }

    /// Whether the Services of a namespace are complete and followed.
    #[must_use]
    pub fn is_synced(&self, namespace: &str) -> bool {
        self.namespaces.get(namespace).is_some_and(|routes| {
            routes.revision != 0 && routes.state == Some(NamespaceState::Synced)
        })
    }

    /// Whether every namespace has said where it stands, and sent what it has.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.namespaces.values().all(NamespaceRoutes::is_settled)
    }

    /// Forgets half-received and awaited snapshots: the stream they come on is gone.
    pub fn forget_partial(&mut self) {
        for routes in self.namespaces.values_mut() {
            routes.pages.clear();
            routes.awaits_snapshot = false;
        }
    }

    /// Takes a frame in.
    pub fn merge(&mut self, update: RouteUpdate) -> Merged {
        let wanted = self.namespaces.get_mut(update.namespace());
        let Some(routes) = wanted.filter(|routes| routes.lost.is_none()) else {
            // Not asked for, or not any longer.
            return Merged::Unchanged;
        };
        match update {
            RouteUpdate::State { state, .. } => routes.set_state(state),
            RouteUpdate::Page {
                revision,
                routes: page,
                last,
                ..
            } => routes.add_page(revision, page, last),
            RouteUpdate::Delta {
                base_revision,
                revision,
                upserts,
                deletes,
                ..
            } if base_revision == routes.revision && routes.revision != 0 => {
                routes.change(revision, upserts, &deletes)
            }
            RouteUpdate::Delta { .. } => routes.note_gap(),
        }
    }
}

impl NamespaceRoutes {
    /// Returns the revision of the last complete state; 0 when there is none.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns what the manager said about the namespace; `None` before it said anything.
    #[must_use]
    pub fn state(&self) -> Option<&NamespaceState> {
        self.state.as_ref()
    }

    /// Returns why the session has to do without the namespace.
    #[must_use]
    pub fn lost(&self) -> Option<&Lost> {
        self.lost.as_ref()
    }

    /// Returns the number of Services.
    #[must_use]
    pub fn len(&self) -> usize {
        self.services.len()
    }

    /// Whether there are no Services.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    fn is_settled(&self) -> bool {
        match self.state {
            _ if self.lost.is_some() => true,
            None => false,
            Some(NamespaceState::Synced) => self.revision != 0,
            Some(
                NamespaceState::Waiting
                | NamespaceState::Forbidden { .. }
                | NamespaceState::NoSource,
            ) => true,
        }
    }

    fn set_state(&mut self, state: NamespaceState) -> Merged {
        if self.state.as_ref() == Some(&state) {
            return Merged::Unchanged;
        }
        self.state = Some(state);
        Merged::Changed
    }

    fn add_page(&mut self, revision: u64, page: Vec<ServiceRoute>, last: bool) -> Merged {
        if self.pages_revision != revision {
            // A newer snapshot took the place of one that was not finished.
            self.pages.clear();
            self.pages_revision = revision;
        }
        let named = page.into_iter().map(|route| (route.name.clone(), route));
        self.pages.extend(named);
        if !last {
            return Merged::Unchanged;
        }
        self.services = std::mem::take(&mut self.pages);
        self.revision = revision;
        self.awaits_snapshot = false;
        Merged::Changed
    }

    /// One request for a snapshot is enough, however many changes come before it.
    fn note_gap(&mut self) -> Merged {
        if self.awaits_snapshot {
            return Merged::Unchanged;
        }
        self.awaits_snapshot = true;
        Merged::Gap
    }

    fn change(&mut self, revision: u64, upserts: Vec<ServiceRoute>, deletes: &[String]) -> Merged {
        for name in deletes {
            self.services.remove(name);
        }
        for route in upserts {
            self.services.insert(route.name.clone(), route);
        }
        self.revision = revision;
        Merged::Changed
    }
}

/// Returns the kind of a Service as people know it.
#[must_use]
pub fn kind_label(kind: ServiceKind) -> &'static str {
    match kind {
        ServiceKind::ClusterIp => "ClusterIP",
        ServiceKind::Headless => "Headless",
        ServiceKind::ExternalName => "ExternalName",
    }
}

#[cfg(test)]
mod tests;
