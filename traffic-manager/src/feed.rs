//! The one way Services get into the index: change it first, then make the resolver forget.
//!
//! The order matters: an answer made from the old table before the purge is dropped by it, one
//! made after sees the new table.

use std::fmt;
use std::sync::Arc;

use kubebridge_proto::routes::{NamespaceState, ServiceRoute};
use tokio::time::Instant;

use crate::kubernetes::index::{Changed, Index, Scope};

/// What is done for a Service whose route changed.
pub type Purge = Box<dyn Fn(&Changed) + Send + Sync>;

/// Feeds an index and purges what depends on it.
pub struct Feed {
    index: Arc<Index>,
    purge: Purge,
}

impl Feed {
    /// Makes a feed; `purge` is called for every Service that changed, after the index has it.
    #[must_use]
    pub fn new(index: Arc<Index>, purge: Purge) -> Self {
        Self { index, purge }
    }

    /// Adds or replaces a Service.
    pub fn apply(&self, route: ServiceRoute) {
        self.forget(&self.index.apply(route));
    }

    /// Removes a Service.
    pub fn delete(&self, namespace: &str, name: &str) {
        self.forget(&self.index.delete(namespace, name, Instant::now()));
    }

    /// Replaces all Services of a scope in one step.
    pub fn reset(&self, scope: &Scope, routes: Vec<ServiceRoute>) {
        self.forget(&self.index.reset(scope, routes, Instant::now()));
    }

    /// Says where the namespaces of a scope stand.
    pub fn set_state(&self, scope: &Scope, state: &NamespaceState) {
        self.index.set_state(scope, state);
    }

    fn forget(&self, changed: &[Changed]) {
        changed.iter().for_each(|one| (self.purge)(one));
    }
}

impl fmt::Debug for Feed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Feed")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
