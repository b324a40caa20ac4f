//! The written form of an upstream: `10.96.0.10`, `tls://9.9.9.9#dns.quad9.net`,
//! `https://1.1.1.1#cloudflare-dns.com`.
//!
//! An encrypted upstream is an address to dial and a name to prove: looking up a host name would
//! need the very resolver that is being configured, and an unproven name protects from nobody.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use rustls_pki_types::DnsName;

/// The port of plain DNS (RFC 1035 §4.2).
const DO53_PORT: u16 = 53;
/// The port of DNS over TLS (RFC 7858 §3.1).
const DOT_PORT: u16 = 853;
/// The port of DNS over HTTPS (RFC 8484 §4.1).
const DOH_PORT: u16 = 443;

/// Names the protocol spoken to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    /// Plain DNS over UDP, and over TCP where UDP does not do.
    Do53,
    /// DNS over TLS (RFC 7858).
    Dot,
    /// DNS over HTTPS (RFC 8484).
    Doh,
}

/// Describes an upstream as the user wrote it: `10.96.0.10`, `10.96.0.10:53`,
/// `tls://9.9.9.9#dns.quad9.net`, `https://1.1.1.1#cloudflare-dns.com`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamSpec {
    /// The protocol spoken.
    pub protocol: Protocol,
    /// The address dialled.
    pub address: SocketAddr,
    /// The name the server must prove, for encrypted protocols only; in lower case, without a dot
    /// at the end.
    pub server_name: Option<String>,
}

/// Tells why a text is not an upstream, and how to write what was meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamSpecError {
    /// The text is not `ADDRESS[:PORT]`.
    #[error("upstream `{0}` is not an IP address with an optional port")]
    Address(String),
    /// The address can never be asked anything.
    #[error("upstream `{0}` has an unspecified or multicast address, or port 0")]
    Unusable(String),
    /// A server name makes no sense without encryption.
    #[error(
        "upstream `{0}` has a server name, which plain DNS cannot check: write `tls://` or `https://` before it, or leave the name out"
    )]
    ServerName(String),
    /// An encrypted upstream has no server name.
    #[error(
        "upstream `{spec}` has no server name: write `{scheme}{address}#NAME` with the name that its certificate is for"
    )]
    NoServerName {
        /// The text.
        spec: String,
        /// The scheme in it.
        scheme: &'static str,
        /// The address in it.
        address: String,
    },
    /// A host name stands where the address must be.
    #[error(
        "upstream `{spec}` has a host name where its IP address must be, for nobody could look it up: write `{scheme}ADDRESS#{host}`"
    )]
    HostName {
        /// The text.
        spec: String,
        /// The scheme in it.
        scheme: &'static str,
        /// The host name in it.
        host: String,
    },
    /// The server name is not one that a certificate can prove.
    #[error(
        "upstream `{0}` has a server name that is no DNS name: write the name that its certificate is for after `#`"
    )]
    BadServerName(String),
}

impl UpstreamSpec {
    /// Describes a plain DNS server.
    pub fn do53(address: SocketAddr) -> Self {
        Self {
            protocol: Protocol::Do53,
            address,
            server_name: None,
        }
    }
}

impl Protocol {
    /// Returns the port spoken to when none is written.
    pub fn default_port(self) -> u16 {
        match self {
            Self::Do53 => DO53_PORT,
            Self::Dot => DOT_PORT,
            Self::Doh => DOH_PORT,
        }
    }

    fn scheme(self) -> &'static str {
        match self {
            Self::Do53 => "",
            Self::Dot => "tls://",
            Self::Doh => "https://",
        }
    }
}

impl FromStr for UpstreamSpec {
    type Err = UpstreamSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let encrypted = [Protocol::Dot, Protocol::Doh];
        let rest = |p: &Protocol| Some((*p, text.strip_prefix(p.scheme())?));
        let spec = match encrypted.iter().find_map(rest) {
            Some((protocol, rest)) => parse_encrypted(protocol, rest, text)?,
            None => parse_plain(text)?,
        };
        let ip = spec.address.ip();
        if ip.is_unspecified() || ip.is_multicast() || spec.address.port() == 0 {
            return Err(UpstreamSpecError::Unusable(text.to_owned()));
        }
        Ok(spec)
    }
}

impl fmt::Display for UpstreamSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.protocol.scheme())?;
        let scope = |v6: &SocketAddrV6| match v6.scope_id() {
            0 => String::new(),
            index => format!("%{index}"),
        };
        match (
            self.address.port() == self.protocol.default_port(),
            self.address,
        ) {
            (false, address) => write!(f, "{address}")?,
            (true, SocketAddr::V4(v4)) => write!(f, "{}", v4.ip())?,
            (true, SocketAddr::V6(v6)) if self.protocol == Protocol::Do53 => {
                write!(f, "{}{}", v6.ip(), scope(&v6))?;
            }
            (true, SocketAddr::V6(v6)) => write!(f, "[{}{}]", v6.ip(), scope(&v6))?,
        }
        match &self.server_name {
            Some(name) => write!(f, "#{name}"),
            None => Ok(()),
        }
    }
}

fn parse_plain(text: &str) -> Result<UpstreamSpec, UpstreamSpecError> {
    if let Some(address) = parse_address(text, DO53_PORT) {
        return Ok(UpstreamSpec::do53(address));
    }
    Err(match text.split_once('#') {
        Some((address, _)) if parse_address(address, DO53_PORT).is_some() => {
            UpstreamSpecError::ServerName(text.to_owned())
        }
        Some(_) | None => UpstreamSpecError::Address(text.to_owned()),
    })
}

fn parse_encrypted(
    protocol: Protocol,
    rest: &str,
    text: &str,
) -> Result<UpstreamSpec, UpstreamSpecError> {
    let (spec, scheme) = (text.to_owned(), protocol.scheme());
    let (host, name) = match rest.split_once('#') {
        Some((host, name)) => (host, Some(name)),
        None => (rest, None),
    };
    let Some(address) = parse_address(host, protocol.default_port()) else {
        return Err(match host_name(host) {
            Some(host) => UpstreamSpecError::HostName { spec, scheme, host },
            None => UpstreamSpecError::Address(spec),
        });
    };
    let Some(name) = name.filter(|name| !name.is_empty()) else {
        let address = host.to_owned();
        return Err(UpstreamSpecError::NoServerName {
            spec,
            scheme,
            address,
        });
    };
    let server_name = dns_name(name).ok_or(UpstreamSpecError::BadServerName(spec))?;
    Ok(UpstreamSpec {
        protocol,
        address,
        server_name: Some(server_name),
    })
}

/// Reads `IP`, `[IPv6]`, `IPv6%index`, and each of the bracketed or v4 forms with `:PORT`.
fn parse_address(text: &str, default_port: u16) -> Option<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(SocketAddr::new(ip, default_port));
    }
    let bare = match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None => text,
    };
    let scoped: SocketAddrV6 = format!("[{bare}]:{default_port}").parse().ok()?;
    Some(scoped.into())
}

/// Finds the host name in what people write where the address must be: with a port, with a path.
fn host_name(text: &str) -> Option<String> {
    let host = text.split('/').next()?;
    let host = host.split_once(':').map_or(host, |(host, _port)| host);
    dns_name(host).filter(|host| host.contains('.'))
}

/// Returns a name that TLS can prove and HTTP can carry; no address is one.
fn dns_name(text: &str) -> Option<String> {
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_name = DnsName::try_from(name.as_str()).is_ok() && name.parse::<IpAddr>().is_err();
    (is_name && !name.ends_with('.')).then_some(name)
}

#[cfg(test)]
mod tests;
