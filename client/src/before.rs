//! Which names resolved before the session, asked of the original servers as Services appear.
//!
//! A name that did gets no hosts line. Until the answer is there the name waits; when no server
//! answers, it counts as one that did not resolve. Names that no Service has any longer are
//! forgotten when there are many, and asked for again should they come back.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Instrument;

use crate::apply::{Before, HostsPolicy, hosts_plan, wanted_names};
use crate::originals::Originals;
use crate::routes::RouteTable;

/// Names asked for at once: a big namespace is done in a second, and a home router is not flooded.
const AT_ONCE: usize = 32;
/// Names after which what is known is told.
const BATCH: usize = 128;
/// Names kept that no Service has: one that comes and goes with each deployment is asked for once,
/// and a hundred thousand that came once are not kept for good.
const SPARE: usize = 1024;

/// Finds out, and goes on finding out, until it is dropped.
#[derive(Debug)]
pub struct Lookback {
    known: watch::Receiver<Arc<Before>>,
    task: JoinHandle<()>,
}

impl Lookback {
    /// Starts asking.
    #[must_use]
    pub fn start(
        originals: Arc<Originals>,
        policy: HostsPolicy,
        routes: watch::Receiver<RouteTable>,
    ) -> Self {
        let (sender, known) = watch::channel(Arc::new(Before::new()));
        let asking = look_back(originals, policy, routes, sender);
        Self {
            known,
            task: tokio::spawn(asking.instrument(tracing::debug_span!("lookback"))),
        }
    }

    /// Follows what is known.
    #[must_use]
    pub fn known(&self) -> watch::Receiver<Arc<Before>> {
        self.known.clone()
    }
}

/// Asking changes nothing, so it may end anywhere.
impl Drop for Lookback {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn look_back(
    originals: Arc<Originals>,
    policy: HostsPolicy,
    mut routes: watch::Receiver<RouteTable>,
    sender: watch::Sender<Arc<Before>>,
) {
    loop {
        let unknown = {
            let table = routes.borrow_and_update();
            forget_gone(&sender, &table, &policy);
            hosts_plan(&table, &policy, &sender.borrow()).unknown
        };
        if unknown.is_empty() {
            if routes.changed().await.is_err() {
                return;
            }
            continue;
        }
        let batch: BTreeSet<String> = unknown.into_iter().take(BATCH).collect();
        let answers: Before = futures::stream::iter(batch)
            .map(|name| {
                let originals = Arc::clone(&originals);
                async move {
                    let resolves = match name.parse() {
                        Ok(parsed) => originals.resolves(&parsed).await,
                        Err(_) => false,
                    };
                    (name, resolves)
                }
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        sender.send_modify(|known| Arc::make_mut(known).extend(answers));
    }
}

/// Forgets names that no Service has, once there are too many.
fn forget_gone(known: &watch::Sender<Arc<Before>>, table: &RouteTable, policy: &HostsPolicy) {
    if known.borrow().len() <= SPARE {
        return;
    }
    let wanted = wanted_names(table, policy);
    known.send_if_modified(|known| {
        if known.len() > wanted.len() + SPARE {
            Arc::make_mut(known).retain(|name, _| wanted.contains(name));
        }
        // Nothing that anybody asks for is another than before.
        false
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::HostsForm;
    use crate::test_util::{table_of, within};

    fn policy() -> HostsPolicy {
        HostsPolicy {
            form: HostsForm::Namespaced,
            namespace: "default".to_owned(),
            cluster_domain: "cluster.local".to_owned(),
        }
    }

    /// A table of services that only this round has, and one that all have.
    fn table(round: usize, count: usize) -> RouteTable {
        let names: Vec<_> = (0..count).map(|n| format!("job-{round}-{n}")).collect();
        let mut names: Vec<_> = names.iter().map(String::as_str).collect();
        names.push("authors");
        table_of(&[("default", &names)])
    }

    #[tokio::test(start_paused = true)]
    async fn names_of_services_that_come_and_go_are_not_kept_for_good() {
        const SERVICES: usize = 400;
        let (routes, watched) = watch::channel(table(0, SERVICES));
        let originals = Arc::new(Originals::new(&[], &[]));
        let lookback = Lookback::start(originals, policy(), watched);
        let mut known = lookback.known();

        for round in 0..20 {
            routes.send_replace(table(round, SERVICES));
            let wanted = wanted_names(&routes.borrow(), &policy());
            let all = |known: &Arc<Before>| wanted.iter().all(|name| known.contains_key(name));
            within("all names are known", known.wait_for(all))
                .await
                .unwrap();
            assert!(known.borrow().len() <= 2 * wanted.len() + SPARE);
        }

        // One more look, at a table with next to nothing.
        routes.send_replace(table(20, 1));
        let last = |known: &Arc<Before>| known.contains_key("job-20-0");
        within("the last names are known", known.wait_for(last))
            .await
            .unwrap();
        assert!(known.borrow().len() <= SPARE + 4);
        assert!(known.borrow().contains_key("authors"));
    }
}
