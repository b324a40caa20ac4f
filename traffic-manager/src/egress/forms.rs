//! The IPv4 addresses that an IPv6 address may lead to by translation or a tunnel.
//!
//! Whether there is such a gateway is not known here; what it would lead to must be allowed in any case.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns an address, and after it every IPv4 address written into it.
pub fn forms(address: IpAddr) -> impl Iterator<Item = IpAddr> {
    let inner = match address {
        IpAddr::V4(_) => Vec::new(),
        IpAddr::V6(v6) => embedded(v6),
    };
    std::iter::once(address).chain(inner.into_iter().map(IpAddr::V4))
}

/// Returns the IPv4 addresses written into an IPv6 address, by the prefixes that say so.
fn embedded(address: Ipv6Addr) -> Vec<Ipv4Addr> {
    let bits = address.to_bits();
    // The 32 bits that begin `from` bits after the front.
    let at = |from: u32| word(bits >> (96 - from));
    let low = at(96);
    let starts = |prefix: u128, length: u32| bits >> (128 - length) == prefix;
    let mut found = Vec::new();
    // Mapped (::ffff:a.b.c.d), the deprecated compatible form, and translated (RFC 2765).
    if starts(0xffff, 96) || (starts(0, 96) && bits > 1) || starts(0xffff_0000, 96) {
        found.push(low);
    }
    // NAT64 (RFC 6052).
    if starts(0x0064_ff9b_0000_0000_0000_0000, 96) {
        found.push(low);
    }
    // NAT64 of the local network (RFC 8215), with each length of prefix that RFC 6052 §2.2 has room
    // for; bits 64 to 71 are left out there.
    if starts(0x0064_ff9b_0001, 48) {
        let around = |before: u32| {
            let after = 32 - before;
            let high = (bits >> 64) & ((1 << before) - 1);
            let low = (bits >> (56 - after)) & ((1 << after) - 1);
            word(high << after | low)
        };
        found.extend([around(16), around(8), at(72), low]);
    }
    // 6to4 (RFC 3056).
    if starts(0x2002, 16) {
        found.push(at(16));
    }
    // Teredo (RFC 4380): the server, and the client with its bits turned.
    if starts(0x2001_0000, 32) {
        found.extend([at(32), Ipv4Addr::from_bits(!low.to_bits())]);
    }
    // ISATAP (RFC 5214).
    if matches!((bits >> 32) & 0xffff_ffff, 0x0000_5efe | 0x0200_5efe) {
        found.push(low);
    }
    found
}

/// Returns the low 32 bits as an address.
fn word(bits: u128) -> Ipv4Addr {
    let [.., a, b, c, d] = bits.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_ipv4_address_is_found() {
        for text in [
            "::ffff:169.254.169.254",
            "::169.254.169.254",
            "::ffff:0:169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "64:ff9b:1:a9fe:a9:fe00::",
            "64:ff9b:1:a9:fe:a9fe::",
            "64:ff9b:1:0:a9:fea9:fe00:0",
            "2002:a9fe:a9fe::1",
            "2001:0:a9fe:a9fe:0:0:1:2",
            "2001:0:1:2:0:0:5601:5601",
            "2001:db8::5efe:a9fe:a9fe",
            "2001:db8::200:5efe:a9fe:a9fe",
        ] {
            let address: IpAddr = text.parse().unwrap();
            let metadata = IpAddr::from([169, 254, 169, 254]);
            let found: Vec<_> = forms(address).collect();
            assert_eq!(found[0], address);
            assert!(found[1..].contains(&metadata), "{text}: {found:?}");
        }
    }

    #[test]
    fn an_ordinary_address_has_one_form() {
        for text in ["10.96.0.1", "2001:db8::1", "fd00::1", "::1", "::"] {
            let address: IpAddr = text.parse().unwrap();
            assert_eq!(forms(address).collect::<Vec<_>>(), [address], "{text}");
        }
    }
}
