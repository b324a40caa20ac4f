//! A TCP flow of the laptop: opened over one connection, carried over as many as it takes.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kubebridge_proto::flow::{
    Attached, Ended, FailureKind, How, Local, Open, Reattach, Side, carry, resumed_at, verdict,
};
use tokio::time::{Instant, sleep, timeout};

use super::TcpFlow;
use super::shared::Held;
use crate::control::way::Place;

/// How long a flow waits for another connection: as long as the manager keeps it.
const RESUME: Duration = Duration::from_secs(30);
/// The wait before another attempt after one that failed.
const AGAIN: Duration = Duration::from_millis(100);
/// How long the manager may take to answer before its connection is doubted.
const DOUBT: Duration = Duration::from_secs(1);

/// An open flow that has no local end yet.
pub(super) struct Flow {
    pub(super) open: Open,
    pub(super) place: Place,
    pub(super) stream: Attached,
    pub(super) held: Held,
}

impl TcpFlow for Flow {
    fn carry(self: Box<Self>, local: Box<dyn Local>) -> BoxFuture<'static, Ended> {
        async move {
            let Self {
                open,
                place,
                stream,
                held,
            } = *self;
            let shared = Arc::clone(&held.shared);
            let entry = Arc::clone(&held.entry);
            let destination = open.destination;
            let again = Again { open, place, held };
            let ended = carry(
                Side::Asks,
                local,
                stream,
                again,
                &shared.memory,
                &entry.meter,
            )
            .await;
            shared.counters.note_end(&ended);
            if ended.how == How::PeerReset && ended.received == 0 {
                shared.abrupt.note(destination, Instant::now());
            }
            tracing::debug!(?ended, "flow over");
            ended
        }
        .boxed()
    }
}

/// How a flow gets its next connection.
struct Again {
    open: Open,
    place: Place,
    held: Held,
}

/// What came of one attempt.
enum Attempt {
    Attached(Attached, u64),
    Failed,
    GaveUp,
}

impl Reattach for Again {
    async fn reattach(&mut self, received: u64) -> Option<(Attached, u64)> {
        self.held.put_on(None);
        let trying = async {
            loop {
                match self.attempt(received).await {
                    Attempt::Attached(stream, peer) => return Some((stream, peer)),
                    Attempt::Failed => sleep(AGAIN).await,
                    Attempt::GaveUp => return None,
                }
            }
        };
        timeout(RESUME, trying).await.ok().flatten()
    }

    fn poll_replaced(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.held.entry.poll_move(context)
    }
}

impl Again {
    async fn attempt(&mut self, received: u64) -> Attempt {
        let shared = Arc::clone(&self.held.shared);
        let Some(connection) = shared.connection_to(&self.place).await else {
            tracing::info!("a flow's manager is gone");
            return Attempt::GaveUp;
        };
        let open = Open {
            resume: Some(received),
            ..self.open.clone()
        };
        self.held.put_on(Some(Arc::clone(&connection)));
        let asking = shared.request(&connection, &open);
        tokio::pin!(asking);
        let answered = match timeout(DOUBT, &mut asking).await {
            Ok(answered) => answered,
            Err(_) => {
                connection.doubt();
                asking.await
            }
        };
        let Ok((response, stream)) = answered else {
            self.held.put_on(None);
            return Attempt::Failed;
        };
        match (verdict(&response), resumed_at(&response)) {
            (Ok(()), Ok(peer)) => {
                shared.counters.resumed.add();
                Attempt::Attached(stream, peer)
            }
            (Err(failure), _) if failure.kind == FailureKind::Limit => Attempt::Failed,
            (verdict, _) => {
                tracing::info!(?verdict, "a flow cannot go on");
                Attempt::GaveUp
            }
        }
    }
}
