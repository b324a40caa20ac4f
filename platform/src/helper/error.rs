//! What can go wrong between a session and its helper, and how errors travel.
//!
//! An error of the machine keeps its kind and its words, cause by cause; the values inside stay
//! where they are.

use std::error::Error;
use std::io;

use serde::{Deserialize, Serialize};

use crate::claims::Clash;
use crate::host::{HostError, Kind};

/// Why a session and its helper cannot work together.
#[derive(Debug, thiserror::Error)]
pub enum HelperError {
    /// The other side is not there any more.
    #[error("the privileged helper is gone")]
    Gone,
    /// The helper takes too long.
    #[error("the privileged helper does not answer")]
    Silent,
    /// The socket broke.
    #[error("using the helper's socket")]
    Socket(#[source] io::Error),
    /// The other side does not keep to the rules.
    #[error("refused by the rules between session and helper")]
    Violation(#[source] Violation),
    /// The helper is another program than the session.
    #[error("the helper speaks version {0}, the session another")]
    Version(u32),
    /// What is to be said does not fit into a message.
    #[error("a message of {0} octets is too long for the helper")]
    TooLong(usize),
    /// A message could not be put into words.
    #[error("encoding a message")]
    Encode(#[source] serde_json::Error),
    /// Not everything could be taken back.
    #[error("taking back what the session changed")]
    Undo(#[source] Box<HostError>),
}

/// How somebody broke the rules; nothing of the message is done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Violation {
    /// It is another user than the one the socket is for.
    #[error("a message of user {found}, not of {expected}")]
    User {
        /// Whose messages are taken.
        expected: u32,
        /// Whose this was; the overflow user where that is not known.
        found: u32,
    },
    /// A message is longer than any can be.
    #[error("a message of {0} octets is too long")]
    Oversized(u64),
    /// The message is none that there is.
    #[error("not a message: {0}")]
    Malformed(String),
    /// The message ends before its end.
    #[error("a message ends half-way")]
    Truncated,
    /// The rest of a message did not come.
    #[error("a message did not come to its end in time")]
    Slow,
    /// Descriptors came that nobody asked for, or not those that were.
    #[error("descriptors beside a message that has none")]
    Descriptors,
    /// The operation is not for now.
    #[error("{0} is out of order")]
    Order(String),
    /// The message was there before, or one is missing.
    #[error("message {found} where {expected} is due")]
    Number {
        /// The one that is due.
        expected: u64,
        /// The one that came.
        found: u64,
    },
}

/// An error that the helper met on the machine, as it told it.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub struct Reported {
    kind: Kind,
    words: String,
    source: Option<Box<Cause>>,
}

impl Reported {
    /// Returns what it is about.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

/// One cause of an error, and its own.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub(crate) struct Cause {
    words: String,
    source: Option<Box<Self>>,
}

/// An error on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Trouble {
    Busy { pid: Option<u32> },
    Clash(Box<Clash>),
    Ended,
    NoLink,
    Worker,
    Other { kind: Kind, words: Vec<String> },
}

impl From<HostError> for Trouble {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Busy { pid } => Self::Busy { pid },
            HostError::Clash(clash) => Self::Clash(clash),
            HostError::Ended => Self::Ended,
            HostError::NoLink => Self::NoLink,
            HostError::Worker => Self::Worker,
            other => Self::Other {
                kind: other.kind(),
                words: chain(&other),
            },
        }
    }
}

impl From<Trouble> for HostError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Busy { pid } => Self::Busy { pid },
            Trouble::Clash(clash) => Self::Clash(clash),
            Trouble::Ended => Self::Ended,
            Trouble::NoLink => Self::NoLink,
            Trouble::Worker => Self::Worker,
            Trouble::Other { kind, words } => {
                let mut words = words.into_iter();
                let first = words.next().unwrap_or_default();
                let cause = |source, words| Some(Box::new(Cause { words, source }));
                Self::Reported(Reported {
                    kind,
                    words: first,
                    source: words.rev().fold(None, cause),
                })
            }
        }
    }
}

fn chain(error: &dyn Error) -> Vec<String> {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect()
}
