//! What a client of a proxy asks for.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use kubebridge_dns::name::Name;

/// Whom a client wants to be connected with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name.
    Name(Name),
}

impl Host {
    /// Reads a name, or an address written as text, with or without brackets.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let bare = text
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'));
        if let Ok(address) = bare.unwrap_or(text).parse() {
            return Some(Self::Address(address));
        }
        let name: Name = text.parse().ok()?;
        (!name.is_root()).then_some(Self::Name(name))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
            Self::Address(address) => address.fmt(formatter),
            Self::Name(name) => name.fmt(formatter),
        }
    }
}

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
}

impl Target {
    /// Reads `HOST:PORT`, with an IPv6 address in brackets.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let is_bare_v6 = host.contains(':') && !host.starts_with('[');
        let host = Host::parse(host).filter(|_| !is_bare_v6)?;
        Some(Self { host, port })
    }
}

/// Reads `HOST:PORT`, with an IPv6 address in brackets.
impl FromStr for Target {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text).ok_or("expected HOST:PORT")
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_name_or_an_address_and_a_port() {
        for (text, read) in [
            ("authors.default:9080", Some("authors.default:9080")),
            ("authors:1", Some("authors:1")),
            ("10.96.0.10:443", Some("10.96.0.10:443")),
            ("[fd00::1]:443", Some("[fd00::1]:443")),
            ("fd00::1:443", None),
            ("authors", None),
            ("authors:", None),
            ("authors:0", None),
            ("authors:65536", None),
            (":80", None),
            ("a..b:80", None),
        ] {
            let target = Target::parse(text).map(|target| target.to_string());
            assert_eq!(target.as_deref(), read, "{text}");
        }
    }
}
