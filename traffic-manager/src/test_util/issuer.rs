//! An issuer of ServiceAccount tokens for tests: signs what it is told to, as an API server does.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kubebridge_proto::token::{AUDIENCE, NamespaceToken, SERVICE_ACCOUNT};
use kubebridge_proto::v1;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::access::keeper::Published;
use crate::access::keys::KeySet;
use crate::access::wall::Wall;

/// The issuer's name.
pub const ISSUER: &str = "https://issuer.test.example";

/// Signs tokens with a key of its own.
pub struct Issuer {
    key: EcdsaKeyPair,
    key_id: String,
    random: SystemRandom,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Issuer")
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

impl Default for Issuer {
    fn default() -> Self {
        Self::new("key-1")
    }
}

impl Issuer {
    /// Makes an issuer with a new key of this id.
    ///
    /// # Panics
    /// When the system gives no random numbers.
    #[must_use]
    pub fn new(key_id: &str) -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let document =
            EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("random numbers for a key");
        let key = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random)
            .expect("a key that was just made");
        Self {
            key,
            key_id: key_id.to_owned(),
            random,
        }
    }

    /// The public key, as `/openid/v1/jwks` has it.
    #[must_use]
    pub fn jwk(&self) -> Value {
        let point = self.key.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        json!({
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y),
        })
    }

    /// What `/openid/v1/jwks` has when this is the only key.
    #[must_use]
    pub fn jwks(&self) -> String {
        json!({ "keys": [self.jwk()] }).to_string()
    }

    /// What `/.well-known/openid-configuration` has.
    #[must_use]
    pub fn discovery() -> String {
        json!({ "issuer": ISSUER, "jwks_uri": "https://elsewhere.test.example/keys" }).to_string()
    }

    /// What a manager holds once it has fetched the keys.
    ///
    /// # Panics
    /// When our own keys make no sense.
    #[must_use]
    pub fn published(&self) -> Published {
        Published {
            issuer: ISSUER.to_owned(),
            keys: KeySet::from_json(&self.jwks()).expect("keys of our own making"),
        }
    }

    /// The claims of a token for a namespace, made at this time and good for an hour.
    #[must_use]
    pub fn claims(namespace: &str, unix: u64) -> Value {
        json!({
            "iss": ISSUER,
            "aud": [AUDIENCE],
            "sub": format!("system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}"),
            "iat": unix, "nbf": unix, "exp": unix + 3600,
            "jti": format!("jti-{namespace}-{unix}"),
            "kubernetes.io": {
                "namespace": namespace,
                "serviceaccount": { "name": SERVICE_ACCOUNT, "uid": format!("uid-{namespace}") },
            },
        })
    }

    /// Signs claims.
    #[must_use]
    pub fn sign(&self, claims: &Value) -> String {
        self.sign_as(&json!({ "alg": "ES256", "kid": self.key_id }), claims)
    }

    /// Signs claims under another header; the signature is by our key all the same.
    ///
    /// # Panics
    /// When the system gives no random numbers.
    #[must_use]
    pub fn sign_as(&self, header: &Value, claims: &Value) -> String {
        let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", encode(header), encode(claims));
        let signature = self
            .key
            .sign(&self.random, signed.as_bytes())
            .expect("random numbers for a signature");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Makes a token for a namespace, good for an hour from now.
    #[must_use]
    pub fn token(&self, namespace: &str) -> NamespaceToken {
        NamespaceToken {
            namespace: namespace.to_owned(),
            token: self.sign(&Self::claims(namespace, Wall::System.unix())),
        }
    }

    /// Makes the tokens of a request.
    #[must_use]
    pub fn tokens(&self, namespaces: &[&str]) -> Vec<v1::NamespaceToken> {
        let token = |namespace: &&str| self.token(namespace).into();
        namespaces.iter().map(token).collect()
    }
}
