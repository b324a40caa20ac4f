//! Connections that were asked for and not answered yet. Pure.
//!
//! A SYN is held until the far end was dialled, so the laptop learns what the far end said: smoltcp
//! is only told of connections that exist. Repeated SYNs join the first.

use std::collections::HashMap;

use super::packet::FlowKey;
use crate::reachable::Hold;

/// How many connections may be waiting for their far end: what a browser and a test suite open at
/// once, and less than the manager dials at a time.
pub(super) const HALF_OPEN: usize = 512;

/// The SYNs that wait.
#[derive(Debug, Default)]
pub(super) struct Gate {
    held: HashMap<FlowKey, Knock>,
}

/// A SYN that waits.
#[derive(Debug)]
pub(super) struct Knock {
    /// The packet.
    pub(super) syn: Vec<u8>,
    /// The right to go there.
    pub(super) hold: Hold,
}

impl Gate {
    /// Joins a SYN to the one that waits for the same connection, if one does.
    pub(super) fn join(&mut self, key: &FlowKey, syn: &[u8]) -> bool {
        let Some(knock) = self.held.get_mut(key) else {
            return false;
        };
        // The newest has the times and, after a quick end and new begin, the numbers that count.
        knock.syn.clear();
        knock.syn.extend_from_slice(syn);
        true
    }

    /// Whether as many wait as may.
    pub(super) fn is_full(&self) -> bool {
        self.held.len() >= HALF_OPEN
    }

    /// Has a SYN wait.
    pub(super) fn hold(&mut self, key: FlowKey, syn: &[u8], hold: Hold) {
        let syn = syn.to_vec();
        self.held.insert(key, Knock { syn, hold });
    }

    /// Gives the SYN back once the far end has spoken; `None` if the laptop gave up.
    pub(super) fn settle(&mut self, key: &FlowKey) -> Option<Knock> {
        self.held.remove(key)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kubebridge_platform::net::IpNet;
    use tokio::time::Instant;

    use super::*;
    use crate::reachable::{Holds, Reachable};

    fn key(port: u16) -> FlowKey {
        FlowKey {
            source: ([198, 19, 248, 1], port).into(),
            destination: ([10, 96, 0, 1], 443).into(),
        }
    }

    fn hold() -> Hold {
        let net: IpNet = "10.96.0.0/16".parse().unwrap();
        let reachable = Reachable::new(vec![net], BTreeMap::new(), Holds::default());
        let address = key(1).destination.ip();
        reachable.admit(address, Instant::now()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn f1_repeated_syns_join_the_first_and_the_newest_is_given_back() {
        let mut gate = Gate::default();

        assert!(!gate.join(&key(1), b"first"));
        gate.hold(key(1), b"first", hold());
        assert!(gate.join(&key(1), b"again"));
        assert!(!gate.join(&key(2), b"other"));

        assert_eq!(gate.settle(&key(1)).unwrap().syn, b"again");
        assert!(gate.settle(&key(1)).is_none());
        assert!(!gate.join(&key(1), b"anew"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_gate_is_full_until_one_has_settled() {
        let mut gate = Gate::default();
        for port in (1..).take(HALF_OPEN) {
            assert!(!gate.is_full());
            gate.hold(key(port), b"syn", hold());
        }

        assert!(gate.is_full());
        gate.settle(&key(7));
        assert!(!gate.is_full());
        assert_eq!(gate.len(), HALF_OPEN - 1);
    }
}
