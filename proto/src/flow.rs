//! The data plane's wire: one HTTP/2 stream per flow, and what both of its ends do alike.
//!
//! A data connection is a byte stream: TLS with the ALPN protocol [`ALPN`], or a plain one (the
//! pod's loopback, behind a port-forward) that begins with [`PREAMBLE`], since gRPC is served on the
//! same port. HTTP/2 follows. Each flow is one request, `POST /flow` ([`Open`]); the answer comes
//! after the dial, and says how it went. From then on both bodies are [`Frame`]s, so that data,
//! acknowledgement and end share one order, and a flow can go on over another stream.
//!
//! [`state`] is that arithmetic, without any I/O; [`carry`](carry()) and
//! [`carry_datagrams`] move the octets of one flow. Nothing here opens a connection, dials, or
//! decides who may: that is the client's `flows` and the manager's `data`.

mod ahead;
mod attached;
pub mod budget;
mod carry;
mod failure;
mod frame;
pub mod http2;
mod open;
pub mod queue;
pub mod state;

mod datagrams;
mod shared;
mod socket;
mod turns;

pub use ahead::ReadAhead;
pub use attached::{Attached, Ended, How, Local, Meter, Reattach, Side};
pub use budget::Budget;
pub use carry::carry;
pub use datagrams::{Datagrams, carry_datagrams};
pub use failure::{Failure, FailureKind, UnknownFailure};
pub use frame::{Credit, Frame, FrameError, FrameReader, HEADER, MAX_DATA, MAX_DATAGRAM};
pub use open::{
    ECHO_PATH, FlowId, Open, Protocol, accepted, echo_request, echo_request_of, echo_session,
    refused, resumed_at, verdict,
};
pub use socket::Socket;
pub use turns::after_others;

/// The protocol's name in TLS.
pub const ALPN: &[u8] = b"kubebridge-data/1";

/// What a client sends first on a data connection without TLS. gRPC begins with `PRI * HTTP/2.0`.
pub const PREAMBLE: &[u8] = b"kubebridge-data/1\n";
