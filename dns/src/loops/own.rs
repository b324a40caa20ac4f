//! Which upstream addresses are our own sockets. Pure.
//!
//! Knows nothing of what lies in between: an address that is translated on its way to us is found
//! by the list of our Services' addresses, or else by a probe.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// What is known about the addresses under which we are reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OwnAddresses {
    /// The sockets we listen on, as they were bound.
    pub bound: BTreeSet<SocketAddr>,
    /// The addresses of this machine's or pod's interfaces, and those the cluster says it has.
    pub local: BTreeSet<IpAddr>,
    /// Addresses and ports that lead to us from elsewhere, as those of our own Services do.
    pub published: BTreeSet<SocketAddr>,
}

impl OwnAddresses {
    /// Says whether packets to the address end on one of our sockets.
    pub fn include(&self, upstream: SocketAddr) -> bool {
        let address = plain(upstream.ip());
        let port = upstream.port();
        let is_published =
            |published: &SocketAddr| published.port() == port && plain(published.ip()) == address;
        self.published.iter().any(is_published)
            || self
                .bound
                .iter()
                .any(|bound| bound.port() == port && self.reaches(address, *bound))
    }

    /// Says whether an address leads to a socket whose port is the right one.
    fn reaches(&self, address: IpAddr, bound: SocketAddr) -> bool {
        let own = plain(bound.ip());
        // A packet to no address in particular goes to this machine itself.
        if address.is_unspecified() {
            let loopback = |ip: IpAddr| ip.is_loopback() && ip.is_ipv4() == address.is_ipv4();
            return own.is_unspecified() || loopback(own) || own.is_loopback();
        }
        if !own.is_unspecified() {
            return own == address;
        }
        // A wildcard socket of IPv6 mostly takes IPv4 too; one of IPv4 never takes IPv6.
        let takes_family = address.is_ipv4() || bound.is_ipv6();
        takes_family && (address.is_loopback() || self.is_local(address))
    }

    fn is_local(&self, address: IpAddr) -> bool {
        self.local.iter().any(|local| plain(*local) == address)
    }
}

/// Takes an IPv4 address out of its IPv6 form.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(bound: &[&str]) -> OwnAddresses {
        OwnAddresses {
            bound: bound.iter().map(|text| text.parse().unwrap()).collect(),
            local: [
                "127.0.0.1",
                "::1",
                "10.244.1.11",
                "fd00::11",
                "198.51.100.10",
            ]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect(),
            published: ["10.96.0.53:53", "[fd00:96::53]:53", "203.0.113.7:53"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect(),
        }
    }

    fn check(bound: &[&str], table: &[(&str, bool)]) {
        let own = own(bound);
        for (upstream, ours) in table {
            assert_eq!(
                own.include(upstream.parse().unwrap()),
                *ours,
                "{bound:?} {upstream}"
            );
        }
    }

    #[test]
    fn loops_01_loopback_and_unspecified_upstreams_with_our_port_are_ours() {
        check(
            &["0.0.0.0:53"],
            &[
                ("127.0.0.1:53", true),
                ("127.9.9.9:53", true),
                ("0.0.0.0:53", true),
                ("[::ffff:127.0.0.1]:53", true),
                ("[::ffff:10.244.1.11]:53", true),
                ("[::1]:53", false),
            ],
        );
        check(
            &["[::]:53"],
            &[
                ("127.0.0.1:53", true),
                ("[::1]:53", true),
                ("[::]:53", true),
                ("0.0.0.0:53", true),
                ("[fd00::11]:53", true),
                ("[::ffff:127.0.0.1]:53", true),
            ],
        );
        check(
            &["127.0.0.1:1053"],
            &[
                ("127.0.0.1:1053", true),
                ("[::ffff:127.0.0.1]:1053", true),
                ("0.0.0.0:1053", true),
                ("127.0.0.2:1053", false),
                ("10.244.1.11:1053", false),
            ],
        );
    }

    #[test]
    fn loops_02_another_port_or_owner_on_loopback_is_not_ours() {
        check(
            &["0.0.0.0:53", "127.0.0.1:1053"],
            &[
                ("127.0.0.1:5353", false),
                ("127.0.0.53:1053", false),
                ("[::1]:1053", false),
            ],
        );
        check(
            &["10.244.1.11:53"],
            &[("127.0.0.1:53", false), ("10.244.1.12:53", false)],
        );
    }

    #[test]
    fn loops_03_every_address_of_an_interface_is_ours_behind_a_wildcard() {
        check(
            &["0.0.0.0:53", "[::]:53"],
            &[
                ("10.244.1.11:53", true),
                ("[fd00::11]:53", true),
                ("198.51.100.10:53", true),
                ("10.244.1.12:53", false),
                ("198.51.100.10:5353", false),
            ],
        );
    }

    #[test]
    fn loops_04_an_address_of_our_service_is_ours_at_its_own_port() {
        check(
            &["0.0.0.0:1053"],
            &[
                ("10.96.0.53:53", true),
                ("[fd00:96::53]:53", true),
                ("[::ffff:203.0.113.7]:53", true),
                ("10.96.0.53:1053", false),
                ("10.96.0.10:53", false),
            ],
        );
    }

    #[test]
    fn nothing_is_ours_before_anything_is_bound() {
        let own = OwnAddresses::default();
        assert!(!own.include("127.0.0.1:53".parse().unwrap()));
    }
}
