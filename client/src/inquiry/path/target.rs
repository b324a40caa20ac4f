//! What a way may lead to: a host, a port, and TCP or UDP.

use std::fmt;
use std::str::FromStr;

use kubebridge_proto::flow::Protocol;

use crate::proxy::Target;

/// The end of a target for datagrams.
const UDP: &str = "/udp";
/// The end of one for connections, which every other is too.
const TCP: &str = "/tcp";

/// Where a way leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathTarget {
    /// The host and the port.
    pub target: Target,
    /// [`Protocol::Tcp`] or [`Protocol::Udp`].
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

/// Reads `HOST:PORT`, with `/udp` or `/tcp` behind it.
impl FromStr for PathTarget {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (target, protocol) = match (text.strip_suffix(UDP), text.strip_suffix(TCP)) {
            (Some(target), _) => (target, Protocol::Udp),
            (None, Some(target)) => (target, Protocol::Tcp),
            (None, None) => (text, Protocol::Tcp),
        };
        let target = target
            .parse()
            .map_err(|_| "expected HOST:PORT or HOST:PORT/udp")?;
        Ok(Self { target, protocol })
    }
}

impl fmt::Display for PathTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.protocol {
            Protocol::Udp => UDP,
            Protocol::Tcp | Protocol::Icmp => "",
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
        ] {
            let target: Result<PathTarget, _> = text.parse();
            let target = target.ok().map(|target| target.to_string());
            assert_eq!(target.as_deref(), read, "{text}");
        }
        let target: PathTarget = "dns:53".parse().unwrap();
        assert_eq!(target.with_udp().to_string(), "dns:53/udp");
    }
}
