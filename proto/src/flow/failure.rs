//! Why a flow was not opened, as both sides say it.

use std::fmt;
use std::str::FromStr;

/// What kind of failure it was. Each has its own answer at the laptop: a reset, an ICMP message,
/// silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// Nobody listens there.
    Refused,
    /// No such host.
    HostUnreachable,
    /// No way to its network.
    NetworkUnreachable,
    /// Nothing answers.
    Timeout,
    /// The session may not go there.
    Denied,
    /// Too many flows, too fast, or too little memory.
    Limit,
    /// The session is unknown or over; the client opens another one.
    Session,
    /// The flow to resume is not there any more.
    Gone,
    /// Anything else, at either side.
    Internal,
}

impl FailureKind {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Refused,
        Self::HostUnreachable,
        Self::NetworkUnreachable,
        Self::Timeout,
        Self::Denied,
        Self::Limit,
        Self::Session,
        Self::Gone,
        Self::Internal,
    ];

    /// Returns the word on the wire.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::HostUnreachable => "host-unreachable",
            Self::NetworkUnreachable => "network-unreachable",
            Self::Timeout => "timeout",
            Self::Denied => "denied",
            Self::Limit => "limit",
            Self::Session => "session",
            Self::Gone => "gone",
            Self::Internal => "internal",
        }
    }

    /// Returns the HTTP status that goes with it, for who reads along.
    #[must_use]
    pub(super) fn status(self) -> http::StatusCode {
        match self {
            Self::Refused | Self::HostUnreachable | Self::NetworkUnreachable => {
                http::StatusCode::BAD_GATEWAY
            }
            Self::Timeout => http::StatusCode::GATEWAY_TIMEOUT,
            Self::Denied => http::StatusCode::FORBIDDEN,
            Self::Limit => http::StatusCode::TOO_MANY_REQUESTS,
            Self::Session => http::StatusCode::UNAUTHORIZED,
            Self::Gone => http::StatusCode::GONE,
            Self::Internal => http::StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl FromStr for FailureKind {
    type Err = UnknownFailure;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.word() == word)
            .ok_or(UnknownFailure)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

/// A word that names no kind of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no known kind of failure")]
pub struct UnknownFailure;

/// Why a flow was not opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}{}", detail.as_ref().map(|detail| format!(": {detail}")).unwrap_or_default())]
pub struct Failure {
    /// What kind of failure it was.
    pub kind: FailureKind,
    /// More about it, short and without names.
    pub detail: Option<String>,
}

impl Failure {
    /// Makes a failure with a few words about it.
    #[must_use]
    pub fn with_detail(kind: FailureKind, detail: impl Into<String>) -> Self {
        Self {
            kind,
            detail: Some(detail.into()),
        }
    }
}

impl From<FailureKind> for Failure {
    fn from(kind: FailureKind) -> Self {
        Self { kind, detail: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_known_by_its_word() {
        for kind in FailureKind::ALL {
            assert_eq!(kind.word().parse(), Ok(kind));
            assert!(!kind.status().is_success());
        }
        assert_eq!("Refused".parse::<FailureKind>(), Err(UnknownFailure));
    }
}
