//! Why an upstream gave no reply, told so that the user knows what to change.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio_rustls::rustls::{AlertDescription, CertificateError, Error as Rustls, PeerIncompatible};

/// Tells why an upstream gave no reply to a question.
///
/// A failure is shared by everybody who waited for the same connection, so it can be cloned.
#[derive(Debug, Clone, thiserror::Error)]
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
        source: Arc<io::Error>,
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
    /// The question came back to us, and nothing else was said to it.
    #[error("the question came back to us")]
    Looped,
    /// The server did not prove to be the one that was meant.
    #[error("the upstream is not trusted as `{server_name}`: {refusal}")]
    Tls {
        /// The name it had to prove.
        server_name: String,
        /// What was wrong.
        refusal: TlsRefusal,
    },
    /// The server answered the HTTP request with something other than success.
    #[error(
        "the upstream answered with HTTP status {0}: check that it serves DNS over HTTPS at /dns-query under this server name"
    )]
    HttpStatus(u16),
    /// The proxy on the way did not open it.
    #[error("the proxy {proxy} does not lead to the upstream {target}: {refusal}")]
    Proxy {
        /// The proxy.
        proxy: SocketAddr,
        /// Where it was asked to connect to.
        target: SocketAddr,
        /// What it said.
        refusal: ProxyRefusal,
    },
}

/// Tells why a TLS handshake was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TlsRefusal {
    /// The certificate is for other names, which are listed.
    WrongName(Vec<String>),
    /// The certificate is valid no more.
    Expired,
    /// The certificate is not valid yet.
    NotYetValid,
    /// The certificate does not lead to an authority we trust.
    UnknownIssuer,
    /// The server speaks no TLS 1.3.
    OldVersion,
    /// What answered speaks no TLS.
    NotTls,
    /// The server closed the connection in the middle of the handshake.
    HungUp,
    /// The server speaks TLS 1.3, but not the protocol that was meant.
    WrongProtocol,
    /// Anything else, in the words of the TLS library.
    Other(String),
}

/// Tells why a proxy was of no use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyRefusal {
    /// The proxy itself could not be reached.
    Unreachable(io::ErrorKind),
    /// The proxy answered CONNECT with this HTTP status.
    Status(u16),
    /// What answered speaks no HTTP.
    NotHttp,
}

impl ExchangeError {
    /// Wraps what the operating system said, with words that fit "cannot … the upstream".
    pub(crate) fn io(action: &'static str, source: io::Error) -> Self {
        let source = Arc::new(source);
        Self::Io { action, source }
    }

    /// Says it with its causes, in one line, for those who see nothing but the words.
    pub(crate) fn in_full(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        text
    }
}

impl TlsRefusal {
    /// Reads the failure of a handshake; `None` when it was the connection that failed.
    pub(super) fn of_handshake(error: &io::Error) -> Option<Self> {
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return Some(Self::HungUp);
        }
        let error = error.get_ref()?.downcast_ref::<Rustls>()?;
        Some(Self::of_tls(error))
    }

    pub(super) fn of_tls(error: &Rustls) -> Self {
        match error {
            Rustls::InvalidCertificate(reason) => Self::of_certificate(reason, error),
            Rustls::InvalidMessage(_) => Self::NotTls,
            Rustls::AlertReceived(AlertDescription::ProtocolVersion)
            | Rustls::PeerIncompatible(
                PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
                | PeerIncompatible::ServerDoesNotSupportTls12Or13,
            ) => Self::OldVersion,
            Rustls::NoApplicationProtocol
            | Rustls::AlertReceived(AlertDescription::NoApplicationProtocol) => Self::WrongProtocol,
            // The library's errors are non-exhaustive.
            other => Self::Other(other.to_string()),
        }
    }

    fn of_certificate(reason: &CertificateError, error: &Rustls) -> Self {
        use CertificateError as Reason;
        match reason {
            Reason::NotValidForName => Self::WrongName(Vec::new()),
            Reason::NotValidForNameContext { presented, .. } => Self::WrongName(presented.clone()),
            Reason::Expired | Reason::ExpiredContext { .. } => Self::Expired,
            Reason::NotValidYet | Reason::NotValidYetContext { .. } => Self::NotYetValid,
            // A new authority under the name of the old one has another key.
            Reason::UnknownIssuer | Reason::BadSignature => Self::UnknownIssuer,
            _ => Self::Other(error.to_string()),
        }
    }
}

impl fmt::Display for TlsRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongName(presented) if presented.is_empty() => f.write_str(
                "its certificate is for another name; check the address and the name after `#`",
            ),
            Self::WrongName(presented) => write!(
                f,
                "its certificate is for {}; check the address and the name after `#`",
                presented.join(", ")
            ),
            Self::Expired => f.write_str(
                "its certificate has expired; renew it there, or check this machine's clock",
            ),
            Self::NotYetValid => {
                f.write_str("its certificate is not valid yet; check this machine's clock")
            }
            Self::UnknownIssuer => f.write_str(
                "its certificate is from an unknown authority; give that authority's CA file if it is yours",
            ),
            Self::OldVersion => f.write_str(
                "it speaks no TLS 1.3, and nothing older is used; enable TLS 1.3 there or use another upstream",
            ),
            Self::NotTls => {
                f.write_str("what answers on this port speaks no TLS; check address and port")
            }
            Self::HungUp => f.write_str(
                "it hung up instead of agreeing; it may speak no TLS 1.3, or not know this name",
            ),
            Self::WrongProtocol => f.write_str(
                "it does not offer this protocol there; check the port, and `tls://` versus `https://`",
            ),
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl fmt::Display for ProxyRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(reason) => {
                write!(
                    f,
                    "{reason}; check https_proxy, or put the upstream into no_proxy"
                )
            }
            // Some answer 401 to a wrong password, as if they were the server (tinyproxy 1.11).
            Self::Status(status @ (401 | 407)) => write!(
                f,
                "it wants another user and password (HTTP status {status}); write them into https_proxy"
            ),
            Self::Status(status) => write!(
                f,
                "it refused with HTTP status {status}; allow CONNECT there, or put the upstream into no_proxy"
            ),
            Self::NotHttp => f.write_str("it speaks no HTTP; check the port in https_proxy"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_full_it_says_what_the_system_said() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        let error = ExchangeError::io("connect to", refused);
        assert_eq!(
            error.in_full(),
            "cannot connect to the upstream: connection refused"
        );
        assert_eq!(
            ExchangeError::Timeout.in_full(),
            "no reply before the deadline"
        );
    }
}
