//! One TCP flow: its own smoltcp interface with one socket, fed and polled by the driver.
//!
//! An interface of its own keeps a packet's cost independent of how many flows there are (smoltcp
//! asks every socket of a set), and lets any address of the cluster be this flow's end. Streams
//! and the driver share the flow by a lock that is held for one call.

use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use smoltcp::iface::{
    Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet,
};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::time::{Duration, Instant as StackInstant};
use smoltcp::wire::HardwareAddress;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::outbox::Outbox;
use super::packet::FlowKey;
use super::spare::Spare;

/// How long the laptop may take to confirm a connection: its kernel does it at once.
const CONFIRM: Duration = Duration::from_secs(20);

/// How often a silent laptop is asked whether the connection still exists: its kernel forgets
/// none without saying so, but what it said may have been lost.
const KEEP_ALIVE: Duration = Duration::from_secs(120);

/// A TCP flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) key: FlowKey,
    pub(super) wakes: Arc<Wakes>,
    machine: Mutex<Machine>,
}

/// The state machine and what surrounds it.
pub(super) struct Machine {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    capabilities: DeviceCapabilities,
    /// Whether the driver has been told to look at the flow.
    queued: bool,
    /// Both ends have been said and the laptop has let go: no reset, whatever is still to be read.
    has_finished: bool,
    /// The driver has let go: smoltcp's time to wait would forget what is still to be read.
    is_over: bool,
    /// Octets that have been in the buffers, and a little more.
    moved: usize,
}

/// The flows that want to be polled.
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
        let machine = Machine::new(key, mtu, now, wakes.spare.take());
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
        let waiting = machine.socket().send_queue();
        let (result, change) = work(machine.socket());
        let written = machine.socket().send_queue().saturating_sub(waiting);
        machine.moved = machine.moved.saturating_add(written);
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
        let machine = self.machine.get_mut();
        let smoltcp::socket::Socket::Tcp(socket) = machine.sockets.remove(machine.handle);
        self.wakes.spare.keep(socket, machine.moved);
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

enum Polled {
    Until(Option<StackInstant>),
    Blocked,
    Over,
}

impl Machine {
    fn new(key: FlowKey, mtu: usize, now: StackInstant, mut socket: Socket<'static>) -> Self {
        let capabilities = capabilities(mtu);
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = rand::random();
        let mut wire = Wire {
            incoming: None,
            out: &mut Outbox::default(),
            capabilities: &capabilities,
        };
        let mut interface = Interface::new(config, &mut wire, now);
        interface.set_any_ip(true);
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        socket.set_timeout(Some(CONFIRM));
        // Set before there is a connection, or the first probe would be sent at once.
        socket.set_keep_alive(Some(KEEP_ALIVE));
        if let Err(error) = socket.listen(key.destination) {
            tracing::error!(?error, "a fresh socket does not listen");
        }
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        Self {
            interface,
            sockets,
            handle,
            capabilities,
            queued: false,
            has_finished: false,
            is_over: false,
            moved: 0,
        }
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    fn receive(&mut self, packet: &[u8], now: StackInstant, out: &mut Outbox) {
        self.moved = self.moved.saturating_add(packet.len());
        let before = self.socket().state();
        let mut wire = Wire {
            incoming: Some(packet),
            out,
            capabilities: &self.capabilities,
        };
        let _: PollIngressSingleResult =
            self.interface
                .poll_ingress_single(now, &mut wire, &mut self.sockets);
        let socket = self.socket();
        match (before, socket.state()) {
            // A reset before the connection was confirmed makes the socket listen again.
            (State::SynReceived, State::Listen) => socket.abort(),
            (State::SynReceived, State::Established | State::CloseWait) => {
                socket.set_timeout(None);
            }
            (State::LastAck | State::Closing, State::Closed) => self.has_finished = true,
            _ => {}
        }
    }

    fn poll(&mut self, now: StackInstant, out: &mut Outbox) -> Polled {
        if self.is_over {
            return Polled::Over;
        }
        let mut wire = Wire {
            incoming: None,
            out,
            capabilities: &self.capabilities,
        };
        while self
            .interface
            .poll_egress(now, &mut wire, &mut self.sockets)
            == PollResult::SocketStateChanged
        {}
        let next = self.interface.poll_at(now, &self.sockets);
        let socket = self.socket();
        let said_all = socket.remote_endpoint().is_none();
        match (socket.state(), next) {
            (State::Closed, _) if said_all => Polled::Over,
            (_, Some(time)) if time <= now && out.is_full() => Polled::Blocked,
            // What comes late is answered by a reset, which nobody minds any more.
            (State::TimeWait, _) => {
                self.is_over = true;
                Polled::Over
            }
            (_, next) => Polled::Until(next),
        }
    }

    fn wants_poll(&mut self, now: StackInstant) -> bool {
        if self.is_over {
            return false;
        }
        let next = self.interface.poll_at(now, &self.sockets);
        next.is_some_and(|time| time <= now)
    }
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let socket = self.sockets.get::<Socket<'_>>(self.handle);
        formatter
            .debug_tuple("Machine")
            .field(&socket.state())
            .finish()
    }
}

fn capabilities(mtu: usize) -> DeviceCapabilities {
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ip;
    capabilities.max_transmission_unit = mtu;
    // What the kernel gives us never crossed a wire.
    let mut checksum = ChecksumCapabilities::ignored();
    checksum.ipv4 = Checksum::Tx;
    checksum.tcp = Checksum::Tx;
    capabilities.checksum = checksum;
    capabilities
}

/// The device a machine sees during one call.
struct Wire<'a> {
    incoming: Option<&'a [u8]>,
    out: &'a mut Outbox,
    capabilities: &'a DeviceCapabilities,
}

struct Received<'a>(&'a [u8]);

struct Sending<'a>(&'a mut Outbox);

impl Device for Wire<'_> {
    type RxToken<'b>
        = Received<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Sending<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: StackInstant) -> Option<(Received<'_>, Sending<'_>)> {
        let packet = self.incoming.take()?;
        Some((Received(packet), Sending(self.out)))
    }

    fn transmit(&mut self, _: StackInstant) -> Option<Sending<'_>> {
        (!self.out.is_full()).then_some(Sending(self.out))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }
}

impl smoltcp::phy::RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        work(self.0)
    }
}

impl smoltcp::phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, work: F) -> R {
        self.0.write(length, work)
    }
}
