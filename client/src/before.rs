//! Which names resolved before the session, asked of the original servers as Services appear.
//!
//! A name that did gets no hosts line. Until the answer is there the name waits; when no server
//! answers, it counts as one that did not resolve.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Instrument;

use crate::apply::{Before, HostsPolicy, hosts_plan};
use crate::originals::Originals;
use crate::routes::RouteTable;

/// Names asked for at once: a big namespace is done in a second, and a home router is not flooded.
const AT_ONCE: usize = 32;
/// Names after which what is known is told.
const BATCH: usize = 128;

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
