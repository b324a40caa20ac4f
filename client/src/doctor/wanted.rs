//! What the way to is asked for: `HOST:PORT`, `HOST:PORT/udp`, or `HOST` for ping.

use std::fmt;
use std::str::FromStr;

use kubebridge_proto::flow::Protocol;

use crate::proxy::{Host, Target};

/// A destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The host.
    pub host: Host,
    /// The port; 0 for ping.
    pub port: u16,
    /// How.
    pub protocol: Protocol,
}

impl Wanted {
    /// The same as what `trace` is asked for; the port of a ping is 0.
    pub(crate) fn target(&self) -> Target {
        Target {
            host: self.host.clone(),
            port: self.port,
        }
    }
}

impl FromStr for Wanted {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let expected = "expected HOST:PORT, HOST:PORT/udp or HOST";
        let (text, protocol) = match text.rsplit_once('/') {
            Some((rest, "udp")) => (rest, Protocol::Udp),
            Some((rest, "tcp")) => (rest, Protocol::Tcp),
            Some(_) => return Err(expected),
            None => (text, Protocol::Tcp),
        };
        if let Some(Target { host, port }) = Target::parse(text) {
            return Ok(Self {
                host,
                port,
                protocol,
            });
        }
        let is_host = protocol == Protocol::Tcp && !text.ends_with(':');
        let host = Host::parse(text).filter(|_| is_host).ok_or(expected)?;
        Ok(Self {
            host,
            port: 0,
            protocol: Protocol::Icmp,
        })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.protocol {
            Protocol::Tcp => write!(formatter, "{}:{}", self.host, self.port),
            Protocol::Udp => write!(formatter, "{}:{}/udp", self.host, self.port),
            Protocol::Icmp => write!(formatter, "{}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_read_as_it_is_written() {
        for (text, protocol) in [
            ("authors.shop:9080", Some(Protocol::Tcp)),
            ("10.96.0.10:53/udp", Some(Protocol::Udp)),
            ("[fd00::1]:443", Some(Protocol::Tcp)),
            ("authors.shop", Some(Protocol::Icmp)),
            ("10.96.0.10", Some(Protocol::Icmp)),
            ("authors:0", None),
            ("authors:", None),
            ("authors:80/sctp", None),
            ("authors/udp", None),
            ("", None),
        ] {
            let read = text.parse::<Wanted>();
            assert_eq!(
                read.as_ref().ok().map(|one| one.protocol),
                protocol,
                "{text}"
            );
            if let Ok(read) = read {
                assert_eq!(read.to_string(), text);
            }
        }
        let tcp: Wanted = "authors:80/tcp".parse().unwrap();
        assert_eq!(tcp.to_string(), "authors:80");
    }
}
