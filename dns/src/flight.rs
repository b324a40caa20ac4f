//! The second flight: questions of several resolutions to one upstream become one query (D22, S3).
//!
//! The key is (upstream, lower name, type, class, DO, CD), without any view. Whoever waits drives the
//! exchange; when nobody does any more it is dropped, and with it the query. Nothing is kept afterwards.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::debug;

use crate::interpret::Kind;
use crate::message::CLASS_IN;
use crate::name::Name;
use crate::upstream::{ExchangeError, OutgoingQuery};
use crate::upstreams::Member;

#[cfg(test)]
mod tests;

/// The reply's bytes, or why there is none.
pub(crate) type Reply = Result<Arc<[u8]>, Arc<ExchangeError>>;

/// A joined exchange that ended without a reply is begun again only if at least this much of the joiner's own time is left.
const WORTH_ASKING_AGAIN: Duration = Duration::from_millis(50);

/// The exchanges under way to one upstream.
#[derive(Default)]
pub(crate) struct Flights {
    under_way: Arc<UnderWay>,
    /// Numbers the exchanges, so that one that ends late does not take its successor out of the map.
    begun: AtomicU64,
}

type UnderWay = Mutex<HashMap<(Name, Kind), (u64, WeakShared<BoxFuture<'static, Reply>>)>>;

impl Flights {
    /// Asks the upstream, or joins whoever is asking it the same already.
    pub(crate) async fn ask(
        &self,
        member: &Arc<Member>,
        name: &Name,
        kind: Kind,
        deadline: Instant,
    ) -> Reply {
        loop {
            let (exchange, joined) = self.join(member, name, kind, deadline);
            let reply = exchange.await;
            // The exchange that was joined had an earlier deadline: the joiner's own time is not over yet.
            let again = joined && reply.is_err() && Instant::now() + WORTH_ASKING_AGAIN < deadline;
            if !again {
                return reply;
            }
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.under_way.lock().is_empty()
    }

    fn join(
        &self,
        member: &Arc<Member>,
        name: &Name,
        kind: Kind,
        deadline: Instant,
    ) -> (Shared<BoxFuture<'static, Reply>>, bool) {
        let key = (name.to_lowercase(), kind);
        let mut under_way = self.under_way.lock();
        let present = under_way
            .get(&key)
            .and_then(|(_, exchange)| exchange.upgrade());
        if let Some(exchange) = present {
            // One that has ended is about to take itself out of the map.
            if exchange.peek().is_none() {
                return (exchange, true);
            }
        }
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let entry = Departing {
            under_way: Arc::clone(&self.under_way),
            key: key.clone(),
            number,
        };
        let exchange = exchange(Arc::clone(member), entry, deadline)
            .boxed()
            .shared();
        if let Some(weak) = exchange.downgrade() {
            under_way.insert(key, (number, weak));
        }
        (exchange, false)
    }
}

async fn exchange(member: Arc<Member>, entry: Departing, deadline: Instant) -> Reply {
    let (name, kind) = &entry.key;
    let query = OutgoingQuery {
        name: name.clone(),
        rtype: kind.rtype,
        class: CLASS_IN,
        dnssec_ok: kind.dnssec_ok,
        checking_disabled: kind.checking_disabled,
    };
    match member.exchange(&query, deadline).await {
        Ok(reply) => Ok(Arc::from(reply)),
        Err(error) => {
            let upstream = member.spec();
            debug!(%upstream, %name, %error, "no reply from upstream");
            Err(Arc::new(error))
        }
    }
}

/// Takes an exchange out of the map when it ends or is dropped, unless a newer one has its place.
struct Departing {
    under_way: Arc<UnderWay>,
    key: (Name, Kind),
    number: u64,
}

impl Drop for Departing {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock();
        if under_way
            .get(&self.key)
            .is_some_and(|(number, _)| *number == self.number)
        {
            under_way.remove(&self.key);
        }
    }
}
