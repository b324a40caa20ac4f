//! What a way may lead to: a host and a port by TCP or UDP, or a host by ping.

use std::fmt;
use std::str::FromStr;

use kubebridge_proto::flow::Protocol;

use crate::proxy::{Host, Target};

/// The end of a target for datagrams.
const UDP: &str = "/udp";
/// The end of one for connections, which every other is too.
const TCP: &str = "/tcp";

/// The end of one for ping, which has no port.
const ICMP: &str = "/icmp";

/// Where a way leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTarget {
    /// The host and the port; of a ping the port is 0.
    pub target: Target,
    /// How.
    pub protocol: Protocol,
}

impl PathTarget {
    /// The same for datagrams.
    #[must_use]
    pub fn with_udp(self) -> Self {
        Self {
            protocol: Protocol::Udp,
            ..self
        }
    }
}

impl From<Target> for PathTarget {
    fn from(target: Target) -> Self {
        Self {
            target,
            protocol: Protocol::Tcp,
        }
    }
}

/// Reads `HOST:PORT`, with `/udp` or `/tcp` behind it, or `HOST/icmp`.
impl FromStr for PathTarget {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected HOST:PORT or HOST:PORT/udp";
        if let Some(host) = text.strip_suffix(ICMP) {
            let is_plain = !host.contains([':', '/']);
            let is_host = |host: &Host| is_plain || matches!(host, Host::Address(_));
            let host = Host::parse(host).filter(is_host);
            let host = host.ok_or("expected HOST/icmp")?;
            let target = Target { host, port: 0 };
            return Ok(Self {
                target,
                protocol: Protocol::Icmp,
            });
        }
        let (target, protocol) = match (text.strip_suffix(UDP), text.strip_suffix(TCP)) {
            (Some(target), _) => (target, Protocol::Udp),
            (None, Some(target)) => (target, Protocol::Tcp),
            (None, None) => (text, Protocol::Tcp),
        };
        let target = target.parse().map_err(|_| expected)?;
        Ok(Self { target, protocol })
    }
}

impl fmt::Display for PathTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.protocol {
            Protocol::Udp => UDP,
            Protocol::Tcp => "",
            Protocol::Icmp => return write!(formatter, "{}{ICMP}", self.target.host),
        };
        write!(formatter, "{}{end}", self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_for_tcp_unless_it_says_udp() {
        for (text, read) in [
            ("authors.default:9080", Some("authors.default:9080")),
            ("authors.default:9080/tcp", Some("authors.default:9080")),
            ("[fd00::1]:53/udp", Some("[fd00::1]:53/udp")),
            ("dns:53/udp/udp", None),
            ("dns:53/sctp", None),
            ("dns/udp", None),
            ("dns.default/icmp", Some("dns.default/icmp")),
            ("[fd00::1]/icmp", Some("[fd00::1]/icmp")),
            ("dns:53/icmp", None),
        ] {
            let target: Result<PathTarget, _> = text.parse();
            let target = target.ok().map(|target| target.to_string());
            assert_eq!(target.as_deref(), read, "{text}");
        }
        let target: PathTarget = "dns:53".parse().unwrap();
        assert_eq!(target.with_udp().to_string(), "dns:53/udp");
    }
}
