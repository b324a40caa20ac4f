//! Keeps a session's data connections: as many as are needed, each replaced when it is dead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubebridge_proto::session::SessionInfo;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::Instrument;

use super::connection::Connection;
use super::plan::{Action, Seen, plan};
use super::shared::Shared;
use crate::control::backoff::Backoff;
use crate::control::way::Place;
use crate::failure;

/// How often flows are looked at while any are open: four downloads are spread over their
/// connections within a second.
const LOOK: Duration = Duration::from_millis(250);

/// Runs for ever.
pub(super) async fn keep(shared: Arc<Shared>) {
    let mut keeper = Keeper {
        shared,
        opening: Vec::new(),
        running: JoinSet::new(),
        troubles: BTreeMap::new(),
    };
    let mut session = keeper.shared.session.clone();
    loop {
        keeper.act();
        keeper.wait(&mut session).await;
    }
}

struct Keeper {
    shared: Arc<Shared>,
    /// Connections that have not echoed yet.
    opening: Vec<(u64, Place)>,
    running: JoinSet<Over>,
    /// Places where the last attempt failed.
    troubles: BTreeMap<Place, Trouble>,
}

/// Attempts that failed, one after the other.
struct Trouble {
    backoff: Backoff,
    not_before: Instant,
}

/// A connection that has ended.
struct Over {
    id: u64,
    has_echoed: bool,
    /// It worked, and was not ended by us.
    is_lost: bool,
    error: anyhow::Error,
}

impl Keeper {
    fn act(&mut self) {
        let ready = self.shared.ready.borrow().clone();
        self.opening
            .retain(|(id, _)| !ready.iter().any(|one| one.id == *id));
        for connection in &ready {
            self.troubles.remove(&connection.place);
        }
        if !self.shared.is_wanted() {
            return;
        }
        let mut seen: Vec<Seen> = ready.iter().map(|one| Shared::see(one)).collect();
        seen.extend(self.opening.iter().map(|(id, place)| unborn(*id, place)));
        let home = self.shared.way.place();
        let waiting = self.shared.waiting();
        self.troubles
            .retain(|place, _| *place == home || waiting.contains(place));
        for action in plan(&seen, &home, &waiting, self.shared.most) {
            match action {
                Action::Open(place) => self.open(place),
                Action::Close(id) => {
                    tracing::debug!("data connection not needed");
                    self.take_away(id);
                }
                Action::Move { from } => self.shared.move_one(from),
            }
        }
    }

    fn open(&mut self, place: Place) {
        let trouble = self.troubles.get(&place);
        if trouble.is_some_and(|trouble| Instant::now() < trouble.not_before) {
            return;
        }
        let id = self.shared.number();
        self.opening.push((id, place.clone()));
        let shared = Arc::clone(&self.shared);
        let span = tracing::info_span!("data connection", id);
        self.running.spawn(live(shared, id, place).instrument(span));
    }

    fn take_away(&self, id: u64) {
        self.shared.ready.send_modify(|ready| {
            ready.retain(|one| {
                if one.id == id {
                    one.close();
                }
                one.id != id
            });
        });
    }

    /// Waits until something may have to be done.
    async fn wait(&mut self, session: &mut watch::Receiver<SessionInfo>) {
        let is_active = self.shared.open_flows() > 0 || self.running.len() > 1;
        let mut changes = self.shared.ready.subscribe();
        changes.mark_unchanged();
        let now = Instant::now();
        let attempts = self.troubles.values().map(|trouble| trouble.not_before);
        let attempt = attempts.filter(|at| *at > now).min();
        let until = async {
            match attempt {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some(over) = self.running.join_next() => self.note_over(over),
            () = sleep_until(now + LOOK), if is_active => self.shared.look(),
            () = until => {}
            () = self.shared.demand.notified() => {}
            // One more that is ready.
            _ = changes.changed() => {}
            // New flows may go to another manager from now on.
            Ok(()) = session.changed() => {}
        }
    }

    fn note_over(&mut self, over: Result<Over, tokio::task::JoinError>) {
        let over = match over {
            Ok(over) => over,
            Err(error) => {
                tracing::error!(%error, "a data connection's task failed");
                return;
            }
        };
        let opening = self.opening.iter().position(|(id, _)| *id == over.id);
        let opening = opening.map(|at| self.opening.swap_remove(at));
        self.take_away(over.id);
        tracing::debug!(error = %failure::chain(&over.error), "data connection over");
        if over.is_lost {
            tracing::info!("data connection lost");
            self.shared.counters.replaced.add();
            // What broke this one may have broken the others.
            self.shared
                .ready
                .borrow()
                .iter()
                .for_each(|one| one.doubt());
        }
        if let Some((_, place)) = opening.filter(|_| !over.has_echoed) {
            let trouble = self
                .troubles
                .entry(place.clone())
                .or_insert_with(|| Trouble {
                    backoff: Backoff::default(),
                    not_before: Instant::now(),
                });
            trouble.not_before = Instant::now() + trouble.backoff.next(rand::random());
            self.shared.note_unreachable(place);
        }
    }
}

/// A connection that has not echoed.
fn unborn(id: u64, place: &Place) -> Seen {
    Seen {
        id,
        place: place.clone(),
        is_ready: false,
        flows: 0,
        busy: 0,
        quiet: Duration::ZERO,
        is_lossy: false,
    }
}

/// Opens a connection, and runs it to its end.
async fn live(shared: Arc<Shared>, id: u64, place: Place) -> Over {
    let mut born = None;
    let opening = timeout(shared.way.patience(), shared.way.raw(&place));
    let error = match opening.await {
        Err(_) => anyhow::anyhow!("no data connection in time"),
        Ok(Err(error)) => error,
        Ok(Ok(io)) => {
            let ready = |connection: Arc<Connection>| {
                tracing::debug!("data connection ready");
                born = Some(Arc::clone(&connection));
                shared.note_reachable(&connection.place);
                shared.ready.send_modify(|all| all.push(connection));
            };
            let session = shared.session.borrow().id.clone();
            Connection::run(id, place, io, &session, ready).await
        }
    };
    Over {
        id,
        has_echoed: born.is_some(),
        is_lost: born.is_some_and(|connection| !connection.is_closed()),
        error,
    }
}
