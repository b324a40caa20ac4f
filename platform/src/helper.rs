//! The privileged helper: a root process that changes the machine for a session of an ordinary user.
//!
//! The session and its helper share one unix socket that nobody else can have. The session asks, one
//! message per operation; the helper holds each against the same rules that bind a root session
//! ([`LocalHost`](crate::LocalHost) is what it drives), answers, and passes descriptors beside the
//! answer. It takes back everything when the session goes, whatever the reason, and ends.
//!
//! How a helper gets its rights, and which program starts it, is no business of this crate.

mod client;
mod error;
mod frame;
mod message;
mod serve;

use std::time::Duration;

pub use client::HelperHost;
pub use error::{HelperError, Reported, Violation};
pub use serve::serve;

/// The version of the messages. Both ends are the same program, unless it was replaced between the
/// start of the one and the other.
const PROTOCOL: u32 = 1;

/// The longest message: 65,536 hosts lines, the most an intent has, of 256 octets.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;

/// The most descriptors beside a message: a device.
const MAX_DESCRIPTORS: usize = 1;

/// How long a message that has begun may take to be there, and an answer to be read.
const MESSAGE_TIME: Duration = Duration::from_secs(10);

/// How long one operation may take: the system's DNS has 5 s, a slow disk the rest.
const OPERATION_TIME: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
