//! The flows of datagrams there are: UDP by its two ends, echo by address and identifier.
//!
//! A flow has one task. It opens the far end, then moves datagrams until nothing has moved for a
//! while; what waits meanwhile is bounded, and the oldest gives way.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kubebridge_proto::flow::queue::{self, Input, Output};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::drops::{Drops, Reason};
use super::inbound::DIAL;
use super::packet::FlowKey;
use crate::flows::{DatagramFlow, Failure, FailureKind, Opener};
use crate::reachable::Hold;

/// How long a flow may be silent: what NAT gives UDP (RFC 4787 wants more, most give less).
const IDLE: Duration = Duration::from_secs(60);

/// How long a flow to port 53 may be silent: each question has a port of its own.
const DNS_IDLE: Duration = Duration::from_secs(10);

/// How long a flow of echoes may be silent.
const ECHO_IDLE: Duration = Duration::from_secs(10);

/// What kind of datagrams a flow carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// UDP.
    Udp,
    /// ICMP echo; the source's port is the identifier.
    Echo,
}

/// A flow's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DatagramKey {
    pub(super) kind: Kind,
    pub(super) ends: FlowKey,
}

/// The flows.
#[derive(Debug, Default)]
pub(super) struct Datagrams {
    flows: HashMap<DatagramKey, Entry>,
    /// What tells a flow from a later one of the same name.
    last: u64,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    input: Input,
    /// The right to go there, for as long as the flow lives.
    _hold: Hold,
}

/// A flow's side of the work.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) key: DatagramKey,
    pub(super) number: u64,
    output: Output,
}

/// A datagram of a far end.
#[derive(Debug)]
pub(super) struct Arrived {
    pub(super) key: DatagramKey,
    pub(super) payload: Bytes,
}

impl Datagrams {
    pub(super) fn len(&self) -> usize {
        self.flows.len()
    }

    /// Hands a datagram to its flow; gives it back if there is no such flow.
    pub(super) fn send(&mut self, key: &DatagramKey, datagram: Bytes) -> Result<(), Bytes> {
        match self.flows.get(key) {
            Some(entry) => entry.input.send(datagram),
            None => Err(datagram),
        }
    }

    /// Begins a flow with its first datagram.
    pub(super) fn begin(&mut self, key: DatagramKey, first: Bytes, hold: Hold) -> Carrier {
        let (input, output) = queue::channel();
        // Fails only when nobody reads, and the reader is here.
        let _ = input.send(first);
        self.last += 1;
        let number = self.last;
        let entry = Entry {
            number,
            input,
            _hold: hold,
        };
        self.flows.insert(key, entry);
        Carrier {
            key,
            number,
            output,
        }
    }

    /// Ends a flow whose program is gone; tells whether there was one.
    pub(super) fn leave(&mut self, key: &DatagramKey) -> bool {
        self.flows.remove(key).is_some()
    }

    /// Forgets a flow that is over, unless a later one has its name.
    pub(super) fn end(&mut self, key: &DatagramKey, number: u64) {
        if self
            .flows
            .get(key)
            .is_some_and(|entry| entry.number == number)
        {
            self.flows.remove(key);
        }
    }
}

impl Carrier {
    /// Carries the flow to its end; returns why, if it was the far end's doing.
    pub(super) async fn run(
        mut self,
        opener: Arc<dyn Opener>,
        arrived: mpsc::Sender<Arrived>,
        drops: Arc<Drops>,
    ) -> Option<Failure> {
        let to = self.key.ends.destination;
        let opening = async {
            match self.key.kind {
                Kind::Udp => opener.open_udp(to).await,
                Kind::Echo => opener.ping(to.ip()).await,
            }
        };
        let flow = match timeout(DIAL, opening).await {
            Ok(Ok(flow)) => flow,
            Ok(Err(failure)) => return Some(failure),
            Err(_) => return Some(Failure::Manager(FailureKind::Timeout.into())),
        };
        let failure = self.carry(flow, &arrived, &drops).await;
        drops.add(Reason::DatagramQueue, self.output.dropped());
        failure
    }

    async fn carry(
        &mut self,
        mut flow: DatagramFlow,
        arrived: &mpsc::Sender<Arrived>,
        drops: &Drops,
    ) -> Option<Failure> {
        let key = self.key;
        let mut over = Instant::now() + idle(&key);
        loop {
            tokio::select! {
                datagram = self.output.recv() => {
                    if flow.send(datagram?).is_err() {
                        return refused(&flow);
                    }
                }
                payload = flow.recv() => {
                    let Some(payload) = payload else {
                        return refused(&flow);
                    };
                    if arrived.try_send(Arrived { key, payload }).is_err() {
                        drops.count(Reason::TransmitQueue);
                    }
                }
                () = sleep_until(over) => return None,
            }
            over = Instant::now() + idle(&key);
        }
    }
}

fn refused(flow: &DatagramFlow) -> Option<Failure> {
    let refused = || Failure::Manager(FailureKind::Refused.into());
    flow.is_refused().then(refused)
}

fn idle(key: &DatagramKey) -> Duration {
    match key.kind {
        Kind::Udp if key.ends.destination.port() == 53 => DNS_IDLE,
        Kind::Udp => IDLE,
        Kind::Echo => ECHO_IDLE,
    }
}
