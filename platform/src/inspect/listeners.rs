//! Who listens on a port of this machine.
//!
//! Reading is of `/proc`; the tables are parsed by pure functions. Which process it is can be told
//! of one's own processes, and by root of all.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use crate::sys::Sys;

/// How the kernel writes the state of a listening TCP socket.
const LISTENING: &str = "0A";

/// A socket that waits for somebody.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listener {
    /// `udp` or `tcp`.
    pub protocol: &'static str,
    /// Where it listens.
    pub address: SocketAddr,
    /// Its process, by name, where this user may know.
    pub process: Option<String>,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    address: SocketAddr,
    inode: u64,
}

/// Lists who listens on a port.
#[must_use]
pub fn listeners(sys: &Sys, port: u16) -> Vec<Listener> {
    let tables = [
        ("udp", "/proc/net/udp"),
        ("udp", "/proc/net/udp6"),
        ("tcp", "/proc/net/tcp"),
        ("tcp", "/proc/net/tcp6"),
    ];
    let mut found = Vec::new();
    for (protocol, path) in tables {
        let text = std::fs::read_to_string(sys.path(Path::new(path))).unwrap_or_default();
        let rows = rows(&text, port, protocol == "tcp");
        found.extend(rows.into_iter().map(|row| (protocol, row)));
    }
    if found.is_empty() {
        return Vec::new();
    }
    let processes = processes(sys);
    let mut listeners: Vec<_> = found
        .into_iter()
        .map(|(protocol, Row { address, inode })| Listener {
            protocol,
            address,
            process: processes.get(&inode).cloned(),
        })
        .collect();
    listeners.sort();
    listeners.dedup();
    listeners
}

/// Reads the rows of a port: of UDP those without a peer, of TCP those that listen.
fn rows(text: &str, port: u16, is_tcp: bool) -> Vec<Row> {
    let lines = text.lines().skip(1);
    lines
        .filter_map(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            let (local, peer, state) = (fields.get(1)?, fields.get(2)?, fields.get(3)?);
            let waits = match is_tcp {
                true => *state == LISTENING,
                false => peer.ends_with(":0000"),
            };
            let address = socket_address(local).filter(|address| address.port() == port)?;
            let inode = fields.get(9)?.parse().ok()?;
            waits.then_some(Row { address, inode })
        })
        .collect()
}

/// The kernel writes words of four bytes in the order of the machine.
fn socket_address(field: &str) -> Option<SocketAddr> {
    let (digits, port) = field.split_once(':')?;
    let word = |digits: &str| u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes);
    let address: IpAddr = match digits.len() {
        8 => Ipv4Addr::from(word(digits)?).into(),
        32 => {
            let mut octets = [0; 16];
            for (place, octets) in octets.chunks_exact_mut(4).enumerate() {
                octets.copy_from_slice(&word(digits.get(place * 8..place * 8 + 8)?)?);
            }
            Ipv6Addr::from(octets).into()
        }
        _ => return None,
    };
    Some((address, u16::from_str_radix(port, 16).ok()?).into())
}

/// The names of processes by the sockets they have open.
fn processes(sys: &Sys) -> BTreeMap<u64, String> {
    let mut known = BTreeMap::new();
    let Ok(entries) = std::fs::read_dir(sys.path(Path::new("/proc"))) else {
        return known;
    };
    for entry in entries.flatten() {
        let number = entry.file_name();
        let is_process = number.to_str().is_some_and(|text| {
            let mut octets = text.bytes();
            octets.all(|octet| octet.is_ascii_digit())
        });
        let Some(open) = std::fs::read_dir(entry.path().join("fd"))
            .ok()
            .filter(|_| is_process)
        else {
            continue;
        };
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let words = format!("{} (pid {})", name.trim(), number.display());
        for descriptor in open.flatten() {
            let target = std::fs::read_link(descriptor.path()).unwrap_or_default();
            let inode = target.to_str().and_then(|text| {
                let digits = text.strip_prefix("socket:[")?.strip_suffix(']')?;
                digits.parse().ok()
            });
            known.extend(inode.map(|inode| (inode, words.clone())));
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    const UDP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
        1: 3500007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 4711 2 x 0\n\
        2: 0100007F:0035 0100007F:9999 01 00000000:00000000 00:00000000 00000000   101        0 4712 2 x 0\n\
        3: 00000000:0044 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 4713 2 x 0\n";
    const TCP6: &str = "  sl  local_address remote_address st\n\
        1: 00000000000000000000000001000000:0035 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 5711 1\n\
        2: 00000000000000000000000001000000:0035 00000000000000000000000001000000:9999 01 0:0 00:0 0 0 0 5712 1\n";

    #[cfg(target_endian = "little")]
    #[test]
    fn only_sockets_that_wait_for_somebody_on_the_port_are_listed() {
        let udp = rows(UDP, 53, false);
        let expected = Row {
            address: "127.0.0.53:53".parse().unwrap(),
            inode: 4711,
        };
        assert_eq!(udp, [expected]);
        let tcp = rows(TCP6, 53, true);
        let expected = Row {
            address: "[::1]:53".parse().unwrap(),
            inode: 5711,
        };
        assert_eq!(tcp, [expected]);
        assert_eq!(rows("nonsense\nmore 1 2\n", 53, true), []);
    }

    #[test]
    fn a_socket_of_this_process_is_found_with_its_name() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let found = listeners(&Sys::default(), address.port());
        let own = found.iter().find(|one| one.address == address).unwrap();
        let pid = format!("(pid {})", std::process::id());
        assert_eq!(own.protocol, "udp");
        assert!(own.process.as_ref().unwrap().ends_with(&pid), "{own:?}");
    }
}
