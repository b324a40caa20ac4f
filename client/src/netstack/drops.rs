//! Why packets were dropped, and how many for each reason.

use std::sync::atomic::{AtomicU64, Ordering};

/// A reason to drop a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    /// Its headers make no sense.
    Malformed,
    /// It is for a group or for everybody.
    NotUnicast,
    /// Its protocol is not carried.
    Protocol,
    /// Its destination is none of the cluster's.
    Outside,
    /// It belongs to no flow.
    NoFlow,
    /// A fragment that fits nothing, or came when too many packets were incomplete.
    Fragment,
    /// Its packet was not complete in time.
    FragmentTimeout,
    /// Too many connections were being opened.
    HalfOpen,
    /// The session has as many flows as it may.
    FlowLimit,
    /// A datagram that newer ones pushed out before it could be sent.
    DatagramQueue,
    /// There was no room for a packet toward the laptop.
    TransmitQueue,
    /// A DNS query there was no room for.
    DnsLimit,
    /// The device failed to take it.
    Device,
}

impl Reason {
    /// All reasons, in the order of their counters.
    pub(super) const ALL: [Self; 13] = [
        Self::Malformed,
        Self::NotUnicast,
        Self::Protocol,
        Self::Outside,
        Self::NoFlow,
        Self::Fragment,
        Self::FragmentTimeout,
        Self::HalfOpen,
        Self::FlowLimit,
        Self::DatagramQueue,
        Self::TransmitQueue,
        Self::DnsLimit,
        Self::Device,
    ];

    /// Names the reason in `status`.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NotUnicast => "not-unicast",
            Self::Protocol => "protocol",
            Self::Outside => "outside",
            Self::NoFlow => "no-flow",
            Self::Fragment => "fragment",
            Self::FragmentTimeout => "fragment-timeout",
            Self::HalfOpen => "half-open",
            Self::FlowLimit => "flow-limit",
            Self::DatagramQueue => "datagram-queue",
            Self::TransmitQueue => "transmit-queue",
            Self::DnsLimit => "dns-limit",
            Self::Device => "device",
        }
    }
}

/// Counts dropped packets.
#[derive(Debug, Default)]
pub(super) struct Drops([AtomicU64; Reason::ALL.len()]);

impl Drops {
    /// Counts one packet.
    pub(super) fn count(&self, reason: Reason) {
        self.add(reason, 1);
    }

    /// Counts several packets.
    pub(super) fn add(&self, reason: Reason, packets: u64) {
        self.0[reason as usize].fetch_add(packets, Ordering::Relaxed);
        tracing::trace!(reason = reason.word(), packets, "packet dropped");
    }

    /// Returns how many packets were dropped for a reason.
    pub(super) fn of(&self, reason: Reason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_counter_of_its_own() {
        let drops = Drops::default();
        for (number, reason) in (1..).zip(Reason::ALL) {
            drops.add(reason, number);
        }

        for (number, reason) in (1..).zip(Reason::ALL) {
            assert_eq!(drops.of(reason), number, "{}", reason.word());
        }
    }
}
