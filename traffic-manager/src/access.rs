//! Who gets a session (design §4, R1 and R5): a token for each namespace, or the pod's own alone.
//!
//! [`jwt`], [`keys`] and [`claims`] are pure; [`keeper`] holds the cluster's published keys, and
//! [`audit`] writes down what was decided. What a session then sees is the business of
//! [`sessions`](crate::sessions) and of the resolver's views.

use std::collections::BTreeSet;
use std::time::Duration;

use kubebridge_proto::session::SessionRequest;
use kubebridge_proto::token::{NamespaceToken, Reason};
use tokio::time::Instant;

use self::claims::Proof;
use self::jwt::Unverified;
use self::keeper::Keeper;
use self::wall::Wall;

pub mod audit;
pub mod claims;
pub mod jwt;
pub mod keeper;
pub mod key_file;
pub mod keys;
pub mod wall;

/// Decides who gets a session.
#[derive(Debug, Clone)]
pub enum Gate {
    /// Whoever has a token for each namespace.
    Tokens {
        /// The keys they are verified with.
        keeper: Keeper,
        /// The time they expire by.
        wall: Wall,
    },
    /// Nobody: tokens are wanted, and there is nothing to verify them with.
    NoKeys,
    /// Whoever got here through the API server's port-forward: these namespaces, of which there
    /// is one, the manager's own (R5).
    Own(BTreeSet<String>),
    /// Whoever is in the same process: every namespace.
    Demo,
}

/// What a session was admitted with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admission {
    /// When the first of the tokens expires; `None` without tokens.
    pub expires: Option<Instant>,
    /// What the tokens prove, one for each namespace, or nothing.
    pub proofs: Vec<Proof>,
    /// The client's certificate, over mutual TLS.
    pub certificate: Option<String>,
}

/// Why a session is not admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denied {
    /// The kind of reason.
    pub reason: Reason,
    /// The namespace it is about.
    pub namespace: Option<String>,
    /// The reason in words, without anything of a token.
    pub message: String,
}

impl Gate {
    /// Admits a request or says why not. The first namespace that fails decides.
    ///
    /// # Errors
    /// When a namespace is not proven, or is none of the manager's own.
    pub async fn admit(&self, request: &SessionRequest) -> Result<Admission, Denied> {
        match self {
            Self::Demo => Ok(Admission::default()),
            Self::Own(own) => match request.namespaces.iter().find(|name| !own.contains(*name)) {
                None => Ok(Admission::default()),
                Some(other) => Err(Denied::of(
                    Reason::NamespaceNotServed,
                    other,
                    format!("this manager serves its own namespace alone, not {other:?}"),
                )),
            },
            Self::NoKeys => Err(Denied {
                reason: Reason::KeyUnknown,
                namespace: None,
                message: "this manager has no keys to verify tokens with: \
                          it was started without --kubernetes and --token-keys"
                    .to_owned(),
            }),
            Self::Tokens { keeper, wall } => admit(request, keeper, wall).await,
        }
    }
}

impl Denied {
    fn of(reason: Reason, namespace: &str, message: String) -> Self {
        Self {
            reason,
            namespace: Some(namespace.to_owned()),
            message,
        }
    }
}

async fn admit(
    request: &SessionRequest,
    keeper: &Keeper,
    wall: &Wall,
) -> Result<Admission, Denied> {
    let mut proofs = Vec::with_capacity(request.namespaces.len());
    for namespace in &request.namespaces {
        let of_it = |token: &&NamespaceToken| token.namespace == *namespace;
        let Some(token) = request.tokens.iter().find(of_it) else {
            let message = format!("there is no token for namespace {namespace:?}");
            return Err(Denied::of(Reason::TokenMissing, namespace, message));
        };
        let proof = verify(token, keeper, wall).await.map_err(|bad| {
            let message = format!("the token for namespace {namespace:?}: {}", bad.message);
            Denied::of(bad.reason, namespace, message)
        })?;
        proofs.push(proof);
    }
    let (now, today) = (Instant::now(), wall.unix());
    let left = |proof: &Proof| Duration::from_secs(proof.expires.saturating_sub(today));
    Ok(Admission {
        expires: proofs.iter().map(left).min().map(|left| now + left),
        proofs,
        certificate: None,
    })
}

/// Why a token proves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bad {
    /// The kind of reason.
    pub reason: Reason,
    /// The reason in words, without anything of the token.
    pub message: String,
}

impl Bad {
    pub(crate) fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Reason::TokenInvalid, message)
    }
}

async fn verify(token: &NamespaceToken, keeper: &Keeper, wall: &Wall) -> Result<Proof, Bad> {
    let unverified = Unverified::parse(&token.token)?;
    let published = keeper.with_key(&unverified.key_id).await?;
    let verified = published.keys.verify(&unverified)?;
    claims::check(verified, &published.issuer, &token.namespace, wall.unix())
}

#[cfg(test)]
mod tests;
