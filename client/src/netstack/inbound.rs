//! What is done about one packet of the laptop.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kubebridge_dns::server::Handler;
use tokio::time::{Instant, timeout};
use tracing::Instrument;

use super::datagrams::{DatagramKey, Kind};
use super::dns;
use super::driver::{Done, Driver};
use super::drops::Reason;
use super::flow::Flow;
use super::io::PacketIo;
use super::packet::{Datagram, FlowKey, Packet, Protocol};
use super::replies::{self, Unreachable};
use crate::flows::{Failure, FailureKind};
use crate::reachable::Hold;

/// How long a far end may take to be dialled; then the laptop's next SYN starts anew.
pub(super) const DIAL: Duration = Duration::from_secs(5);

impl<Io: PacketIo, H: Handler> Driver<Io, H> {
    pub(super) fn take_packet(&mut self, bytes: &[u8]) {
        if let Err(reason) = self.try_packet(bytes) {
            self.drops.count(reason);
        }
    }

    fn try_packet(&mut self, bytes: &[u8]) -> Result<(), Reason> {
        let packet = Packet::parse(bytes)?;
        let Some(fragment) = packet.fragment else {
            return self.take_whole(&packet);
        };
        match self.fragments.add(&packet, fragment, Instant::now())? {
            Some(whole) => self.take_whole(&Packet::parse(&whole)?),
            None => Ok(()),
        }
    }

    fn take_whole(&mut self, packet: &Packet<'_>) -> Result<(), Reason> {
        match packet.protocol {
            Protocol::Tcp => self.take_segment(packet),
            Protocol::Udp => self.take_datagram(packet),
            Protocol::Icmp => self.take_icmp(packet),
            Protocol::Other(_) => {
                self.reply(replies::unreachable(packet, Unreachable::Protocol));
                Err(Reason::Protocol)
            }
        }
    }

    fn take_segment(&mut self, packet: &Packet<'_>) -> Result<(), Reason> {
        let segment = packet.segment()?;
        let key = packet.key(segment.source_port, segment.destination_port);
        if let Some(flow) = self.table.find(&key) {
            flow.receive(packet.whole, &mut self.outbox);
            return Ok(());
        }
        if segment.is_reset {
            self.gate.settle(&key);
            return Ok(());
        }
        if segment.is_opening {
            return self.knock(packet, key);
        }
        self.reply(replies::reset(packet));
        Err(Reason::NoFlow)
    }

    fn knock(&mut self, packet: &Packet<'_>, key: FlowKey) -> Result<(), Reason> {
        if self.is_own(packet.destination) {
            return self.knock_resolver(packet, key);
        }
        if self.gate.join(&key, packet.whole) {
            return Ok(());
        }
        let hold = self.admit(packet)?;
        if self.is_full() {
            self.reply(replies::reset(packet));
            return Err(Reason::FlowLimit);
        }
        if self.gate.is_full() {
            // The laptop asks again.
            return Err(Reason::HalfOpen);
        }
        self.gate.hold(key, packet.whole, hold);
        let opener = Arc::clone(&self.opener);
        let dial = async move {
            let opened = timeout(DIAL, opener.open_tcp(key.destination)).await;
            let silence = || Err(Failure::Manager(FailureKind::Timeout.into()));
            Done::Opened(key, opened.unwrap_or_else(|_| silence()))
        };
        let span = tracing::debug_span!("dial", to = %key.destination);
        self.tasks.spawn(dial.instrument(span));
        Ok(())
    }

    /// The resolver needs no far end.
    fn knock_resolver(&mut self, packet: &Packet<'_>, key: FlowKey) -> Result<(), Reason> {
        if key.destination.port() != dns::PORT {
            self.reply(replies::reset(packet));
            return Err(Reason::NoFlow);
        }
        let flow = self.accept(key, packet.whole, None);
        let serving = dns::serve(Arc::clone(&self.dns), flow);
        let done = async move {
            serving.await;
            Done::Carried
        };
        self.tasks.spawn(done.in_current_span());
        Ok(())
    }

    /// Answers a SYN with a connection.
    pub(super) fn accept(&mut self, key: FlowKey, syn: &[u8], hold: Option<Hold>) -> Arc<Flow> {
        let mtu = self.settings.mtu;
        let flow = Flow::accept(key, syn, mtu, Arc::clone(&self.wakes));
        self.table.insert(Arc::clone(&flow), hold);
        flow
    }

    fn take_datagram(&mut self, packet: &Packet<'_>) -> Result<(), Reason> {
        let datagram = packet.datagram()?;
        let ends = packet.key(datagram.source_port, datagram.destination_port);
        if self.is_own(packet.destination) {
            return self.ask_resolver(packet, datagram, ends);
        }
        let payload = Bytes::copy_from_slice(datagram.payload);
        let kind = Kind::Udp;
        self.forward(packet, DatagramKey { kind, ends }, payload)
    }

    fn ask_resolver(
        &mut self,
        packet: &Packet<'_>,
        datagram: Datagram<'_>,
        ends: FlowKey,
    ) -> Result<(), Reason> {
        if datagram.destination_port != dns::PORT {
            self.reply(replies::unreachable(packet, Unreachable::Port));
            return Err(Reason::NoFlow);
        }
        let question = datagram.payload.to_vec();
        let answering = Arc::clone(&self.dns);
        let answer = async move {
            let reply = answering.datagram(question, ends.source).await;
            Done::Answered(ends, reply)
        };
        self.tasks.spawn(answer.in_current_span());
        Ok(())
    }

    fn take_icmp(&mut self, packet: &Packet<'_>) -> Result<(), Reason> {
        if let Some(ends) = packet.refused() {
            // The program is gone: so is the flow, that the far end be told, too.
            let kind = Kind::Udp;
            let is_known = self.datagrams.leave(&DatagramKey { kind, ends });
            return is_known.then_some(()).ok_or(Reason::NoFlow);
        }
        let identifier = replies::echo_request(packet).ok_or(Reason::Protocol)?;
        if self.is_own(packet.destination) {
            self.reply(replies::echoed(packet));
            return Ok(());
        }
        let ends = FlowKey {
            source: SocketAddr::new(packet.source, identifier),
            destination: SocketAddr::new(packet.destination, 0),
        };
        let message = Bytes::copy_from_slice(packet.payload);
        let kind = Kind::Echo;
        self.forward(packet, DatagramKey { kind, ends }, message)
    }

    /// Hands a datagram to its flow, which is begun if there is none.
    fn forward(
        &mut self,
        packet: &Packet<'_>,
        key: DatagramKey,
        datagram: Bytes,
    ) -> Result<(), Reason> {
        let Err(datagram) = self.datagrams.send(&key, datagram) else {
            return Ok(());
        };
        let hold = self.admit(packet)?;
        if self.is_full() {
            return Err(Reason::FlowLimit);
        }
        let carrier = self.datagrams.begin(key, datagram, hold);
        let number = carrier.number;
        let opener = Arc::clone(&self.opener);
        let (arrivals, drops) = (self.arrivals.clone(), Arc::clone(&self.drops));
        let running = async move {
            let failure = carrier.run(opener, arrivals, drops).await;
            Done::Silent(key, number, failure)
        };
        let span = tracing::debug_span!("datagrams", to = %key.ends.destination);
        self.tasks.spawn(running.instrument(span));
        Ok(())
    }

    /// Whether an address is the resolver's, which is ours.
    fn is_own(&self, address: IpAddr) -> bool {
        self.settings.resolver == address
    }

    fn is_full(&self) -> bool {
        self.flows() >= self.settings.flows
    }

    /// Lets a new flow to a packet's destination in, or tells the laptop that it leads nowhere.
    fn admit(&mut self, packet: &Packet<'_>) -> Result<Hold, Reason> {
        let now = Instant::now();
        let admitted = self.reachable.borrow().admit(packet.destination, now);
        if let Some(hold) = admitted {
            return Ok(hold);
        }
        self.reply(replies::unreachable(packet, Unreachable::Host));
        Err(Reason::Outside)
    }
}
