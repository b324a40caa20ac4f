//! Carries datagrams: UDP, and ICMP echo. Nothing is acknowledged or sent again.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use tokio::time::{Instant, Sleep, sleep};

use super::attached::{Attached, Ended, How, Meter};
use super::frame::{Frame, FrameReader};
use super::queue::{Input, Output, Queue};

/// Datagrams in one go before other tasks have their turn: a queue's worth.
const BURST: usize = super::queue::DATAGRAMS;

/// The local end of a flow of datagrams: a connected socket, or the laptop's stack.
pub trait Datagrams: Send {
    /// Takes a datagram from the local side; `None` when there will be no more.
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>>;

    /// Hands a datagram to the local side.
    fn poll_send(&mut self, context: &mut Context<'_>, datagram: &[u8]) -> Poll<io::Result<()>>;
}

impl<D: Datagrams> Datagrams for &mut D {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        (**self).poll_receive(context)
    }

    fn poll_send(&mut self, context: &mut Context<'_>, datagram: &[u8]) -> Poll<io::Result<()>> {
        (**self).poll_send(context, datagram)
    }
}

/// A pair of queues as the local end.
impl Datagrams for (Output, Input) {
    fn poll_receive(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        self.0.poll_recv(context).map(Ok)
    }

    fn poll_send(&mut self, _: &mut Context<'_>, datagram: &[u8]) -> Poll<io::Result<()>> {
        let sent = self.1.send(Bytes::copy_from_slice(datagram));
        Poll::Ready(sent.map_err(|_| io::ErrorKind::BrokenPipe.into()))
    }
}

/// Carries datagrams until either side ends, or none passes either way for `idle`.
///
/// A slow side loses the oldest. A socket that is told that nobody listens there
/// ([`io::ErrorKind::ConnectionRefused`]) ends the flow, so that the program is told too; another
/// of its errors does not: the next datagram may arrive.
pub async fn carry_datagrams<D: Datagrams>(
    local: D,
    stream: Attached,
    idle: Duration,
    meter: &Meter,
) -> Ended {
    let mut pump = Pump {
        local,
        stream,
        meter,
        reader: FrameReader::datagrams(),
        up: Queue::default(),
        down: Queue::default(),
        quiet: Box::pin(sleep(idle)),
        idle,
        last: Instant::now(),
        is_ending: false,
        sent: 0,
        received: 0,
    };
    let how = poll_fn(|context| pump.poll(context)).await;
    pump.end(how).await
}

struct Pump<'a, D> {
    local: D,
    stream: Attached,
    meter: &'a Meter,
    reader: FrameReader,
    /// What waits for HTTP/2's window.
    up: Queue,
    /// What waits for the local side.
    down: Queue,
    quiet: Pin<Box<Sleep>>,
    idle: Duration,
    last: Instant,
    /// The local side has ended; what it sent goes first.
    is_ending: bool,
    sent: u64,
    received: u64,
}

impl<D: Datagrams> Pump<'_, D> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<How> {
        let mut has_moved = false;
        for _ in 0..BURST {
            let steps = [
                self.poll_stream(context),
                self.poll_deliver(context),
                self.poll_local(context),
                self.poll_send(context),
            ];
            let mut moves = false;
            for step in steps {
                match step {
                    Ok(moved) => moves |= moved,
                    Err(how) => return Poll::Ready(how),
                }
            }
            has_moved |= moves;
            if self.is_ending && self.up.front().is_none() {
                return Poll::Ready(How::Finished);
            }
            if !moves {
                return self.poll_idle(context, has_moved);
            }
        }
        self.last = Instant::now();
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// The timer is moved only when it fires, not with every datagram.
    fn poll_idle(&mut self, context: &mut Context<'_>, has_moved: bool) -> Poll<How> {
        if has_moved {
            self.last = Instant::now();
        }
        while self.quiet.as_mut().poll(context).is_ready() {
            let until = self.last + self.idle;
            if until <= Instant::now() {
                return Poll::Ready(How::Idle);
            }
            self.quiet.as_mut().reset(until);
        }
        Poll::Pending
    }

    fn poll_stream(&mut self, context: &mut Context<'_>) -> Result<bool, How> {
        match self.stream.receive.poll_data(context) {
            Poll::Pending => Ok(false),
            Poll::Ready(None) => Err(How::Finished),
            Poll::Ready(Some(Err(error))) => Err(match error.reason() {
                Some(Reason::CANCEL) if error.is_reset() => How::PeerReset,
                Some(Reason::REFUSED_STREAM) if error.is_reset() => How::Refused,
                _ => How::Lost,
            }),
            Poll::Ready(Some(Ok(octets))) => {
                let length = octets.len();
                let _ = self.stream.receive.flow_control().release_capacity(length);
                self.reader.push(octets);
                while let Some(frame) = self.reader.read().map_err(|_| How::Broken)? {
                    match frame {
                        Frame::Data(datagram) => {
                            self.meter.add_dropped(self.down.push(datagram));
                        }
                        Frame::Credit(_) => {}
                        Frame::Fin => return Err(How::Finished),
                    }
                }
                Ok(true)
            }
        }
    }

    fn poll_deliver(&mut self, context: &mut Context<'_>) -> Result<bool, How> {
        let Some(datagram) = self.down.front() else {
            return Ok(false);
        };
        let length = datagram.len();
        match self.local.poll_send(context, datagram) {
            Poll::Pending => return Ok(false),
            Poll::Ready(Ok(())) => {
                self.received += length as u64;
                self.meter.add_received(length);
            }
            Poll::Ready(Err(error)) => match error.kind() {
                io::ErrorKind::BrokenPipe => return Err(How::Finished),
                io::ErrorKind::ConnectionRefused => return Err(How::Refused),
                _ => self.meter.add_dropped(1),
            },
        }
        self.down.pop();
        Ok(true)
    }

    fn poll_local(&mut self, context: &mut Context<'_>) -> Result<bool, How> {
        if self.is_ending {
            return Ok(false);
        }
        match self.local.poll_receive(context) {
            Poll::Pending => Ok(false),
            Poll::Ready(Ok(Some(datagram))) => {
                self.meter.add_dropped(self.up.push(datagram));
                Ok(true)
            }
            Poll::Ready(Ok(None)) => {
                self.is_ending = true;
                Ok(false)
            }
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Err(How::Refused)
            }
            // Such errors are answers to what was sent, and one each.
            Poll::Ready(Err(_)) => Ok(true),
        }
    }

    /// Gives HTTP/2 what its window takes: nothing else bounds what it queues.
    fn poll_send(&mut self, context: &mut Context<'_>) -> Result<bool, How> {
        let Some(datagram) = self.up.front() else {
            return Ok(false);
        };
        let frame = Frame::Data(datagram.clone());
        let length = datagram.len();
        let needed = super::frame::HEADER + length;
        self.stream.send.reserve_capacity(needed);
        while self.stream.send.capacity() < needed {
            match self.stream.send.poll_capacity(context) {
                Poll::Pending => return Ok(false),
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => return Err(How::Lost),
            }
        }
        if self.stream.send.send_data(frame.encode(), false).is_err() {
            return Err(How::Lost);
        }
        self.sent += length as u64;
        self.meter.add_sent(length);
        self.up.pop();
        Ok(true)
    }

    async fn end(mut self, how: How) -> Ended {
        match how {
            How::Broken => self.stream.send.send_reset(Reason::PROTOCOL_ERROR),
            How::Refused => self.stream.send.send_reset(Reason::REFUSED_STREAM),
            _ => {
                self.stream.part(|_| Poll::Pending).await;
            }
        }
        Ended {
            sent: self.sent,
            received: self.received,
            reached: 0,
            how,
        }
    }
}

#[cfg(test)]
mod tests;
