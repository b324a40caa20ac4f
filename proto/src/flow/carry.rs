//! Carries one TCP flow: between its local end and a stream, and over to another stream.
//!
//! One task does all of a flow, and an idle one holds no buffers. Frames are given to HTTP/2 as
//! soon as they are made, without waiting for its windows: what it queues are the very octets that
//! are kept to be sent again, so that the flow's own credit bounds both.

mod pump;
mod reading;

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use h2::Reason;
use tokio::time::timeout;

use super::attached::{Attached, Ended, How, Local, Meter, Reattach, Side};
use super::budget::Budget;
use pump::{Parted, Pump};

/// How long a reset waits for what was sent before it: the most there is, at 0.5 Mbit/s.
const ARRIVING: Duration = Duration::from_secs(5);

/// Carries a flow until both directions are finished, either side resets it, or no other stream
/// can be had for one that was lost.
///
/// Dropping the future resets the peer's side; the local side is whatever dropping it makes of it
/// (pass `&mut local` to decide).
pub async fn carry<L: Local, R: Reattach>(
    side: Side,
    local: L,
    stream: Attached,
    mut again: R,
    memory: &Budget,
    meter: &Meter,
) -> Ended {
    let mut pump = Pump::new(local, memory, meter);
    pump.begin(side);
    let mut stream = stream;
    loop {
        let parted = poll_fn(|context| {
            if again.poll_replaced(context).is_ready() {
                return Poll::Ready(Parted::Detached);
            }
            pump.poll(context, &mut stream)
        })
        .await;
        match parted {
            Parted::Ended(How::Finished) => {
                // The peer may want to hear the end of it over another stream.
                if !stream.part(|context| again.poll_replaced(context)).await {
                    return pump.end(How::Finished, None);
                }
            }
            Parted::Ended(How::LocalReset) => {
                // A reset takes the place of all that is queued on its stream.
                let arriving = poll_fn(|context| {
                    if again.poll_replaced(context).is_ready() {
                        return Poll::Ready(Parted::Detached);
                    }
                    pump.poll_taken(context, &mut stream)
                });
                match timeout(ARRIVING, arriving).await {
                    Ok(Parted::Detached) => {}
                    Ok(Parted::Ended(_)) | Err(_) => {
                        return pump.end(How::LocalReset, Some(stream));
                    }
                }
            }
            Parted::Ended(how) => return pump.end(how, Some(stream)),
            Parted::Detached => {}
        }
        // Not the code of a deliberate reset, which letting it go would send.
        stream.send.send_reset(Reason::NO_ERROR);
        drop(stream);
        match find(&mut pump, &mut again).await {
            Some((next, received)) => {
                stream = next;
                if pump.resume(&mut stream, received).is_err() {
                    return pump.end(How::Broken, Some(stream));
                }
            }
            None if pump.is_done() => return pump.end(How::Finished, None),
            None => return pump.end(How::Lost, None),
        }
    }
}

/// Waits for another stream; what was received goes on to the local side meanwhile.
async fn find<L: Local, R: Reattach>(
    pump: &mut Pump<'_, L>,
    again: &mut R,
) -> Option<(Attached, u64)> {
    let mut next = pin!(again.reattach(pump.reached()));
    poll_fn(|context| {
        pump.poll_deliver(context);
        next.as_mut().poll(context)
    })
    .await
}

#[cfg(test)]
mod tests;
