//! What is done about one packet of the laptop.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::Instrument;

use super::driver::{Done, Driver};
use super::drops::Reason;
use super::flow::Flow;
use super::gate::Verdict;
use super::io::PacketIo;
use super::opener::{BoxTcpFlow, Failure};
use super::packet::{FlowKey, Packet, Protocol};
use super::replies::{self, Unreachable};
use super::stream::FlowStream;

/// How long a far end may take to be dialled; then the laptop's next SYN starts anew.
const DIAL: Duration = Duration::from_secs(5);

impl<Io: PacketIo> Driver<Io> {
    pub(super) fn take_packet(&mut self, bytes: &[u8]) {
        if let Err(reason) = self.try_packet(bytes) {
            self.drops.count(reason);
        }
    }

    fn try_packet(&mut self, bytes: &[u8]) -> Result<(), Reason> {
        let packet = Packet::parse(bytes)?;
        match packet.protocol {
            Protocol::Tcp => self.take_segment(&packet),
            Protocol::Udp | Protocol::Icmp | Protocol::Other(_) => Err(Reason::Protocol),
        }
    }

    fn take_segment(&mut self, packet: &Packet<'_>) -> Result<(), Reason> {
        let segment = packet.segment()?;
        let key = packet.key(segment.source_port, segment.destination_port);
        if let Some(flow) = self.table.find(&key) {
            flow.receive(packet.whole, &mut self.outbox);
            return Ok(());
        }
        if segment.is_opening {
            return self.knock(packet, key);
        }
        if segment.is_reset {
            self.gate.settle(&key);
            return Ok(());
        }
        self.reply(replies::reset(packet));
        Err(Reason::NoFlow)
    }

    fn knock(&mut self, packet: &Packet<'_>, key: FlowKey) -> Result<(), Reason> {
        if !self.reachable.borrow().contains(packet.destination) {
            self.reply(replies::unreachable(packet, Unreachable::Host));
            return Err(Reason::Outside);
        }
        if self.table.len() + self.gate.len() >= self.settings.flows {
            self.reply(replies::reset(packet));
            return Err(Reason::FlowLimit);
        }
        match self.gate.knock(key, packet.whole) {
            Verdict::Wait => return Ok(()),
            Verdict::Full => return Err(Reason::HalfOpen),
            Verdict::Dial => {}
        }
        let opener = Arc::clone(&self.opener);
        let dial = async move {
            let opened = timeout(DIAL, opener.open_tcp(key.destination)).await;
            Done::Opened(key, opened.unwrap_or(Err(Failure::Timeout)))
        };
        let span = tracing::debug_span!("dial", to = %key.destination);
        self.tasks.spawn(dial.instrument(span));
        Ok(())
    }

    /// Answers the SYN with what the far end said.
    pub(super) fn opened(&mut self, key: FlowKey, outcome: Result<BoxTcpFlow, Failure>) {
        let Some(syn) = self.gate.settle(&key) else {
            return;
        };
        match outcome {
            Ok(far) => {
                let mtu = self.settings.mtu;
                let flow = Flow::accept(key, &syn, mtu, Arc::clone(&self.wakes));
                self.table.insert(Arc::clone(&flow));
                let stream = FlowStream::new(flow);
                let carry = async move {
                    far.carry(Box::new(stream)).await;
                    Done::Carried
                };
                let span = tracing::debug_span!("flow", to = %key.destination);
                self.tasks.spawn(carry.instrument(span));
            }
            Err(failure) => {
                tracing::debug!(to = %key.destination, ?failure, "not opened");
                if let Ok(packet) = Packet::parse(&syn) {
                    self.refuse(&packet, failure);
                }
            }
        }
    }

    fn refuse(&mut self, syn: &Packet<'_>, failure: Failure) {
        if failure == Failure::Timeout {
            return;
        }
        match Unreachable::of(failure) {
            Some(why) => self.reply(replies::unreachable(syn, why)),
            None => self.reply(replies::reset(syn)),
        }
    }

    pub(super) fn reply(&mut self, packet: Option<Vec<u8>>) {
        if let Some(packet) = packet
            && !self.outbox.push(&packet)
        {
            self.drops.count(Reason::TransmitQueue);
        }
    }
}
