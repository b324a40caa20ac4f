//! The second flight: questions of several resolutions to one upstream become one query (D22, S3).
//!
//! The key is (upstream, lower name, type, class, DO, CD), without any view; queries that other parts of
//! ours sent have flights of their own, because one may be this flight's query on its way back. Whoever waits drives the
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
use crate::loops::Sending;
use crate::message::{has_result, respell};
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

/// The third part tells who began, if that was another process.
type Key = (Name, Kind, Option<u64>);
type UnderWay = Mutex<HashMap<Key, (u64, WeakShared<BoxFuture<'static, Reply>>)>>;

impl Flights {
    /// Asks the upstream, or joins whoever is asking it the same already.
    pub(crate) async fn ask(
        &self,
        member: &Arc<Member>,
        name: &Name,
        kind: Kind,
        deadline: Instant,
        sending: &Sending,
    ) -> Reply {
        loop {
            let (exchange, joined) = self.join(member, name, kind, deadline, sending);
            let reply = exchange.await;
            // The exchange that was joined had an earlier deadline: the joiner's own time is not over yet.
            let again = joined && Instant::now() + WORTH_ASKING_AGAIN < deadline;
            let worth_it = reply
                .as_ref()
                .is_err_and(|error| !matches!(**error, ExchangeError::Looped));
            if !again || !worth_it {
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
        sending: &Sending,
    ) -> (Shared<BoxFuture<'static, Reply>>, bool) {
        let began = sending.origin.map(|origin| origin.instance);
        let key = (name.to_lowercase(), kind, began);
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
        let (member, waiter, sending) = (Arc::clone(member), name.clone(), sending.clone());
        let exchange = exchange(member, entry, waiter, deadline, sending)
            .boxed()
            .shared();
        if let Some(weak) = exchange.downgrade() {
            under_way.insert(key, (number, weak));
        }
        (exchange, false)
    }
}

async fn exchange(
    member: Arc<Member>,
    entry: Departing,
    waiter: Name,
    deadline: Instant,
    sending: Sending,
) -> Reply {
    let (name, kind, _) = &entry.key;
    let mut query = OutgoingQuery {
        dnssec_ok: kind.dnssec_ok,
        checking_disabled: kind.checking_disabled,
        ..OutgoingQuery::new(name.clone(), kind.rtype)
    };
    let outgoing = member.prepare(&mut query, &waiter, &sending);
    match member.exchange(&query, deadline).await {
        // Whoever sent it back passes on what we said to that.
        Ok(reply) if outgoing.came_back() && !has_result(&reply) => {
            Err(Arc::new(ExchangeError::Looped))
        }
        Ok(mut reply) => {
            respell(&mut reply, name);
            Ok(Arc::from(reply))
        }
        Err(_) if outgoing.came_back() => Err(Arc::new(ExchangeError::Looped)),
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
    key: Key,
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
