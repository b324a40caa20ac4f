//! How a flow whose connection was lost gets another stream: offered by one task, taken by another.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use kubebridge_proto::flow::{Attached, Reattach, accepted};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::table::PARKED;
use crate::metrics::flows::FlowCounts;

/// A stream on which a laptop wants to go on.
#[derive(Debug)]
pub(super) struct Offer {
    pub(super) receive: RecvStream,
    pub(super) respond: SendResponse<Bytes>,
    /// What the laptop has received.
    pub(super) received: u64,
}

/// Where an offer waits for its flow. The newest counts: the laptop gave the others up.
#[derive(Debug, Default)]
pub(super) struct Handover(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    offer: Option<Offer>,
    waker: Option<Waker>,
    over: Option<Over>,
}

/// How far a flow had come that is over, where it came to its end.
type Over = Option<u64>;

impl Handover {
    /// Offers a stream; returns one that nobody will take: an older one, or this one when the
    /// flow is over, with how far that had come.
    pub(super) fn put(&self, offer: Offer) -> Option<(Offer, Over)> {
        let mut waiting = self.0.lock();
        if let Some(over) = waiting.over {
            return Some((offer, over));
        }
        let replaced = waiting.offer.replace(offer);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
        replaced.map(|offer| (offer, None))
    }

    /// Takes no more offers; returns the one that waits.
    pub(super) fn close(&self, over: Over) -> Option<Offer> {
        let mut waiting = self.0.lock();
        waiting.over = Some(over);
        waiting.offer.take()
    }

    fn poll_waiting(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut waiting = self.0.lock();
        if waiting.offer.is_some() {
            return Poll::Ready(());
        }
        match &mut waiting.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    fn poll_take(&self, context: &mut Context<'_>) -> Poll<Offer> {
        match self.poll_waiting(context) {
            // The one reader took nothing in between.
            Poll::Ready(()) => self
                .0
                .lock()
                .offer
                .take()
                .map_or(Poll::Pending, Poll::Ready),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// Waits for an offer as long as a flow may be parked.
#[derive(Debug)]
pub(super) struct Again {
    pub(super) handover: Arc<Handover>,
    pub(super) counts: FlowCounts,
}

impl Reattach for Again {
    async fn reattach(&mut self, received: u64) -> Option<(Attached, u64)> {
        let _parked = self.counts.parked();
        let taking = async {
            loop {
                let mut offer = poll_fn(|context| self.handover.poll_take(context)).await;
                let answered = offer.respond.send_response(accepted(Some(received)), false);
                // Its connection may be lost as well by now.
                if let Ok(send) = answered {
                    let receive = offer.receive;
                    return (Attached { send, receive }, offer.received);
                }
            }
        };
        let taken = timeout(PARKED, taking).await.ok();
        self.counts.resumed(taken.is_some());
        taken
    }

    fn poll_replaced(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.handover.poll_waiting(context)
    }
}

#[cfg(test)]
mod tests {
    use h2::server::Connection;
    use kubebridge_proto::flow::{echo_request, http2};
    use tokio::io::{DuplexStream, duplex};

    use super::*;

    /// A stream that some laptop asks for, and what keeps it open.
    async fn offer() -> (Offer, Connection<DuplexStream, Bytes>) {
        let (near, far) = duplex(64 * 1024);
        let asking = async {
            let (mut requests, connection) = http2::client().handshake::<_, Bytes>(near).await?;
            tokio::spawn(connection);
            requests.send_request(echo_request(), false)
        };
        let (asked, answering) = tokio::join!(asking, http2::server().handshake(far));
        let (mut connection, _asked) = (answering.unwrap(), asked.unwrap());
        let (request, respond) = connection.accept().await.unwrap().unwrap();
        let offer = Offer {
            receive: request.into_body(),
            respond,
            received: 5,
        };
        (offer, connection)
    }

    #[tokio::test]
    async fn who_comes_when_the_flow_is_just_over_hears_how_far_it_had_come() {
        let handover = Handover::default();
        let (first, _wire) = offer().await;
        assert!(handover.put(first).is_none());
        let (second, _wire) = offer().await;
        let replaced = handover.put(second);
        assert_eq!(
            replaced.map(|(offer, over)| (offer.received, over)),
            Some((5, None))
        );

        assert!(handover.close(Some(77)).is_some());

        let (late, _wire) = offer().await;
        let left = handover.put(late);
        assert_eq!(left.map(|(_, over)| over), Some(Some(77)));
    }
}
