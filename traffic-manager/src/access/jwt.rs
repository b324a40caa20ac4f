//! A signed token in compact form (RFC 7515 §7.1), taken apart and not yet believed.
//!
//! Nothing here verifies anything. Only the algorithms with which API servers sign exist: a token
//! that names another, `none` or a shared secret among them, is refused before a key is looked for.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kubebridge_proto::token::MAX_TOKEN;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Bad;

/// The longest id of a key that is looked up: API servers use 43 characters.
const MAX_KEY_ID: usize = 256;

/// How a token is signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// RSA, PKCS#1 v1.5, SHA-256.
    Rs256,
    /// ECDSA on P-256, SHA-256.
    Es256,
    /// ECDSA on P-384, SHA-384.
    Es384,
}

impl Algorithm {
    /// Reads the name of RFC 7518 §3.1; `None` for any other algorithm.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        match name {
            "RS256" => Some(Self::Rs256),
            "ES256" => Some(Self::Es256),
            "ES384" => Some(Self::Es384),
            _ => None,
        }
    }
}

/// A token taken apart.
#[derive(Debug)]
pub struct Unverified<'token> {
    /// How it says it is signed.
    pub algorithm: Algorithm,
    /// The key it says it is signed with.
    pub key_id: String,
    /// What is signed: header and payload, encoded.
    pub signed: &'token [u8],
    /// The payload.
    pub payload: Vec<u8>,
    /// The signature.
    pub signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    crit: Option<IgnoredAny>,
}

impl<'token> Unverified<'token> {
    /// Takes a token apart.
    ///
    /// # Errors
    /// When it is no such token, or signed in a way that is never accepted.
    pub fn parse(token: &'token str) -> Result<Self, Bad> {
        if token.len() > MAX_TOKEN {
            return Err(Bad::invalid("it is too long"));
        }
        let shape = || Bad::invalid("it is not three parts of base64url with dots between");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(shape)?;
        let (header, payload) = signed.split_once('.').ok_or_else(shape)?;
        // Strict: no padding, no line ends, no bits left over, so that a token has one spelling.
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| shape());
        let (header, payload) = (decode(header)?, decode(payload)?);
        let signature = decode(signature)?;
        let header: Header = serde_json::from_slice(&header)
            .map_err(|_| Bad::invalid("its header cannot be read"))?;
        if header.crit.is_some() {
            return Err(Bad::invalid("its header has critical extensions"));
        }
        let algorithm = Algorithm::of(&header.alg)
            .ok_or_else(|| Bad::invalid("its algorithm is none of RS256, ES256 and ES384"))?;
        let key_id = header
            .kid
            .filter(|id| !id.is_empty() && id.len() <= MAX_KEY_ID)
            .ok_or_else(|| Bad::invalid("its header names no key"))?;
        Ok(Self {
            algorithm,
            key_id,
            signed: signed.as_bytes(),
            payload,
            signature,
        })
    }
}
