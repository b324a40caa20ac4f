//! Refuses to run in a node's own network (design §4): the loopback that gRPC listens on is then
//! shared with every process of the node.
//!
//! Asks nobody, so that no right is needed: goes by the addresses that the downward API gives, and
//! without them by whether a kubelet listens in our network. Judges only what runs as a pod: on a
//! machine of its own the program may share the network with whatever it likes.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::config::Config;
use crate::failure::{Exit, Failure};

/// Where the kubelet of a node listens, unless it was told otherwise; nothing in a pod of ours does.
const KUBELET: u16 = 10250;

/// What every pod has in its environment (Kubernetes sets it, whatever the pod asks for).
const OF_A_POD: &str = "KUBERNETES_SERVICE_HOST";

/// How the kernel's table of sockets writes that one listens.
const LISTENS: &str = "0A";

/// Addresses as the downward API gives them: separated by commas, and none while none is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses(pub BTreeSet<IpAddr>);

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let texts = text.split(',').map(str::trim).filter(|one| !one.is_empty());
        let parse = |one: &str| one.parse().map_err(|_| format!("{one:?} is no IP address"));
        texts.map(parse).collect::<Result<_, _>>().map(Self)
    }
}

impl fmt::Display for Addresses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        formatter.write_str(&texts.join(","))
    }
}

/// Fails where the program runs in the network of a node.
///
/// # Errors
/// With exit code 64, what shows it, and the fix.
pub fn refuse(config: &Config) -> Result<(), Failure> {
    let seen = Seen {
        pod: &config.pod_ips,
        host: &config.host_ips,
        is_pod: std::env::var_os(OF_A_POD).is_some(),
    };
    let tables = || {
        ["/proc/net/tcp", "/proc/net/tcp6"]
            .map(|path| std::fs::read_to_string(path).unwrap_or_default())
            .concat()
    };
    match seen.evidence(tables) {
        None => Ok(()),
        Some(evidence) => {
            let message = format!(
                "the pod runs with hostNetwork ({evidence}): every process of the node would reach gRPC"
            );
            let hint = "remove `hostNetwork: true` from the pod's spec";
            Err(Failure::new(Exit::Usage, message).hint(hint))
        }
    }
}

/// What is known about where we run.
struct Seen<'a> {
    pod: &'a Addresses,
    host: &'a Addresses,
    is_pod: bool,
}

impl Seen<'_> {
    /// Says what shows that the network is the node's; `tables` are the kernel's lists of TCP
    /// sockets, read only where nothing better is known.
    fn evidence(&self, tables: impl FnOnce() -> String) -> Option<String> {
        if !self.pod.0.is_empty() && !self.host.0.is_empty() {
            let shared = self.pod.0.intersection(&self.host.0).next();
            return shared.map(|ip| format!("its address {ip} is the node's"));
        }
        let kubelet = self.is_pod && listens(&tables(), KUBELET);
        kubelet.then(|| format!("a kubelet listens on port {KUBELET} in its network"))
    }
}

/// Whether a socket in a table of the kernel listens on a port: `SL LOCAL:PORT REMOTE:PORT STATE …`.
fn listens(table: &str, port: u16) -> bool {
    table.lines().any(|line| {
        let mut columns = line.split_whitespace().skip(1);
        let local = columns.next().and_then(|local| local.rsplit_once(':'));
        let state = columns.nth(1);
        let found = local.and_then(|(_, port)| u16::from_str_radix(port, 16).ok());
        found == Some(port) && state == Some(LISTENS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 00000000000000000000000000000000:280A 00000000000000000000000000000000:0000 0A 00000000:00000000
   1: 0100007F:1BA8 00000000:0000 0A 00000000:00000000
   2: 0A00F40A:8D3C 0A00F40A:280B 01 00000000:00000000
";

    fn evidence(pod: &str, host: &str, is_pod: bool, table: &str) -> Option<String> {
        let seen = Seen {
            pod: &pod.parse().unwrap(),
            host: &host.parse().unwrap(),
            is_pod,
        };
        seen.evidence(|| table.to_owned())
    }

    #[test]
    fn a_pod_whose_address_is_the_nodes_is_in_its_network() {
        let told = evidence("fd00::10, 198.51.100.10", "198.51.100.10", true, "").unwrap();
        assert_eq!(told, "its address 198.51.100.10 is the node's");
        // The downward API knows better than what happens to listen.
        assert_eq!(evidence("10.244.0.7", "198.51.100.10", true, TABLE), None);
    }

    #[test]
    fn without_addresses_a_kubelet_in_our_network_shows_it_but_only_to_a_pod() {
        let told = evidence("", "198.51.100.10", true, TABLE).unwrap();
        assert_eq!(told, "a kubelet listens on port 10250 in its network");
        assert_eq!(evidence("", "", false, TABLE), None);
        assert_eq!(evidence("", "", true, ""), None);
    }

    #[test]
    fn only_a_socket_that_listens_on_the_port_itself_counts() {
        assert!(listens(TABLE, 0x280A));
        assert!(listens(TABLE, 0x1BA8));
        for other in [0x280B, 0x8D3C, 0] {
            assert!(!listens(TABLE, other), "{other}");
        }
    }

    #[test]
    fn addresses_are_a_list_that_may_be_empty() {
        let both: Addresses = "198.51.100.10,fd00::1".parse().unwrap();
        assert_eq!(both.to_string(), "198.51.100.10,fd00::1");
        assert_eq!("".parse(), Ok(Addresses::default()));
        let wrong = "node-1".parse::<Addresses>().unwrap_err();
        assert_eq!(wrong, "\"node-1\" is no IP address");
    }
}
