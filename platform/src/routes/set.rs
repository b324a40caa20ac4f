//! Sets of addresses as ranges: union, difference, and the fewest networks that make one up.
//!
//! Pure arithmetic; which addresses belong in a set is said elsewhere.

use std::borrow::Borrow;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::WIDEST;
use crate::net::{IpNet, Ipv4Net, Ipv6Net};

/// A set of addresses of both families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AddressSet {
    four: Ranges,
    six: Ranges,
}

/// Ranges of addresses of one family, first and last included: in order, disjoint, not adjacent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Ranges(Vec<(u128, u128)>);

impl AddressSet {
    /// Makes the set of the addresses of these networks.
    pub(super) fn of<N: Borrow<IpNet>>(nets: impl IntoIterator<Item = N>) -> Self {
        let (mut four, mut six) = (Vec::new(), Vec::new());
        for net in nets {
            match net.borrow() {
                IpNet::V4(net) => four.push(range4(net)),
                IpNet::V6(net) => six.push(range6(net)),
            }
        }
        Self {
            four: Ranges::of(four),
            six: Ranges::of(six),
        }
    }

    /// Returns the addresses that are not in `other`.
    pub(super) fn without(&self, other: &Self) -> Self {
        Self {
            four: self.four.without(&other.four),
            six: self.six.without(&other.six),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.four.0.is_empty() && self.six.0.is_empty()
    }

    /// Tells whether the set has an address of the network.
    pub(super) fn meets(&self, net: &IpNet) -> bool {
        match net {
            IpNet::V4(net) => self.four.meets(range4(net)),
            IpNet::V6(net) => self.six.meets(range6(net)),
        }
    }

    /// Returns the fewest networks that make the set up, in order, none wider than may be routed.
    pub(super) fn nets(&self) -> Vec<IpNet> {
        let four = self
            .four
            .blocks(32)
            .into_iter()
            .filter_map(|(start, prefix)| {
                let address = Ipv4Addr::from_bits(u32::try_from(start).ok()?);
                Ipv4Net::new(address, prefix).ok().map(IpNet::V4)
            });
        let six = self
            .six
            .blocks(128)
            .into_iter()
            .filter_map(|(start, prefix)| {
                let net = Ipv6Net::new(Ipv6Addr::from_bits(start), prefix);
                net.ok().map(IpNet::V6)
            });
        four.chain(six).collect()
    }
}

impl Ranges {
    fn of(mut ranges: Vec<(u128, u128)>) -> Self {
        ranges.sort_unstable();
        let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                Some(_) | None => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    fn without(&self, other: &Self) -> Self {
        let mut left = Vec::with_capacity(self.0.len());
        let mut holes = other.0.iter().peekable();
        for &(first, last) in &self.0 {
            let mut start = Some(first);
            while let Some(&&(hole_first, hole_last)) = holes.peek() {
                let Some(from) = start else { break };
                if hole_last < from {
                    holes.next();
                    continue;
                }
                if hole_first > last {
                    break;
                }
                if hole_first > from {
                    left.push((from, hole_first - 1));
                }
                if hole_last >= last {
                    // It may reach into the next range, too.
                    start = None;
                } else {
                    start = hole_last.checked_add(1);
                    holes.next();
                }
            }
            left.extend(start.map(|from| (from, last)));
        }
        Self(left)
    }

    fn meets(&self, (first, last): (u128, u128)) -> bool {
        let after = self.0.partition_point(|&(_, end)| end < first);
        self.0.get(after).is_some_and(|&(start, _)| start <= last)
    }

    /// Cuts the ranges into aligned blocks, each as big as may be: first address and prefix.
    fn blocks(&self, bits: u32) -> Vec<(u128, u8)> {
        let mut blocks = Vec::new();
        for &(first, last) in &self.0 {
            let mut start = first;
            loop {
                let size = block_bits(start, last, bits);
                blocks.push((start, (bits - size) as u8));
                let end = start | ones(size);
                if end >= last {
                    break;
                }
                start = end + 1;
            }
        }
        blocks
    }
}

/// How many low bits the biggest aligned block has that begins at `start`, ends by `last` and is no
/// wider than a route may be.
fn block_bits(start: u128, last: u128, bits: u32) -> u32 {
    let mut size = start.trailing_zeros().min(bits - u32::from(WIDEST));
    while start | ones(size) > last {
        size -= 1;
    }
    size
}

fn ones(bits: u32) -> u128 {
    1u128.checked_shl(bits).map_or(u128::MAX, |power| power - 1)
}

fn range4(net: &Ipv4Net) -> (u128, u128) {
    let first = u128::from(net.address().to_bits());
    (first, first | ones(32 - u32::from(net.prefix())))
}

fn range6(net: &Ipv6Net) -> (u128, u128) {
    let first = net.address().to_bits();
    (first, first | ones(128 - u32::from(net.prefix())))
}
