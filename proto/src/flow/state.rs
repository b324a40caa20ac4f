//! One direction of a flow as numbers and queues: offsets, credit, what is kept to be sent again.
//!
//! Pure: no clock, no stream, no socket. An offset counts the octets of a direction since the flow
//! began, over all streams that carried it; its end counts as one more, so that it is acknowledged
//! and sent again like the octets before it.

mod chunks;
mod receiver;
mod sender;

use thiserror::Error;

pub use chunks::Chunks;
pub use receiver::{Owing, Receiver};
pub use sender::Sender;

/// The window a sender has before it hears of one, and the least there is: enough for a request.
pub const LEAST_WINDOW: usize = 16 * 1024;
/// The window a new flow gets where memory allows: a page at once, without a round trip more.
pub const FIRST_WINDOW: usize = 64 * 1024;
/// The most that is under way, kept to be sent again, or waits for a slow reader, in a direction.
pub const MOST_WINDOW: usize = 256 * 1024;

/// What a peer did that it must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Violation {
    /// It sent more than it may.
    #[error("the peer sends beyond its credit")]
    BeyondCredit,
    /// It sent after its end.
    #[error("the peer sends after its end")]
    AfterEnd,
    /// It has received what was never sent, or lost what it had.
    #[error("the peer's offset is impossible")]
    Offset,
}

#[cfg(test)]
mod tests;
