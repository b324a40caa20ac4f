//! What an upstream resolver is: the question it is asked, and the [`Upstream`] trait that every
//! transport implements.
//!
//! The engine and the forwarder see only what this file names. Nothing here opens a socket, and no
//! policy lives here: who is asked, in which order and how often is the callers' business.

mod channel;
mod connect;
mod do53;
mod doh;
mod dot;
mod encrypted;
mod error;
mod framed;
mod http2;
mod ids;
mod pool;
mod proxy;
mod reply;
mod rtt;
mod spec;
mod tcp;
mod tls;
mod trust;
mod udp;
mod wire;

use futures::future::BoxFuture;
use tokio::time::Instant;

pub use self::connect::{ConnectError, Connections, Settings, connect};
pub use self::do53::{Do53, PortPolicy};
pub use self::error::{ExchangeError, ProxyRefusal, TlsRefusal};
pub use self::proxy::{ProxyError, ProxySettings};
pub(crate) use self::reply::HEADER;
pub(crate) use self::rtt::Rtt;
pub use self::spec::{Protocol, UpstreamSpec, UpstreamSpecError};
pub use self::trust::{Trust, TrustError};
use crate::message::{CLASS_IN, Origin};
use crate::name::{Name, RecordType};

/// Speaks DNS to one configured server.
///
/// An exchange may send its query several times within the deadline. Dropping the future cancels
/// it: nothing more is sent, and a reply that still arrives is discarded.
pub trait Upstream: Send + Sync + 'static {
    /// Returns the server this upstream speaks to.
    fn spec(&self) -> &UpstreamSpec;

    /// Tells whether the server is believed to keep the spelling of names, so that a spelling
    /// drawn at random says something when it comes back.
    fn keeps_case(&self) -> bool {
        true
    }

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
    /// The name asked for, sent in this spelling unless the server is known to lose it.
    pub name: Name,
    /// The record type asked for.
    pub rtype: RecordType,
    /// The class, 1 (IN) for everything we forward.
    pub class: u16,
    /// Whether DNSSEC records are wanted (the DO flag).
    pub dnssec_ok: bool,
    /// Whether the server shall not validate (the CD flag).
    pub checking_disabled: bool,
    /// Whether the spelling was drawn at random, so that a reply must repeat it exactly.
    pub exact_case: bool,
    /// What the server is told about where the query began, should it be one of ours.
    pub origin: Option<Origin>,
}

impl OutgoingQuery {
    /// Makes a question in the usual class without flags, in a spelling that means nothing.
    #[must_use]
    pub fn new(name: Name, rtype: RecordType) -> Self {
        Self {
            name,
            rtype,
            class: CLASS_IN,
            dnssec_ok: false,
            checking_disabled: false,
            exact_case: false,
            origin: None,
        }
    }
}
