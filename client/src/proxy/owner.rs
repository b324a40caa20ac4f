//! Whose a socket of this machine is, by the kernel's tables: other users reach loopback, too, and
//! a datagram carries no password.
//!
//! Where the tables cannot be read nobody is known, and who is heard is the caller's to decide.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddrV4};

/// The users that have the sockets in question, by number; empty when that is not known.
pub(crate) type Owners = BTreeSet<u32>;

/// Returns who has the near end of a connection over loopback.
pub(crate) fn of_connection(near: SocketAddrV4, far: SocketAddrV4) -> Owners {
    let (four, six) = (read("/proc/net/tcp"), read("/proc/net/tcp6"));
    let is_it = |local: &str, remote: &str, write: fn(SocketAddrV4) -> String| {
        local == write(near) && remote == write(far)
    };
    let mut owners = find(&four, |local, remote| is_it(local, remote, plain));
    owners.extend(find(&six, |local, remote| is_it(local, remote, mapped)));
    owners
}

/// Returns who may have sent a datagram from an address of loopback.
pub(crate) fn of_sender(from: SocketAddrV4) -> Owners {
    let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, from.port());
    let (four, six) = (read("/proc/net/udp"), read("/proc/net/udp6"));
    let mut owners = find(&four, |local, _| {
        local == plain(from) || local == plain(any)
    });
    let any_six = format!("{:032X}:{:04X}", 0, from.port());
    owners.extend(find(&six, |local, _| {
        local == mapped(from) || local == mapped(any) || local == any_six
    }));
    owners
}

/// Tells whether a datagram is the client's whose connection asked for it: all that may have sent
/// it are the client's. One that nobody has any longer is not.
pub(crate) fn is_same(client: &Owners, sender: &Owners) -> bool {
    client.is_empty() || !sender.is_empty() && sender.is_subset(client)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Returns the owners of a table's sockets whose local and remote addresses are meant.
fn find(table: &str, is_meant: impl Fn(&str, &str) -> bool) -> Owners {
    let owner = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (local, remote) = (fields.next()?, fields.next()?);
        let owner = fields.nth(4)?.parse().ok()?;
        is_meant(local, remote).then_some(owner)
    };
    table.lines().skip(1).filter_map(owner).collect()
}

/// Writes an address as the tables of IPv4 do: one word in the order of the machine.
fn plain(address: SocketAddrV4) -> String {
    format!("{:08X}:{:04X}", word(address), address.port())
}

/// Writes an IPv4 address as the tables of IPv6 do: four words.
fn mapped(address: SocketAddrV4) -> String {
    let mark = u32::from_ne_bytes([0, 0, 0xff, 0xff]);
    let port = address.port();
    format!("{:016X}{mark:08X}{:08X}:{port:04X}", 0, word(address))
}

fn word(address: SocketAddrV4) -> u32 {
    u32::from_ne_bytes(address.ip().octets())
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

    use super::*;

    fn four(address: SocketAddr) -> SocketAddrV4 {
        match address {
            SocketAddr::V4(four) => four,
            SocketAddr::V6(six) => panic!("{six}"),
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn owners_are_found_by_the_addresses_of_their_sockets() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
            7: 0100007F:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 1 2 0 0\n\
            8: 00000000:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000  1001        0 1 2 0 0\n\
            9: 0200007F:1F90 00000000:0000 07 00000000:00000000 00:00000000 00000000  1002        0 1 2 0 0\n\
            nonsense\n";
        let at = |text: &str| text.parse().unwrap();
        let owners = |address| find(table, |local, _| local == plain(at(address)));
        assert_eq!(owners("127.0.0.1:8080"), [1000].into());
        assert_eq!(owners("0.0.0.0:8080"), [1001].into());
        assert_eq!(owners("127.0.0.1:8081"), [].into());
        assert_eq!(
            mapped(at("127.0.0.1:8080")),
            "0000000000000000FFFF00000100007F:1F90"
        );
    }

    #[test]
    fn only_who_has_the_connection_may_send() {
        let set = |users: &[u32]| users.iter().copied().collect::<Owners>();
        for (client, sender, may) in [
            (&[1000][..], &[1000][..], true),
            (&[1000], &[1001], false),
            (&[1000], &[1000, 1001], false),
            // It was closed again.
            (&[1000], &[], false),
            // There are no tables.
            (&[], &[], true),
        ] {
            let said = is_same(&set(client), &set(sender));
            assert_eq!(said, may, "{client:?} {sender:?}");
        }
    }

    #[test]
    fn both_sockets_of_a_program_have_the_same_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        let stream = TcpStream::connect(there).unwrap();
        let client = of_connection(four(stream.local_addr().unwrap()), four(there));
        assert_eq!(client.len(), 1);
        for at in ["127.0.0.1:0", "0.0.0.0:0"] {
            let socket = UdpSocket::bind(at).unwrap();
            let port = socket.local_addr().unwrap().port();
            let from = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
            assert_eq!(of_sender(from), client, "{at}");
        }
    }
}
