//! The moving parts of one flow, polled by its task.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use tokio::io::AsyncWrite;
use tokio::time::{Instant, Sleep, sleep};

use crate::flow::attached::{Attached, Ended, How, Local, Meter, Side};
use crate::flow::budget::Budget;
use crate::flow::frame::{Frame, FrameReader, HEADER, data_header};
use crate::flow::state::{Owing, Receiver, Sender, Violation};

use super::reading::{READ, Reading};

/// How long what was consumed may stay unacknowledged: the peer keeps it as long.
const ACKNOWLEDGE: Duration = Duration::from_millis(250);
/// A flow on which nothing came for this long gives its window back.
const IDLE: Duration = Duration::from_secs(5);
/// Rounds before other tasks have their turn: half a megabyte each way.
const ROUNDS: usize = 16;
/// Pieces that are written at once.
const SLICES: usize = 16;
/// Why a stream is not polled any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parted {
    /// The flow is over.
    Ended(How),
    /// The flow needs another stream.
    Detached,
}

/// One flow.
pub(super) struct Pump<'a, L> {
    local: L,
    meter: &'a Meter,
    sender: Sender,
    receiver: Receiver,
    reader: FrameReader,
    reading: Reading,
    timer: Timer,
    is_unflushed: bool,
    /// The local side has reset the flow.
    is_reset: bool,
}

/// What the one timer of a flow is set for.
struct Timer {
    sleep: Pin<Box<Sleep>>,
    set: Set,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Set {
    Nothing,
    Acknowledge,
    /// With the offset of then.
    Idle(u64),
}

impl<'a, L: Local> Pump<'a, L> {
    pub(super) fn new(local: L, memory: &Budget, meter: &'a Meter) -> Self {
        Self {
            local,
            meter,
            sender: Sender::new(memory),
            receiver: Receiver::new(memory),
            reader: FrameReader::stream(),
            reading: Reading::default(),
            timer: Timer {
                sleep: Box::pin(sleep(Duration::ZERO)),
                set: Set::Nothing,
            },
            is_unflushed: false,
            is_reset: false,
        }
    }

    /// Begins the flow.
    pub(super) fn begin(&mut self, side: Side) {
        match side {
            Side::Asks => self.receiver.begin(),
            Side::Answers => self.receiver.attach(),
        }
    }

    /// Begins on another stream.
    fn attach(&mut self) {
        self.reader = FrameReader::stream();
        self.receiver.attach();
    }

    /// Goes on over another stream, to a peer that has received so much.
    pub(super) fn resume(&mut self, stream: &mut Attached, received: u64) -> Result<(), Violation> {
        let again = self.sender.resume(received)?;
        self.attach();
        for piece in again {
            let header = data_header(piece.len());
            send(stream, Bytes::copy_from_slice(&header));
            send(stream, piece);
        }
        if self.sender.is_finished() && received < self.sender.reached() {
            send(stream, Frame::Fin.encode());
        }
        Ok(())
    }

    /// The offset that was received.
    pub(super) fn reached(&self) -> u64 {
        self.receiver.reached()
    }

    /// Whether both directions are carried to their ends, whether or not the peer knows.
    pub(super) fn is_done(&self) -> bool {
        self.receiver.is_done() && self.sender.is_finished() && !self.is_reset
    }

    /// Ends the flow, and says how; a stream is reset.
    pub(super) fn end(mut self, how: How, stream: Option<Attached>) -> Ended {
        if let Some(mut stream) = stream {
            stream.send.send_reset(match how {
                How::Broken => Reason::PROTOCOL_ERROR,
                _ => Reason::CANCEL,
            });
        }
        if !matches!(how, How::Finished | How::LocalReset) {
            self.local.abort();
        }
        Ended {
            sent: self.sender.sent(),
            received: self.receiver.consumed(),
            reached: self.receiver.reached(),
            how,
        }
    }

    /// Moves what can be moved.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Attached,
    ) -> Poll<Parted> {
        for _ in 0..ROUNDS {
            let taken = match self.poll_stream(context, stream) {
                Ok(taken) => taken,
                Err(parted) => return Poll::Ready(parted),
            };
            let delivered = self.poll_deliver(context);
            let sent = self.poll_local(context, stream);
            if self.is_reset {
                return Poll::Ready(Parted::Ended(How::LocalReset));
            }
            self.tell(context, stream, sent);
            if self.receiver.is_done() && self.sender.is_acknowledged() {
                return Poll::Ready(Parted::Ended(How::Finished));
            }
            if !(taken || delivered || sent) {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Waits until the peer has taken what was sent before the local side reset the flow.
    pub(super) fn poll_taken(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Attached,
    ) -> Poll<Parted> {
        while !self.sender.is_taken() {
            match self.poll_stream(context, stream) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(parted) => return Poll::Ready(parted),
            }
        }
        Poll::Ready(Parted::Ended(How::LocalReset))
    }

    /// Takes from the peer; whether there was anything.
    fn poll_stream(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut Attached,
    ) -> Result<bool, Parted> {
        match stream.receive.poll_data(context) {
            Poll::Pending => Ok(false),
            Poll::Ready(None) => Err(Parted::Detached),
            Poll::Ready(Some(Err(error))) => Err(parted(&error)),
            Poll::Ready(Some(Ok(octets))) => {
                // Credit is what bounds memory: the connection's window is for all flows.
                let length = octets.len();
                let _ = stream.receive.flow_control().release_capacity(length);
                self.reader.push(octets);
                self.take_frames()
                    .map_err(|()| Parted::Ended(How::Broken))?;
                Ok(true)
            }
        }
    }

    fn take_frames(&mut self) -> Result<(), ()> {
        while let Some(frame) = self.reader.read().map_err(drop)? {
            match frame {
                Frame::Data(octets) => self.receiver.push(octets),
                Frame::Credit(credit) => self.sender.credit(credit),
                Frame::Fin => self.receiver.end(),
            }
            .map_err(drop)?;
        }
        Ok(())
    }

    /// Hands on to the local side; whether anything went there.
    pub(super) fn poll_deliver(&mut self, context: &mut Context<'_>) -> bool {
        if self.is_reset {
            return false;
        }
        let mut has_moved = false;
        while !self.receiver.is_drained() {
            match self.poll_write(context) {
                Poll::Pending => return has_moved,
                Poll::Ready(Ok(count)) if count > 0 => {
                    self.receiver.consume(count);
                    self.meter.add_received(count);
                    self.is_unflushed = true;
                    has_moved = true;
                }
                Poll::Ready(_) => {
                    self.is_reset = true;
                    return has_moved;
                }
            }
        }
        if self.is_unflushed && self.settle(context, |local, context| local.poll_flush(context)) {
            self.is_unflushed = false;
        }
        if self.receiver.is_at_end()
            && !self.is_unflushed
            && self.settle(context, |local, context| local.poll_shutdown(context))
        {
            self.receiver.consume_end();
            has_moved = true;
        }
        has_moved
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let filled = self.receiver.waiting(&mut slices);
        let local = Pin::new(&mut self.local);
        match &slices[..filled] {
            [one] => local.poll_write(context, one),
            several if local.is_write_vectored() => local.poll_write_vectored(context, several),
            several => local.poll_write(context, several.first().map_or(&[], |slice| slice)),
        }
    }

    /// Polls something of the local side; whether it is over and well.
    fn settle(
        &mut self,
        context: &mut Context<'_>,
        poll: impl FnOnce(Pin<&mut L>, &mut Context<'_>) -> Poll<io::Result<()>>,
    ) -> bool {
        match poll(Pin::new(&mut self.local), context) {
            Poll::Pending => false,
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(_)) => {
                self.is_reset = true;
                false
            }
        }
    }

    /// Takes from the local side; whether there was anything.
    fn poll_local(&mut self, context: &mut Context<'_>, stream: &mut Attached) -> bool {
        if self.is_reset {
            return false;
        }
        let room = self.sender.room();
        if room == 0 {
            self.is_reset = self.local.poll_reset(context).is_ready();
            return false;
        }
        match self.reading.poll(&mut self.local, context, room.min(READ)) {
            Poll::Pending => false,
            Poll::Ready(Ok(frame)) if frame.len() == HEADER => {
                self.sender.finish();
                send(stream, Frame::Fin.encode());
                true
            }
            Poll::Ready(Ok(frame)) => {
                let octets = frame.slice(HEADER..);
                self.meter.add_sent(octets.len());
                self.sender.push(octets);
                send(stream, frame);
                true
            }
            Poll::Ready(Err(_)) => {
                self.is_reset = true;
                false
            }
        }
    }

    /// Tells the peer what it has to know, now or when it is time.
    fn tell(&mut self, context: &mut Context<'_>, stream: &mut Attached, has_sent: bool) {
        // After the end there is no further frame to wait for.
        let is_along = has_sent || self.sender.is_finished();
        let owing = self.receiver.owing();
        if owing == Owing::Now || (owing == Owing::Along && is_along) {
            send(stream, Frame::Credit(self.receiver.credit()).encode());
        }
        loop {
            let reached = self.receiver.reached();
            match (self.timer.set, self.receiver.owing()) {
                (Set::Nothing | Set::Idle(_), Owing::Soon | Owing::Along) => {
                    self.timer.set_for(Set::Acknowledge, ACKNOWLEDGE);
                }
                (Set::Nothing, _) if self.receiver.has_to_spare() => {
                    self.timer.set_for(Set::Idle(reached), IDLE);
                }
                (Set::Nothing, _) => return,
                _ => {}
            }
            if self.timer.sleep.as_mut().poll(context).is_pending() {
                return;
            }
            let credit = match std::mem::replace(&mut self.timer.set, Set::Nothing) {
                Set::Acknowledge if self.receiver.owing() != Owing::Nothing => {
                    Some(self.receiver.credit())
                }
                Set::Idle(then) if then == reached => self.receiver.idle(),
                _ => None,
            };
            if let Some(credit) = credit {
                send(stream, Frame::Credit(credit).encode());
            }
        }
    }
}

impl Timer {
    fn set_for(&mut self, set: Set, time: Duration) {
        self.set = set;
        self.sleep.as_mut().reset(Instant::now() + time);
    }
}

/// Queues octets. A stream that takes none is gone, which its other half tells.
fn send(stream: &mut Attached, octets: Bytes) {
    let _ = stream.send.send_data(octets, false);
}

/// What the end of a stream means: only a deliberate reset ends the flow.
fn parted(error: &h2::Error) -> Parted {
    if error.is_reset() && error.is_remote() && error.reason() == Some(Reason::CANCEL) {
        Parted::Ended(How::PeerReset)
    } else {
        Parted::Detached
    }
}
