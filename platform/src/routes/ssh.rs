//! Who is logged in to this machine, or where it is logged in, over SSH.
//!
//! Pure: text in, addresses out. A route over such an address would cut the user off.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The port of SSH.
const SSH_PORT: u16 = 22;

/// How the kernel writes the state of an established connection.
const ESTABLISHED: &str = "01";

/// Reads the peer out of `SSH_CONNECTION`: client address and port, server address and port.
pub(super) fn of_variable(text: &str) -> Option<IpAddr> {
    let first = text.split_whitespace().next()?;
    // A link-local peer has its interface behind it.
    let address = first.split('%').next()?;
    address
        .parse()
        .ok()
        .map(|address: IpAddr| address.to_canonical())
}

/// Reads the peers of established SSH connections, either way, out of `/proc/net/tcp` or `tcp6`.
pub(super) fn of_table(text: &str) -> Vec<IpAddr> {
    let mut peers = Vec::new();
    for line in text.lines().skip(1) {
        let mut fields = line.split_whitespace().skip(1);
        let (Some(local), Some(peer), Some(state)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let ports = [port(local), port(peer)];
        if state == ESTABLISHED
            && ports.contains(&Some(SSH_PORT))
            && let Some(address) = address(peer)
            && !address.is_loopback()
            && !peers.contains(&address)
        {
            peers.push(address);
        }
    }
    peers
}

fn port(field: &str) -> Option<u16> {
    let (_, port) = field.split_once(':')?;
    u16::from_str_radix(port, 16).ok()
}

/// The kernel writes words of four bytes in the order of the machine.
fn address(field: &str) -> Option<IpAddr> {
    let (digits, _) = field.split_once(':')?;
    let word = |digits: &str| u32::from_str_radix(digits, 16).map(u32::to_ne_bytes);
    match digits.len() {
        8 => Some(Ipv4Addr::from(word(digits).ok()?).into()),
        32 => {
            let mut bytes = [0; 16];
            for (place, at) in (0..32).step_by(8).enumerate() {
                let word = word(digits.get(at..at + 8)?).ok()?;
                bytes[4 * place..4 * place + 4].copy_from_slice(&word);
            }
            Some(IpAddr::from(Ipv6Addr::from(bytes)).to_canonical())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peer_of_a_login_is_known_by_its_variable() {
        for (text, peer) in [
            ("192.0.2.7 50412 198.51.100.1 22", Some("192.0.2.7")),
            ("::ffff:192.0.2.7 50412 ::1 22", Some("192.0.2.7")),
            ("fe80::1%eth0 1 fe80::2%eth0 22", Some("fe80::1")),
            ("UNKNOWN 65535 UNKNOWN 65535", None),
            ("", None),
        ] {
            let peer = peer.map(|peer| peer.parse().unwrap());
            assert_eq!(of_variable(text), peer, "{text}");
        }
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn established_connections_of_port_22_have_peers_either_way() {
        let four = "  sl  local_address rem_address   st tx_queue\n\
            0: 0100007F:0016 0100007F:C001 01 0\n\
            1: 0A0200C0:0016 0702000A:C002 01 0\n\
            2: 0A0200C0:C003 0802000A:0016 01 0\n\
            3: 0A0200C0:0016 0902000A:C004 06 0\n\
            4: 0A0200C0:01BB 0A02000A:C005 01 0\n\
            5: nonsense\n";
        assert_eq!(
            of_table(four),
            ["10.0.2.7", "10.0.2.8"].map(|text| text.parse::<IpAddr>().unwrap())
        );
        let six = "  sl  local_address remote_address st\n\
            0: 0000000000000000FFFF00000A0200C0:0016 0000000000000000FFFF00000702000A:C001 01\n\
            1: 000000FD000000000000000001000000:0016 000000FD000000000000000002000000:C001 01\n";
        assert_eq!(
            of_table(six),
            ["10.0.2.7", "fd00::2"].map(|text| text.parse::<IpAddr>().unwrap())
        );
    }
}
