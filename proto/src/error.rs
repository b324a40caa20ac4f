//! What made a message of the peer unusable. Every error names the field.

use thiserror::Error;

/// An error in a message of the peer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidMessage {
    /// A required field is absent or empty.
    #[error("{field} is missing")]
    Missing {
        /// The field, as a path from the message.
        field: &'static str,
    },
    /// A field has a value that means nothing.
    #[error("{field} is {value:?}: {reason}")]
    Invalid {
        /// The field, as a path from the message.
        field: &'static str,
        /// The value as it came.
        value: String,
        /// What would have been accepted.
        reason: String,
    },
    /// A field has a value that only a newer peer knows; the message is to be ignored.
    #[error("{field} has the unknown value {value}")]
    Unknown {
        /// The field, as a path from the message.
        field: &'static str,
        /// The number as it came.
        value: i32,
    },
    /// The message is of a kind that only a newer peer knows; it is to be ignored.
    #[error("{field} is of an unknown kind")]
    UnknownKind {
        /// The field, as a path from the message.
        field: &'static str,
    },
}

impl InvalidMessage {
    /// Tells whether the peer is merely newer, so that the message is ignored and the stream goes on.
    #[must_use]
    pub fn is_from_newer_peer(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::UnknownKind { .. } => true,
            Self::Missing { .. } | Self::Invalid { .. } => false,
        }
    }

    pub(crate) fn invalid(
        field: &'static str,
        value: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self::Invalid {
            field,
            value: value.into(),
            reason: reason.into(),
        }
    }
}
