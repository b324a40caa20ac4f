//! The reverse zones of a network: cut at octets or nibbles, never wider than the network.

use std::net::Ipv4Addr;

use super::IpNet;

/// The most reverse zones put on a link: resolved keeps 256 domains a link and forgets all of them
/// when one too many is sent, so both halves of our list stay far below that.
pub const MAX_REVERSE_ZONES: usize = 32;

/// The reverse zones of several networks, and the networks that got none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReverseZones {
    /// Zones without trailing dot, in the order of the networks, each once.
    pub zones: Vec<String>,
    /// Networks left out because they would need too many zones.
    pub skipped: Vec<IpNet>,
}

/// Computes the reverse zones of `nets`, at most [`MAX_REVERSE_ZONES`] in all.
pub fn reverse_zones(nets: &[IpNet]) -> ReverseZones {
    let mut out = ReverseZones::default();
    for net in nets {
        let fresh: Option<Vec<String>> = net
            .reverse_zones()
            .map(|zones| {
                zones
                    .into_iter()
                    .filter(|zone| !out.zones.contains(zone))
                    .collect()
            })
            .filter(|fresh: &Vec<String>| out.zones.len() + fresh.len() <= MAX_REVERSE_ZONES);
        match fresh {
            Some(fresh) => out.zones.extend(fresh),
            None => out.skipped.push(*net),
        }
    }
    out
}

impl IpNet {
    /// Returns the reverse zones that cover exactly this network, or `None` when that takes more
    /// than [`MAX_REVERSE_ZONES`] of them (or would take the whole reverse tree).
    ///
    /// Zones are cut at octets (IPv4) or nibbles (IPv6) and are never wider than the network.
    pub fn reverse_zones(&self) -> Option<Vec<String>> {
        let unit = match self {
            Self::V4(_) => 8,
            Self::V6(_) => 4,
        };
        let prefix = self.prefix();
        let zone = prefix.div_ceil(unit) * unit;
        if prefix == 0 || 1usize << (zone - prefix) > MAX_REVERSE_ZONES {
            return None;
        }
        Some(match self {
            Self::V4(net) => net
                .subnets(zone)
                .map(|net| zone4(net.address, zone / 8))
                .collect(),
            Self::V6(net) => (0..1u128 << (zone - prefix))
                .map(|n| net.address.to_bits() | (n << (128 - zone)))
                .map(|bits| zone6(bits, zone / 4))
                .collect(),
        })
    }
}

fn zone4(address: Ipv4Addr, octets: u8) -> String {
    let mut zone = String::new();
    for octet in address.octets()[..usize::from(octets)].iter().rev() {
        zone.push_str(&format!("{octet}."));
    }
    zone + "in-addr.arpa"
}

fn zone6(bits: u128, nibbles: u8) -> String {
    let mut zone = String::new();
    for nibble in (0..nibbles).rev() {
        zone.push_str(&format!(
            "{:x}.",
            (bits >> (124 - 4 * u32::from(nibble))) & 0xf
        ));
    }
    zone + "ip6.arpa"
}
