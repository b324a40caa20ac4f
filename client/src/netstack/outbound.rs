//! What is done about what far ends said: SYNs answered, datagrams made packets, errors told.

use kubebridge_dns::server::Handler;
use tokio::task::JoinError;
use tracing::Instrument;

use super::cut::cut;
use super::datagrams::{Arrived, DatagramKey, Kind};
use super::driver::{Done, Driver};
use super::drops::Reason;
use super::gate::Knock;
use super::io::PacketIo;
use super::packet::{FlowKey, Packet, Protocol};
use super::replies::{self, Unreachable};
use super::stream::FlowStream;
use crate::flows::{Answer, BoxTcpFlow, Failure};

impl<Io: PacketIo, H: Handler> Driver<Io, H> {
    /// Goes on with what a task came to.
    pub(super) fn take_done(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(Done::Opened(key, outcome)) => self.opened(key, outcome),
            Ok(Done::Carried) => {}
            Ok(Done::Answered(ends, answer)) => {
                if let Some(answer) = answer {
                    self.send(replies::datagram(&ends, &answer));
                }
            }
            Ok(Done::Silent(key, number, failure)) => {
                self.datagrams.end(&key, number);
                if let Some(failure) = failure {
                    self.tell(&key, &failure);
                }
            }
            Err(error) => {
                if error.is_panic() {
                    tracing::error!(%error, "a flow's task panicked");
                }
            }
        }
    }

    /// Answers the SYN with what the far end said.
    fn opened(&mut self, key: FlowKey, outcome: Result<BoxTcpFlow, Failure>) {
        let Some(Knock { syn, hold }) = self.gate.settle(&key) else {
            return;
        };
        match outcome {
            Ok(far) => {
                let stream = FlowStream::new(self.accept(key, &syn, Some(hold)));
                let carry = async move {
                    let ended = far.carry(Box::new(stream)).await;
                    tracing::debug!(?ended, "flow ended");
                    Done::Carried
                };
                let span = tracing::debug_span!("flow", to = %key.destination);
                self.tasks.spawn(carry.instrument(span));
            }
            Err(failure) => {
                tracing::debug!(to = %key.destination, %failure, "not opened");
                let Ok(packet) = Packet::parse(&syn) else {
                    return;
                };
                match unreachable(failure.answer()) {
                    Told::Error(why) => self.reply(replies::unreachable(&packet, why)),
                    Told::Reset => self.reply(replies::reset(&packet)),
                    Told::Nothing => {}
                }
            }
        }
    }

    /// Makes a packet of a far end's datagram.
    pub(super) fn arrived(&mut self, Arrived { key, payload }: Arrived) {
        let ends = &key.ends;
        match key.kind {
            Kind::Udp => self.send(replies::datagram(ends, &payload)),
            Kind::Echo => {
                let (from, to) = (ends.destination.ip(), ends.source.ip());
                let identifier = Some(ends.source.port());
                match replies::echo(from, to, identifier, &payload) {
                    Some(packet) => self.send(packet),
                    None => self.drops.count(Reason::Malformed),
                }
            }
        }
    }

    /// Tells the sender of datagrams that they do not arrive.
    fn tell(&mut self, key: &DatagramKey, failure: &Failure) {
        tracing::debug!(to = %key.ends.destination, %failure, "datagrams refused");
        let why = match (unreachable(failure.answer()), key.kind) {
            (Told::Error(why), _) => why,
            (Told::Reset, Kind::Udp) => Unreachable::Port,
            // Nobody answers for a far end: it was asked, or it was not allowed.
            (Told::Reset, Kind::Echo) => Unreachable::Prohibited,
            (Told::Nothing, _) => return,
        };
        // Kernels look at the ends only.
        let (from, to) = (key.ends.source, key.ends.destination);
        let sent = match key.kind {
            Kind::Udp => replies::datagram(
                &FlowKey {
                    source: to,
                    destination: from,
                },
                &[],
            ),
            Kind::Echo => {
                let request = replies::request_head(to.ip(), from.port());
                replies::packet(from.ip(), to.ip(), Protocol::Icmp, &request)
            }
        };
        if let Ok(sent) = Packet::parse(&sent) {
            self.reply(replies::unreachable(&sent, why));
        }
    }

    /// Sends a packet of any length.
    fn send(&mut self, packet: Vec<u8>) {
        self.last_id = self.last_id.wrapping_add(1);
        let pieces = cut(packet, self.settings.mtu, self.last_id);
        if self.outbox.room() < pieces.len() {
            self.drops.count(Reason::TransmitQueue);
            return;
        }
        for piece in pieces {
            self.outbox.push(&piece);
        }
    }

    /// Sends a short packet, if there is one.
    pub(super) fn reply(&mut self, packet: Option<Vec<u8>>) {
        if let Some(packet) = packet
            && !self.outbox.push(&packet)
        {
            self.drops.count(Reason::TransmitQueue);
        }
    }
}

/// What the laptop is told.
enum Told {
    Error(Unreachable),
    Reset,
    Nothing,
}

fn unreachable(answer: Answer) -> Told {
    match answer {
        Answer::Reset => Told::Reset,
        Answer::HostUnreachable => Told::Error(Unreachable::Host),
        Answer::NetworkUnreachable => Told::Error(Unreachable::Network),
        Answer::Prohibited => Told::Error(Unreachable::Prohibited),
        Answer::Silence => Told::Nothing,
    }
}
