//! The public keys of a cluster (RFC 7517), and signatures verified with them.
//!
//! A key serves the one algorithm it is for, so that no token chooses how its key is used. Keys of
//! other kinds are passed over: a cluster may publish some that are not ours to understand.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kubebridge_proto::token::Reason;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, RSA_PKCS1_2048_8192_SHA256,
    RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;

use super::Bad;
use super::jwt::{Algorithm, Unverified};

/// The longest key document: a hundred large RSA keys.
pub const MAX_DOCUMENT: usize = 128 * 1024;

/// The most keys: a cluster has one or two, and one per control-plane node in some.
const MAX_KEYS: usize = 100;

/// The shortest RSA modulus, in octets: 2048 bits.
const MIN_MODULUS: usize = 256;

/// Public keys by their id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySet(BTreeMap<String, Key>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Key {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// A point, uncompressed.
    P256(Vec<u8>),
    P384(Vec<u8>),
}

/// The payload of a token whose signature is good.
#[derive(Debug, Clone, Copy)]
pub struct Verified<'a> {
    /// What the signer says.
    pub payload: &'a [u8],
    /// What was signed, which tells one token from another.
    pub signed: &'a [u8],
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Jwk>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Reads a key document.
    ///
    /// # Errors
    /// When it is none, or too large. A key that cannot be used is passed over.
    pub fn from_json(text: &str) -> Result<Self> {
        ensure!(text.len() <= MAX_DOCUMENT, "the key document is too large");
        let document: Document = serde_json::from_str(text).context("not a JSON Web Key Set")?;
        ensure!(document.keys.len() <= MAX_KEYS, "there are too many keys");
        let mut keys = BTreeMap::new();
        for jwk in document.keys {
            let id = jwk.kid.clone().filter(|id| !id.is_empty());
            if let (Some(id), Some(key)) = (id, jwk.key()) {
                keys.entry(id).or_insert(key);
            }
        }
        Ok(Self(keys))
    }

    /// Tells whether there is a key of this id.
    #[must_use]
    pub fn has(&self, id: &str) -> bool {
        self.0.contains_key(id)
    }

    /// Counts the keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Tells whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Verifies a token's signature.
    ///
    /// # Errors
    /// When there is no such key, it is for another algorithm, or the signature is not by it.
    pub fn verify<'a>(&self, token: &'a Unverified<'_>) -> Result<Verified<'a>, Bad> {
        let key = self.0.get(&token.key_id).ok_or_else(|| {
            Bad::new(
                Reason::KeyUnknown,
                "it is signed with a key the cluster does not publish",
            )
        })?;
        if key.verifies(token)? {
            Ok(Verified {
                payload: &token.payload,
                signed: token.signed,
            })
        } else {
            Err(Bad::invalid("its signature is wrong"))
        }
    }
}

impl Key {
    fn verifies(&self, token: &Unverified<'_>) -> Result<bool, Bad> {
        let (message, signature) = (token.signed, token.signature.as_slice());
        let outcome = match (self, token.algorithm) {
            (Self::Rsa { modulus, exponent }, Algorithm::Rs256) => RsaPublicKeyComponents {
                n: modulus,
                e: exponent,
            }
            .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature),
            (Self::P256(point), Algorithm::Es256) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            (Self::P384(point), Algorithm::Es384) => {
                UnparsedPublicKey::new(&ECDSA_P384_SHA384_FIXED, point).verify(message, signature)
            }
            (Self::Rsa { .. } | Self::P256(_) | Self::P384(_), _) => {
                return Err(Bad::invalid("its algorithm is not its key's"));
            }
        };
        Ok(outcome.is_ok())
    }
}

impl Jwk {
    /// Returns the key; `None` for one of another kind or use, or one that makes no sense.
    fn key(&self) -> Option<Key> {
        if self.usage.as_deref().is_some_and(|usage| usage != "sig") {
            return None;
        }
        let is_for = |name: &str| self.alg.as_deref().is_none_or(|alg| alg == name);
        let octets = |field: &Option<String>| URL_SAFE_NO_PAD.decode(field.as_deref()?).ok();
        let point = |length: usize| {
            let (x, y) = (octets(&self.x)?, octets(&self.y)?);
            let fits = x.len() == length && y.len() == length;
            fits.then(|| [&[4], x.as_slice(), y.as_slice()].concat())
        };
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) if is_for("RS256") => {
                let (modulus, exponent) = (octets(&self.n)?, octets(&self.e)?);
                let significant = modulus.iter().skip_while(|octet| **octet == 0).count();
                // ring takes neither number with zeros in front.
                let trim = |number: Vec<u8>| -> Vec<u8> {
                    number.into_iter().skip_while(|octet| *octet == 0).collect()
                };
                (significant >= MIN_MODULUS).then(|| Key::Rsa {
                    modulus: trim(modulus),
                    exponent: trim(exponent),
                })
            }
            ("EC", Some("P-256")) if is_for("ES256") => point(32).map(Key::P256),
            ("EC", Some("P-384")) if is_for("ES384") => point(48).map(Key::P384),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
    const Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";

    fn keys(of: &str) -> KeySet {
        KeySet::from_json(&format!("{{\"keys\":[{of}]}}")).unwrap()
    }

    #[test]
    fn keys_that_are_not_for_signatures_like_ours_are_passed_over() {
        let modulus = "A".repeat(342);
        for (key, count) in [
            (
                format!(r#"{{"kty":"EC","crv":"P-256","kid":"a","x":"{X}","y":"{Y}"}}"#),
                1,
            ),
            (
                format!(
                    r#"{{"kty":"EC","crv":"P-256","kid":"a","use":"sig","alg":"ES256","x":"{X}","y":"{Y}"}}"#
                ),
                1,
            ),
            (
                format!(
                    r#"{{"kty":"EC","crv":"P-256","kid":"a","use":"enc","x":"{X}","y":"{Y}"}}"#
                ),
                0,
            ),
            (
                format!(
                    r#"{{"kty":"EC","crv":"P-256","kid":"a","alg":"RS256","x":"{X}","y":"{Y}"}}"#
                ),
                0,
            ),
            (
                format!(r#"{{"kty":"EC","crv":"P-256","x":"{X}","y":"{Y}"}}"#),
                0,
            ),
            (
                format!(r#"{{"kty":"EC","crv":"P-384","kid":"a","x":"{X}","y":"{Y}"}}"#),
                0,
            ),
            (
                format!(r#"{{"kty":"EC","crv":"P-256","kid":"a","x":"{X}"}}"#),
                0,
            ),
            (r#"{"kty":"oct","kid":"a","k":"c2VjcmV0"}"#.to_owned(), 0),
            (
                r#"{"kty":"OKP","crv":"Ed25519","kid":"a","x":"AA"}"#.to_owned(),
                0,
            ),
            (
                format!(r#"{{"kty":"RSA","kid":"a","n":"{modulus}","e":"AQAB"}}"#),
                0,
            ),
            (
                format!(r#"{{"kty":"RSA","kid":"a","n":"_{modulus}","e":"AQAB"}}"#),
                1,
            ),
            (
                r#"{"kty":"RSA","kid":"a","n":"AQAB","e":"AQAB"}"#.to_owned(),
                0,
            ),
            (r#"{"kty":"moon","kid":"a"}"#.to_owned(), 0),
        ] {
            assert_eq!(keys(&key).len(), count, "{key}");
        }
    }

    #[test]
    fn what_is_no_key_document_is_an_error() {
        for text in ["", "[]", "{}", r#"{"keys":{}}"#, r#"{"keys":[{}]}"#] {
            assert!(KeySet::from_json(text).is_err(), "{text}");
        }
        let many = vec![r#"{"kty":"oct"}"#; MAX_KEYS + 1].join(",");
        assert!(KeySet::from_json(&format!("{{\"keys\":[{many}]}}")).is_err());
        let large = " ".repeat(MAX_DOCUMENT + 1);
        assert!(KeySet::from_json(&large).is_err());
    }
}
