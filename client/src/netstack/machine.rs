//! A flow's own smoltcp interface with one socket.
//!
//! An interface of its own keeps a packet's cost independent of how many flows there are (smoltcp
//! asks every socket of a set), and lets any address of the cluster be this flow's end.

use std::net::SocketAddr;

use smoltcp::iface::{
    Config, Interface, PollIngressSingleResult, PollResult, SocketHandle, SocketSet,
};
use smoltcp::phy::DeviceCapabilities;
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::time::{Duration, Instant as StackInstant};
use smoltcp::wire::HardwareAddress;

use super::outbox::Outbox;
use super::wire::{Wire, capabilities};

/// How long the laptop may take to confirm a connection: its kernel does it at once.
const CONFIRM: Duration = Duration::from_secs(20);

/// How often a silent laptop is asked whether the connection still exists: its kernel forgets
/// none without saying so, but what it said may have been lost.
const KEEP_ALIVE: Duration = Duration::from_secs(120);

/// The interface, its socket, and what surrounds them.
pub(super) struct Machine {
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    capabilities: DeviceCapabilities,
    /// Whether the driver has been told to look at the flow.
    pub(super) queued: bool,
    /// Both ends have been said and the laptop has let go: no reset, whatever is still to be read.
    pub(super) has_finished: bool,
    /// The driver has let go: smoltcp's time to wait would forget what is still to be read.
    is_over: bool,
    /// Octets that have been in the buffers, and a little more.
    moved: usize,
}

/// What became of a machine when it was polled.
pub(super) enum Polled {
    /// It is to be polled at this time, if nothing happens before.
    Until(Option<StackInstant>),
    /// It has packets that found no room.
    Blocked,
    /// It is over, and everything was said.
    Over,
}

impl Machine {
    /// Makes a machine that waits for a SYN to this end, with a closed socket.
    pub(super) fn new(
        end: SocketAddr,
        mtu: usize,
        now: StackInstant,
        mut socket: Socket<'static>,
    ) -> Self {
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
        if let Err(error) = socket.listen(end) {
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

    pub(super) fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// Works on the socket, which may write.
    pub(super) fn work<R>(&mut self, work: impl FnOnce(&mut Socket<'static>) -> R) -> R {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.handle);
        let waiting = socket.send_queue();
        let result = work(socket);
        self.moved += socket.send_queue().saturating_sub(waiting);
        result
    }

    /// Gives the socket away, and what it has moved: the machine is of no use any more.
    pub(super) fn give_socket(&mut self) -> (Socket<'static>, usize) {
        let smoltcp::socket::Socket::Tcp(socket) = self.sockets.remove(self.handle);
        (socket, self.moved)
    }

    /// Takes a packet.
    pub(super) fn receive(&mut self, packet: &[u8], now: StackInstant, out: &mut Outbox) {
        self.moved += packet.len();
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

    /// Sends what can be sent.
    pub(super) fn poll(&mut self, now: StackInstant, out: &mut Outbox) -> Polled {
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

    /// Whether there is something to send now.
    pub(super) fn wants_poll(&mut self, now: StackInstant) -> bool {
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
