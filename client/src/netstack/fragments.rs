//! Puts fragmented packets together again. Pure: time is an argument.
//!
//! Only what the laptop's own kernel cuts comes here, so nothing is kept for a long time, and a
//! packet whose fragments overlap is given up (RFC 5722).

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::drops::Reason;
use super::packet::{Fragment, Packet, Protocol};
use super::replies;

/// How many packets may be incomplete at once: at the longest packet each, 16 MiB.
const PACKETS: usize = 256;

/// The longest payload of a packet.
const LONGEST: usize = 65_535;

/// How long a packet may be incomplete: its fragments come one right after the other.
const LIFETIME: Duration = Duration::from_secs(5);

/// Packets that are not complete yet.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    partials: HashMap<Key, Partial>,
    expiries: BTreeSet<(Instant, Key)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    id: u32,
}

#[derive(Debug)]
struct Partial {
    bytes: Vec<u8>,
    /// What was received, in order and apart.
    ranges: Vec<(usize, usize)>,
    /// The payload's length, once its last fragment is there.
    length: Option<usize>,
    expiry: Instant,
}

impl Fragments {
    /// Takes a fragment; returns the whole packet if this was the last one missing.
    pub(super) fn add(
        &mut self,
        packet: &Packet<'_>,
        fragment: Fragment,
        now: Instant,
    ) -> Result<Option<Vec<u8>>, Reason> {
        let key = Key {
            source: packet.source,
            destination: packet.destination,
            protocol: packet.protocol,
            id: fragment.id,
        };
        if !self.partials.contains_key(&key) {
            if self.partials.len() >= PACKETS {
                return Err(Reason::Fragment);
            }
            let expiry = now + LIFETIME;
            self.expiries.insert((expiry, key));
            self.partials.insert(key, Partial::new(expiry));
        }
        let Some(partial) = self.partials.get_mut(&key) else {
            return Err(Reason::Fragment);
        };
        match partial.add(packet.payload, fragment) {
            Ok(false) => Ok(None),
            Ok(true) => Ok(self.remove(&key).map(|partial| {
                let (from, to) = (key.source, key.destination);
                replies::packet(from, to, key.protocol, &partial.bytes)
            })),
            Err(reason) => {
                self.remove(&key);
                Err(reason)
            }
        }
    }

    /// When the next packet is given up.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.expiries.first().map(|(expiry, _)| *expiry)
    }

    /// Gives up the packets whose time is over, and says how many those were.
    pub(super) fn expire(&mut self, now: Instant) -> u64 {
        let mut expired = 0;
        while let Some((expiry, key)) = self.expiries.first().copied()
            && expiry <= now
        {
            self.remove(&key);
            expired += 1;
        }
        expired
    }

    fn remove(&mut self, key: &Key) -> Option<Partial> {
        let partial = self.partials.remove(key)?;
        self.expiries.remove(&(partial.expiry, *key));
        Some(partial)
    }
}

impl Partial {
    fn new(expiry: Instant) -> Self {
        Self {
            bytes: Vec::new(),
            ranges: Vec::new(),
            length: None,
            expiry,
        }
    }

    /// Takes a fragment and tells whether the packet is complete.
    fn add(&mut self, payload: &[u8], fragment: Fragment) -> Result<bool, Reason> {
        let (start, end) = (fragment.offset, fragment.offset + payload.len());
        let is_cut_well = !fragment.more || payload.len().is_multiple_of(8);
        if end > LONGEST || payload.is_empty() || !is_cut_well {
            return Err(Reason::Fragment);
        }
        if self.ranges.contains(&(start, end)) {
            return Ok(false);
        }
        if self
            .ranges
            .iter()
            .any(|range| start < range.1 && range.0 < end)
        {
            return Err(Reason::Fragment);
        }
        if !fragment.more {
            let is_second = self.length.is_some();
            let is_behind = self.ranges.last().is_none_or(|range| range.1 <= start);
            if is_second || !is_behind {
                return Err(Reason::Fragment);
            }
            self.length = Some(end);
        } else if self.length.is_some_and(|length| end > length) {
            return Err(Reason::Fragment);
        }
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(payload);
        let place = self.ranges.partition_point(|range| range.0 < start);
        self.ranges.insert(place, (start, end));
        let covered: usize = self.ranges.iter().map(|range| range.1 - range.0).sum();
        Ok(self.length == Some(covered))
    }
}

#[cfg(test)]
mod tests;
