//! Tokens that prove the right to a namespace, and why a session is refused.
//!
//! A token is carried and never shown: its `Debug` says nothing of it. Whether it is good is the
//! manager's business, not decided here.

use std::collections::BTreeSet;
use std::fmt;

use tonic::{Code, Status};

use crate::error::InvalidMessage;
use crate::names::check_label;
use crate::v1;

/// The audience of the tokens: an API server does not take them, nor does anything but a manager.
pub const AUDIENCE: &str = "kubebridge";

/// The name of the ServiceAccount the tokens are made for, in every namespace.
pub const SERVICE_ACCOUNT: &str = "kubebridge-access";

/// The longest token taken: eight times what an API server makes, with certificates chained in.
pub const MAX_TOKEN: usize = 8 * 1024;

/// Where a [`Reason`] stands in a status.
const REASON: &str = "kubebridge-reason";

/// A token that proves the right to one namespace.
#[derive(Clone, PartialEq, Eq)]
pub struct NamespaceToken {
    /// The namespace it was made in.
    pub namespace: String,
    /// The token itself. Never logged.
    pub token: String,
}

/// Why a session is refused or over, for the client to act on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// There is no such session; the client opens a new one.
    SessionUnknown,
    /// Its tokens expired; the client opens a new one with fresh tokens.
    SessionExpired,
    /// A namespace was asked for without a token.
    TokenMissing,
    /// A token expired.
    TokenExpired,
    /// A token is not good for its namespace, and will not become so.
    TokenInvalid,
    /// The manager has no key for a token, perhaps for a moment.
    KeyUnknown,
    /// The manager does not give the namespace to anybody.
    NamespaceNotServed,
}

impl fmt::Debug for NamespaceToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("NamespaceToken")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl From<NamespaceToken> for v1::NamespaceToken {
    fn from(token: NamespaceToken) -> Self {
        Self {
            namespace: token.namespace,
            token: token.token,
        }
    }
}

impl Reason {
    const ALL: [Self; 7] = [
        Self::SessionUnknown,
        Self::SessionExpired,
        Self::TokenMissing,
        Self::TokenExpired,
        Self::TokenInvalid,
        Self::KeyUnknown,
        Self::NamespaceNotServed,
    ];

    /// Returns the word for it on the wire and in audit lines.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::SessionUnknown => "session-unknown",
            Self::SessionExpired => "session-expired",
            Self::TokenMissing => "token-missing",
            Self::TokenExpired => "token-expired",
            Self::TokenInvalid => "token-invalid",
            Self::KeyUnknown => "key-unknown",
            Self::NamespaceNotServed => "namespace-not-served",
        }
    }

    /// Makes a status of it; the message is for people.
    #[must_use]
    pub fn status(self, message: impl Into<String>) -> Status {
        let code = match self {
            Self::SessionUnknown | Self::SessionExpired => Code::FailedPrecondition,
            Self::TokenExpired | Self::TokenInvalid => Code::Unauthenticated,
            Self::TokenMissing | Self::NamespaceNotServed => Code::PermissionDenied,
            Self::KeyUnknown => Code::Unavailable,
        };
        let mut status = Status::new(code, message);
        let word = tonic::metadata::MetadataValue::from_static(self.word());
        status.metadata_mut().insert(REASON, word);
        status
    }

    /// Reads it from a status; `None` when there is none, or one of a newer peer.
    #[must_use]
    pub fn of(status: &Status) -> Option<Self> {
        let word = status.metadata().get(REASON)?.to_str().ok()?;
        Self::ALL.into_iter().find(|reason| reason.word() == word)
    }
}

/// Checks the shape of a request's tokens: one for a namespace, none huge; empty ones are none.
pub(crate) fn tokens(wire: Vec<v1::NamespaceToken>) -> Result<Vec<NamespaceToken>, InvalidMessage> {
    let mut seen = BTreeSet::new();
    let mut tokens = Vec::with_capacity(wire.len());
    for v1::NamespaceToken { namespace, token } in wire {
        check_label("tokens.namespace", &namespace)?;
        // The error names the namespace, never the token.
        let wrong = |reason: &str| InvalidMessage::invalid("tokens", namespace.as_str(), reason);
        if token.is_empty() {
            // As if it were not there (the contract's rule for what cannot be used).
            continue;
        }
        if token.len() > MAX_TOKEN {
            return Err(wrong(&format!(
                "the token has {} octets, at most {MAX_TOKEN} are taken",
                token.len()
            )));
        }
        if !seen.insert(namespace.clone()) {
            return Err(wrong("there are two tokens for the namespace"));
        }
        tokens.push(NamespaceToken { namespace, token });
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(namespace: &str, token: &str) -> v1::NamespaceToken {
        v1::NamespaceToken {
            namespace: namespace.to_owned(),
            token: token.to_owned(),
        }
    }

    #[test]
    fn tokens_that_cannot_be_right_are_refused_and_never_repeated() {
        let huge = "secret".repeat(MAX_TOKEN);
        for (given, expected) in [
            (vec![wire("", "secret")], "tokens.namespace is missing"),
            (vec![wire("Shop", "secret")], "tokens.namespace is \"Shop\""),
            (
                vec![wire("shop", &huge)],
                "tokens is \"shop\": the token has",
            ),
            (
                vec![wire("shop", "secret"), wire("shop", "secret")],
                "tokens is \"shop\": there are two tokens",
            ),
        ] {
            let error = tokens(given).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn an_empty_token_is_none() {
        let given = vec![wire("shop", ""), wire("shop", "secret")];
        assert_eq!(tokens(given).unwrap().len(), 1);
    }

    #[test]
    fn a_token_is_not_shown_by_debug() {
        let shown = format!("{:?}", tokens(vec![wire("shop", "secret")]).unwrap());
        assert!(
            shown.contains("shop") && !shown.contains("secret"),
            "{shown}"
        );
    }

    #[test]
    fn a_reason_survives_the_wire_and_others_are_none() {
        for reason in Reason::ALL {
            assert_eq!(Reason::of(&reason.status("for people")), Some(reason));
        }
        assert_eq!(Reason::of(&Status::unavailable("no reason")), None);
        let mut newer = Status::unavailable("a newer reason");
        let word = tonic::metadata::MetadataValue::from_static("moon-in-the-wrong-phase");
        newer.metadata_mut().insert(REASON, word);
        assert_eq!(Reason::of(&newer), None);
    }
}
