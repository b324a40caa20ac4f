//! What a verified token says, and whether that is the right to a namespace. Pure: `now` is given.

use kubebridge_proto::token::{AUDIENCE, Reason, SERVICE_ACCOUNT};
use ring::digest::{SHA256, digest};
use serde::Deserialize;

use super::Bad;
use super::keys::Verified;

/// How far the clocks of manager and API server may differ, in seconds: a token that was made
/// just now is good at once. Expiry has none, so that what is withdrawn ends when it was told to.
const LEEWAY: u64 = 30;

/// How long a token is good for after it was made, whatever it says, in seconds: a right that is
/// taken away then ends within the hour, and open flows ten minutes later (R3).
pub const MAX_LIFE: u64 = 3600;

/// The longest id of a token that is taken down as it is.
const MAX_TOKEN_ID: usize = 64;

/// What a token proves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The namespace.
    pub namespace: String,
    /// The token's id, as the API server's own audit log has it.
    pub token_id: String,
    /// The uid of the ServiceAccount.
    pub account_uid: String,
    /// When it expires, in seconds since 1970.
    pub expires: u64,
}

impl Proof {
    /// Returns the name by which the API server knows who the token is of.
    #[must_use]
    pub fn subject(&self) -> String {
        subject(&self.namespace)
    }
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    exp: u64,
    nbf: Option<u64>,
    iat: u64,
    jti: Option<String>,
    #[serde(rename = "kubernetes.io")]
    kubernetes: Kubernetes,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct Kubernetes {
    namespace: String,
    serviceaccount: Account,
}

#[derive(Deserialize)]
struct Account {
    name: String,
    uid: String,
}

impl Audience {
    /// A token that is good elsewhere too is somebody's other credential: we are not to have it.
    fn is_ours_alone(&self) -> bool {
        match self {
            Self::One(one) => one == AUDIENCE,
            Self::Many(many) => matches!(many.as_slice(), [one] if one == AUDIENCE),
        }
    }
}

/// Checks what a token says against what it has to say.
///
/// # Errors
/// When it is of another issuer, for another audience, namespace or account, or not of now.
pub fn check(
    verified: Verified<'_>,
    issuer: &str,
    namespace: &str,
    now: u64,
) -> Result<Proof, Bad> {
    let claims: Claims = serde_json::from_slice(verified.payload)
        .map_err(|_| Bad::invalid("its claims are not those of a bound ServiceAccount token"))?;
    if claims.iss != issuer {
        return Err(Bad::invalid("it is of another issuer than this cluster"));
    }
    if !claims.aud.is_ours_alone() {
        return Err(Bad::invalid(format!(
            "its audience is not {AUDIENCE:?} alone"
        )));
    }
    let subject = subject(namespace);
    let Kubernetes {
        namespace: of,
        serviceaccount: account,
    } = claims.kubernetes;
    if claims.sub != subject || of != namespace || account.name != SERVICE_ACCOUNT {
        return Err(Bad::invalid(format!("it is not of {subject}")));
    }
    let begins = claims.nbf.unwrap_or(claims.iat).max(claims.iat);
    if begins > now.saturating_add(LEEWAY) {
        return Err(Bad::invalid("it is not valid yet"));
    }
    let expires = claims.exp.min(claims.iat.saturating_add(MAX_LIFE));
    if expires <= now {
        return Err(Bad::new(Reason::TokenExpired, "it has expired"));
    }
    let token_id = claims
        .jti
        .filter(|id| is_plain(id))
        .unwrap_or_else(|| fingerprint(verified.signed));
    if !is_plain(&account.uid) {
        return Err(Bad::invalid("the uid of its account makes no sense"));
    }
    Ok(Proof {
        namespace: namespace.to_owned(),
        token_id,
        account_uid: account.uid,
        expires,
    })
}

fn subject(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}")
}

/// Tells whether an id can be written down as it is.
fn is_plain(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_TOKEN_ID && id.bytes().all(|octet| octet.is_ascii_graphic())
}

/// Names a token of an API server that gives it no id: before Kubernetes 1.30.
fn fingerprint(signed: &[u8]) -> String {
    let digest = digest(&SHA256, signed);
    let hex = digest.as_ref().iter().take(8);
    hex.fold("sha256:".to_owned(), |text, octet| {
        format!("{text}{octet:02x}")
    })
}
