//! What an upstream resolver is: its written form, the question it is asked, and the [`Upstream`]
//! trait that every transport implements.
//!
//! The engine and the forwarder see only this file's types. Nothing here opens a socket, and no
//! policy lives here: who is asked, in which order and how often is the callers' business.

mod do53;
mod ids;
mod pool;
mod reply;
mod rtt;
mod tcp;
mod udp;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

use futures::future::BoxFuture;
use tokio::time::Instant;

pub use self::do53::{Do53, PortPolicy};
pub(crate) use self::reply::HEADER;
use crate::name::{Name, RecordType};

/// The port of plain DNS (RFC 1035 §4.2).
const DO53_PORT: u16 = 53;
/// The port of DNS over TLS (RFC 7858 §3.1).
const DOT_PORT: u16 = 853;
/// The port of DNS over HTTPS (RFC 8484 §4.1).
const DOH_PORT: u16 = 443;

/// Speaks DNS to one configured server.
///
/// An exchange may send its query several times within the deadline. Dropping the future cancels
/// it: nothing more is sent, and a reply that still arrives is discarded.
pub trait Upstream: Send + Sync + 'static {
    /// Returns the server this upstream speaks to.
    fn spec(&self) -> &UpstreamSpec;

    /// Asks the question and returns the server's whole reply as wire bytes.
    ///
    /// The reply is known to come from the server, to carry an id that was sent, and to repeat the
    /// question; it is never truncated. Its id is the transport's own, and its records have not
    /// been looked at.
    fn exchange<'a>(
        &'a self,
        query: &'a OutgoingQuery,
        deadline: Instant,
    ) -> BoxFuture<'a, Result<Vec<u8>, ExchangeError>>;
}

/// Holds one question for an upstream, without id and wire form, which the transport makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingQuery {
    /// The name asked for, sent in this spelling.
    pub name: Name,
    /// The record type asked for.
    pub rtype: RecordType,
    /// The class, 1 (IN) for everything we forward.
    pub class: u16,
    /// Whether DNSSEC records are wanted (the DO flag).
    pub dnssec_ok: bool,
    /// Whether the server shall not validate (the CD flag).
    pub checking_disabled: bool,
}

/// Tells why an upstream gave no reply to a question.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// Nothing acceptable arrived before the deadline.
    #[error("no reply before the deadline")]
    Timeout,
    /// A socket to the server failed.
    #[error("cannot {action} the upstream")]
    Io {
        /// What was being done, in words that fit "cannot … the upstream".
        action: &'static str,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The server closed the connection without replying, twice in a row.
    #[error("the upstream closed the connection")]
    Closed,
    /// The server replied with something that cannot be a whole DNS message.
    #[error("malformed reply: {0}")]
    Malformed(&'static str),
    /// Too many queries or sockets are in use towards this server.
    #[error("too many queries in flight to the upstream")]
    Overloaded,
}

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
///
/// Only plain DNS has a transport so far, so the encrypted forms do not parse yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamSpec {
    /// The protocol spoken.
    pub protocol: Protocol,
    /// The address dialled.
    pub address: SocketAddr,
    /// The name the server must prove, for encrypted protocols only.
    pub server_name: Option<String>,
}

/// Tells why a text is not an upstream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpstreamSpecError {
    /// The text is not `ADDRESS[:PORT]`.
    #[error("upstream `{0}` is not an IP address with an optional port")]
    Address(String),
    /// The address can never be asked anything.
    #[error("upstream `{0}` has an unspecified or multicast address, or port 0")]
    Unusable(String),
    /// A server name makes no sense without encryption.
    #[error("upstream `{0}` has a server name, which plain DNS cannot check")]
    ServerName(String),
    /// The protocol is known and has no transport yet.
    #[error("upstream `{0}`: this protocol is not built yet")]
    NotBuilt(String),
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
        if encrypted.iter().any(|p| text.starts_with(p.scheme())) {
            return Err(UpstreamSpecError::NotBuilt(text.to_owned()));
        }
        let address =
            parse_address(text, Protocol::Do53.default_port()).ok_or_else(|| {
                match text.split_once('#') {
                    Some((address, _)) if parse_address(address, DO53_PORT).is_some() => {
                        UpstreamSpecError::ServerName(text.to_owned())
                    }
                    Some(_) | None => UpstreamSpecError::Address(text.to_owned()),
                }
            })?;
        let ip = address.ip();
        if ip.is_unspecified() || ip.is_multicast() || address.port() == 0 {
            return Err(UpstreamSpecError::Unusable(text.to_owned()));
        }
        Ok(Self::do53(address))
    }
}

impl fmt::Display for UpstreamSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.protocol.scheme())?;
        match (
            self.address.port() == self.protocol.default_port(),
            self.address,
        ) {
            (false, address) => write!(f, "{address}")?,
            (true, SocketAddr::V4(v4)) => write!(f, "{}", v4.ip())?,
            (true, SocketAddr::V6(v6)) if v6.scope_id() == 0 => write!(f, "{}", v6.ip())?,
            (true, SocketAddr::V6(v6)) => write!(f, "{}%{}", v6.ip(), v6.scope_id())?,
        }
        match &self.server_name {
            Some(name) => write!(f, "#{name}"),
            None => Ok(()),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_specs_are_read_and_written_back() {
        for (text, address, shown) in [
            ("10.96.0.10", "10.96.0.10:53", "10.96.0.10"),
            ("10.96.0.10:53", "10.96.0.10:53", "10.96.0.10"),
            ("10.96.0.10:5353", "10.96.0.10:5353", "10.96.0.10:5353"),
            ("fd00::a", "[fd00::a]:53", "fd00::a"),
            ("[fd00::a]", "[fd00::a]:53", "fd00::a"),
            ("[fd00::a]:5353", "[fd00::a]:5353", "[fd00::a]:5353"),
            ("fe80::1%3", "[fe80::1%3]:53", "fe80::1%3"),
        ] {
            let spec: UpstreamSpec = text.parse().unwrap();
            assert_eq!(spec, UpstreamSpec::do53(address.parse().unwrap()), "{text}");
            assert_eq!(spec.to_string(), shown);
            assert_eq!(shown.parse(), Ok(spec));
        }
    }

    #[test]
    fn encrypted_specs_are_shown_with_scheme_and_server_name() {
        for (protocol, port, shown) in [
            (Protocol::Dot, 853, "tls://9.9.9.9#dns.quad9.net"),
            (Protocol::Doh, 443, "https://9.9.9.9#dns.quad9.net"),
            (Protocol::Doh, 8443, "https://9.9.9.9:8443#dns.quad9.net"),
        ] {
            let spec = UpstreamSpec {
                protocol,
                address: SocketAddr::new([9, 9, 9, 9].into(), port),
                server_name: Some("dns.quad9.net".to_owned()),
            };
            assert_eq!(spec.to_string(), shown);
        }
    }

    #[test]
    fn a_spec_that_cannot_be_used_is_refused_by_name() {
        use UpstreamSpecError::{Address, NotBuilt, ServerName, Unusable};
        type Reason = fn(String) -> UpstreamSpecError;
        let table: [(&str, Reason); 11] = [
            ("", Address),
            ("dns.example", Address),
            ("10.96.0.10:", Address),
            ("10.96.0.10:70000", Address),
            ("[10.96.0.10]", Address),
            ("10.96.0.10#name", ServerName),
            ("0.0.0.0", Unusable),
            ("224.0.0.251", Unusable),
            ("10.96.0.10:0", Unusable),
            ("tls://9.9.9.9#dns.quad9.net", NotBuilt),
            ("https://1.1.1.1#cloudflare-dns.com", NotBuilt),
        ];
        for (text, reason) in table {
            let error = text.parse::<UpstreamSpec>().unwrap_err();
            assert_eq!(error, reason(text.to_owned()));
            assert!(error.to_string().contains(text));
        }
    }
}
