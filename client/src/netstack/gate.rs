//! Connections that were asked for and not answered yet. Pure.
//!
//! A SYN is held until the far end was dialled, so the laptop learns what the far end said: smoltcp
//! is only told of connections that exist. Repeated SYNs join the first.

use std::collections::HashMap;

use super::packet::FlowKey;

/// How many connections may be waiting for their far end: what a browser and a test suite open at
/// once, and less than the manager dials at a time.
pub(super) const HALF_OPEN: usize = 512;

/// The SYNs that wait.
#[derive(Debug, Default)]
pub(super) struct Gate {
    held: HashMap<FlowKey, Vec<u8>>,
}

/// What is to be done about a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Dial the far end.
    Dial,
    /// Nothing: it is being dialled.
    Wait,
    /// Nothing: too many are being dialled, and the laptop asks again.
    Full,
}

impl Gate {
    /// Takes a SYN.
    pub(super) fn knock(&mut self, key: FlowKey, syn: &[u8]) -> Verdict {
        if let Some(held) = self.held.get_mut(&key) {
            // The newest has the times and, after a quick end and new begin, the numbers that count.
            held.clear();
            held.extend_from_slice(syn);
            return Verdict::Wait;
        }
        if self.held.len() >= HALF_OPEN {
            return Verdict::Full;
        }
        self.held.insert(key, syn.to_vec());
        Verdict::Dial
    }

    /// Gives the SYN back once the far end has spoken; `None` if the laptop gave up.
    pub(super) fn settle(&mut self, key: &FlowKey) -> Option<Vec<u8>> {
        self.held.remove(key)
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(port: u16) -> FlowKey {
        FlowKey {
            source: ([198, 19, 248, 1], port).into(),
            destination: ([10, 96, 0, 1], 443).into(),
        }
    }

    #[test]
    fn f1_repeated_syns_wait_for_one_dial_and_the_newest_is_answered() {
        let mut gate = Gate::default();

        assert_eq!(gate.knock(key(1), b"first"), Verdict::Dial);
        assert_eq!(gate.knock(key(1), b"again"), Verdict::Wait);
        assert_eq!(gate.knock(key(2), b"other"), Verdict::Dial);

        assert_eq!(gate.settle(&key(1)), Some(b"again".to_vec()));
        assert_eq!(gate.settle(&key(1)), None);
        assert_eq!(gate.knock(key(1), b"anew"), Verdict::Dial);
    }

    #[test]
    fn more_than_the_bound_are_not_dialled_until_one_has_settled() {
        let mut gate = Gate::default();
        for port in (1..).take(HALF_OPEN) {
            assert_eq!(gate.knock(key(port), b"syn"), Verdict::Dial);
        }

        assert_eq!(gate.knock(key(60_000), b"syn"), Verdict::Full);
        assert_eq!(gate.knock(key(1), b"syn"), Verdict::Wait);
        gate.settle(&key(7));
        assert_eq!(gate.knock(key(60_000), b"syn"), Verdict::Dial);
    }
}
