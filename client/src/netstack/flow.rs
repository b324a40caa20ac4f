//! One TCP flow, fed and polled by the driver, read and written by its stream.
//!
//! Both share its machine by a lock that is held for one call.

use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::time::Instant as StackInstant;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::machine::{Machine, Polled};
use super::outbox::Outbox;
use super::packet::FlowKey;
use super::spare::Spare;

/// A TCP flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) key: FlowKey,
    pub(super) wakes: Arc<Wakes>,
    machine: Mutex<Machine>,
}

/// What flows share: which of them want to be polled, and the sockets of those that are over.
#[derive(Debug)]
pub(super) struct Wakes {
    start: Instant,
    queue: Mutex<Vec<Arc<Flow>>>,
    pub(super) notify: Notify,
    spare: Spare,
}

/// What became of a flow when it was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is to be polled at this time, if nothing happens before.
    Until(Option<Instant>),
    /// It has packets that found no room.
    Blocked,
    /// It is over, and everything was said.
    Over,
}

impl Wakes {
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            queue: Mutex::default(),
            notify: Notify::new(),
            spare: Spare::default(),
        }
    }

    /// Takes the flows to poll.
    pub(super) fn take(&self) -> Vec<Arc<Flow>> {
        std::mem::take(&mut *self.queue.lock())
    }

    /// The stack's time.
    fn time(&self, now: Instant) -> StackInstant {
        let micros = now.saturating_duration_since(self.start).as_micros();
        StackInstant::from_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    fn instant(&self, time: StackInstant) -> Instant {
        let micros = u64::try_from(time.total_micros()).unwrap_or(0);
        self.start + std::time::Duration::from_micros(micros)
    }
}

impl Flow {
    /// Makes the flow that a SYN asks for; the SYN is answered at the next poll.
    pub(super) fn accept(key: FlowKey, syn: &[u8], mtu: usize, wakes: Arc<Wakes>) -> Arc<Self> {
        let now = wakes.time(Instant::now());
        let machine = Machine::new(key.destination, mtu, now, wakes.spare.take());
        let flow = Arc::new(Self {
            key,
            wakes,
            machine: Mutex::new(machine),
        });
        // Nothing but silence or a reset answers a SYN here, and it is the driver's to send.
        flow.receive(syn, &mut Outbox::default());
        flow
    }

    /// Takes a packet of the laptop.
    pub(super) fn receive(self: &Arc<Self>, packet: &[u8], out: &mut Outbox) {
        let now = self.wakes.time(Instant::now());
        let mut machine = self.machine.lock();
        machine.receive(packet, now, out);
        self.queue(&mut machine);
    }

    /// Sends what can be sent.
    pub(super) fn poll(&self, now: Instant, out: &mut Outbox) -> Outcome {
        let time = self.wakes.time(now);
        let mut machine = self.machine.lock();
        machine.queued = false;
        match machine.poll(time, out) {
            Polled::Over => Outcome::Over,
            Polled::Blocked => Outcome::Blocked,
            Polled::Until(time) => Outcome::Until(time.map(|time| self.wakes.instant(time))),
        }
    }

    /// Ends the flow with a reset.
    pub(super) fn abort(self: &Arc<Self>) {
        self.with_socket(|socket| (socket.abort(), Change::Made));
    }

    /// Resolves when the laptop has reset the flow, also while nothing is read or written.
    pub(super) fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut machine = self.machine.lock();
        let has_finished = machine.has_finished;
        let socket = machine.socket();
        match socket.state() {
            State::Closed | State::Listen if !has_finished => Poll::Ready(()),
            _ => {
                socket.register_recv_waker(cx.waker());
                Poll::Pending
            }
        }
    }

    /// Works on the socket for a stream.
    pub(super) fn with_socket<R>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut Socket<'static>) -> (R, Change),
    ) -> R {
        let mut machine = self.machine.lock();
        let (result, change) = machine.work(work);
        let polls = match change {
            Change::None => false,
            Change::Made => true,
            Change::Read => machine.wants_poll(self.wakes.time(Instant::now())),
        };
        if polls {
            self.queue(&mut machine);
        }
        result
    }

    /// Has the driver poll the flow.
    fn queue(self: &Arc<Self>, machine: &mut Machine) {
        if !machine.queued {
            machine.queued = true;
            self.wakes.queue.lock().push(Arc::clone(self));
            self.wakes.notify.notify_one();
        }
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let (socket, moved) = self.machine.get_mut().give_socket();
        self.wakes.spare.keep(socket, moved);
    }
}

/// What a stream did to its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing the laptop has to know.
    None,
    /// It made room, which may be worth telling.
    Read,
    /// There is something to send.
    Made,
}
