//! Which tokens open a session, and which of the many that look like one do not.

use kubebridge_proto::token::MAX_TOKEN;
use ring::hmac;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::access::keeper::{KeySource, Published};
use crate::test_util::issuer::{ISSUER, Issuer};

/// The time by which the tests' tokens are judged.
const NOW: u64 = 1_800_000_000;

/// Where a token says whose it is, beside its subject.
const ACCOUNT_NAME: &str = "/kubernetes.io/serviceaccount/name";
const ACCOUNT_UID: &str = "/kubernetes.io/serviceaccount/uid";

struct Held(Published);

impl KeySource for Held {
    fn fetch(&self) -> futures::future::BoxFuture<'_, anyhow::Result<Published>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}

struct World {
    issuer: Issuer,
    gate: Gate,
    _keeping: AbortOnDropHandle<()>,
}

impl World {
    fn new() -> Self {
        let issuer = Issuer::default();
        let source = Held(issuer.published());
        let (keeper, keeping) = Keeper::new(source, CancellationToken::new());
        Self {
            issuer,
            gate: Gate::Tokens {
                keeper,
                wall: Wall::at(NOW),
            },
            _keeping: AbortOnDropHandle::new(tokio::spawn(keeping)),
        }
    }

    /// Asks for the namespace `shop` with a token.
    async fn ask(&self, token: &str) -> Result<Admission, Denied> {
        let token = NamespaceToken {
            namespace: "shop".to_owned(),
            token: token.to_owned(),
        };
        self.gate.admit(&request(&["shop"], vec![token])).await
    }

    /// Signs the claims of a good token, changed in one place.
    fn changed(&self, pointer: &str, value: Value) -> String {
        let mut claims = Issuer::claims("shop", NOW);
        *claims.pointer_mut(pointer).unwrap() = value;
        self.issuer.sign(&claims)
    }

    fn without(&self, claim: &str) -> String {
        let mut claims = Issuer::claims("shop", NOW);
        claims.as_object_mut().unwrap().remove(claim).unwrap();
        self.issuer.sign(&claims)
    }
}

fn request(namespaces: &[&str], tokens: Vec<NamespaceToken>) -> SessionRequest {
    SessionRequest {
        client_version: "0.1.0".to_owned(),
        id: None,
        namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
        domains: Vec::new(),
        tokens,
    }
}

fn encode(part: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(part)
}

#[tokio::test(start_paused = true)]
async fn r1_a_token_of_the_namespace_opens_a_session_until_it_expires() {
    let world = World::new();
    let admitted = world
        .ask(&world.issuer.sign(&Issuer::claims("shop", NOW)))
        .await;
    let admitted = admitted.unwrap();
    assert_eq!(
        admitted.expires,
        Some(Instant::now() + Duration::from_secs(3600))
    );
    let proof = Proof {
        namespace: "shop".to_owned(),
        token_id: format!("jti-shop-{NOW}"),
        account_uid: "uid-shop".to_owned(),
        expires: NOW + 3600,
    };
    assert_eq!(admitted.proofs, [proof]);
}

#[tokio::test(start_paused = true)]
async fn r1_every_namespace_needs_its_own_token_and_the_first_to_expire_counts() {
    let world = World::new();
    let sign = |namespace: &str, made| NamespaceToken {
        namespace: namespace.to_owned(),
        token: world.issuer.sign(&Issuer::claims(namespace, made)),
    };
    let both = request(
        &["shop", "prod"],
        vec![sign("prod", NOW - 600), sign("shop", NOW)],
    );
    let admitted = world.gate.admit(&both).await.unwrap();
    assert_eq!(
        admitted.expires,
        Some(Instant::now() + Duration::from_secs(3000))
    );
    let one = request(&["shop", "prod"], vec![sign("shop", NOW)]);
    let denied = world.gate.admit(&one).await.unwrap_err();
    assert_eq!(denied.reason, Reason::TokenMissing);
    assert_eq!(denied.namespace.as_deref(), Some("prod"));
    // A token of one namespace presented for another.
    let swapped = NamespaceToken {
        namespace: "prod".to_owned(),
        ..sign("shop", NOW)
    };
    let swapped = request(&["shop", "prod"], vec![sign("shop", NOW), swapped]);
    let denied = world.gate.admit(&swapped).await.unwrap_err();
    assert_eq!(denied.reason, Reason::TokenInvalid);
}

#[tokio::test(start_paused = true)]
async fn r1_a_token_whose_claims_are_not_right_is_refused() {
    let world = World::new();
    let of = |account: &str| json!(format!("system:serviceaccount:{account}"));
    for (what, pointer, value) in [
        ("another issuer", "/iss", json!("https://evil.example")),
        ("the API server's audience", "/aud", json!([ISSUER])),
        ("another audience", "/aud", json!("vault")),
        ("two audiences", "/aud", json!(["kubebridge", "vault"])),
        ("no audience", "/aud", json!([])),
        ("a longer audience", "/aud", json!(["kubebridge-2"])),
        ("another account", "/sub", of("shop:default")),
        ("another namespace", "/sub", of("prod:kubebridge-access")),
        ("two namespaces", "/kubernetes.io/namespace", json!("prod")),
        ("two accounts", ACCOUNT_NAME, json!("default")),
        ("an odd uid", ACCOUNT_UID, json!("a b\nc")),
        ("no uid", ACCOUNT_UID, json!("")),
        ("a start to come", "/nbf", json!(NOW + 31)),
        ("a making to come", "/iat", json!(NOW + 86_400)),
        ("a negative expiry", "/exp", json!(-1)),
        ("an expiry in words", "/exp", json!("never")),
        ("an expiry in fractions", "/exp", json!(1.8e9)),
        ("nothing of Kubernetes", "/kubernetes.io", json!(null)),
    ] {
        let token = world.changed(pointer, value);
        let denied = world.ask(&token).await.expect_err(what);
        assert_eq!(denied.reason, Reason::TokenInvalid, "{what}: {denied:?}");
        assert!(!denied.message.contains(&token), "{what} is told");
    }
    for claim in ["exp", "iat", "iss", "aud", "sub", "kubernetes.io"] {
        let denied = world.ask(&world.without(claim)).await.expect_err(claim);
        assert_eq!(denied.reason, Reason::TokenInvalid, "{claim}: {denied:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn r1_a_token_whose_time_is_over_is_refused() {
    let world = World::new();
    for (what, pointer, value) in [
        ("expired", "/exp", NOW - 1),
        ("expired this second", "/exp", NOW),
        ("made an hour ago", "/iat", NOW - 3600),
    ] {
        let denied = world.ask(&world.changed(pointer, json!(value))).await;
        assert_eq!(denied.expect_err(what).reason, Reason::TokenExpired);
    }
}

#[tokio::test(start_paused = true)]
async fn r1_a_small_difference_of_clocks_is_no_matter() {
    let world = World::new();
    for made in [NOW - 3599, NOW, NOW + 30] {
        let token = world.issuer.sign(&Issuer::claims("shop", made));
        assert!(world.ask(&token).await.is_ok(), "made at {made}");
    }
}

#[tokio::test(start_paused = true)]
async fn r1_a_long_lived_token_is_good_for_an_hour_after_it_was_made() {
    let world = World::new();
    let token = world.changed("/exp", json!(NOW + 31_536_000));
    let admitted = world.ask(&token).await.unwrap();
    assert_eq!(
        admitted.expires,
        Some(Instant::now() + Duration::from_secs(3600))
    );
}

#[tokio::test(start_paused = true)]
async fn r1_a_token_without_an_id_is_told_from_others_by_its_text() {
    let world = World::new();
    let first = world.ask(&world.without("jti")).await.unwrap();
    let id = &first.proofs[0].token_id;
    assert!(id.starts_with("sha256:") && id.len() == 7 + 16, "{id}");
    let odd = world.changed("/jti", json!("a \"b\"\n"));
    let second = world.ask(&odd).await.unwrap();
    assert_ne!(second.proofs[0].token_id, *id);
}

#[tokio::test(start_paused = true)]
async fn r1_a_token_that_is_not_signed_by_the_cluster_is_refused() {
    let world = World::new();
    let claims = Issuer::claims("shop", NOW);
    let good = world.issuer.sign(&claims);
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let header = |alg: &str| json!({ "alg": alg, "kid": "key-1" });
    let unsigned = |header: &Value| {
        format!(
            "{}.{}",
            encode(header.to_string().as_bytes()),
            encode(claims.to_string().as_bytes())
        )
    };
    // The key everybody knows, taken for a shared secret.
    let hmac = |alg: &str| {
        let text = unsigned(&header(alg));
        let key = hmac::Key::new(hmac::HMAC_SHA256, world.issuer.jwks().as_bytes());
        format!(
            "{text}.{}",
            encode(hmac::sign(&key, text.as_bytes()).as_ref())
        )
    };
    let flipped = |at: usize| {
        let mut octets = good.clone().into_bytes();
        octets[at] = if octets[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(octets).unwrap()
    };
    let payload = signed.find('.').unwrap();
    for (what, token) in [
        ("by nobody", format!("{}.", unsigned(&header("none")))),
        ("by nobody, in capitals", format!("{}.", unsigned(&header("NONE")))),
        ("by nobody, but called ES256", format!("{}.", unsigned(&header("ES256")))),
        ("by the public key as HS256", hmac("HS256")),
        ("by the public key as ES256", hmac("ES256")),
        ("as RS256, with an EC key", world.issuer.sign_as(&header("RS256"), &claims)),
        ("as ES384, with a P-256 key", world.issuer.sign_as(&header("ES384"), &claims)),
        ("as EdDSA", world.issuer.sign_as(&header("EdDSA"), &claims)),
        ("in a small-lettered way", world.issuer.sign_as(&header("es256"), &claims)),
        ("with no algorithm", world.issuer.sign_as(&json!({ "kid": "key-1" }), &claims)),
        ("with no key", world.issuer.sign_as(&json!({ "alg": "ES256" }), &claims)),
        ("with an empty key", world.issuer.sign_as(&json!({ "alg": "ES256", "kid": "" }), &claims)),
        (
            "with a key of its own",
            world.issuer.sign_as(
                &json!({ "alg": "ES256", "kid": "key-1", "jwk": Issuer::new("key-1").jwk(), "crit": ["jwk"] }),
                &claims,
            ),
        ),
        ("by another with the same key id", Issuer::new("key-1").sign(&claims)),
        ("with another header", flipped(3)),
        ("with another payload", flipped(payload + 20)),
        ("with another signature", flipped(payload + signed.len() - payload + 10)),
        ("with half a signature", format!("{signed}.{}", &signature[..43])),
        ("with two signatures", format!("{good}{signature}")),
        ("with a zero signature", format!("{signed}.{}", encode(&[0; 64]))),
    ] {
        let denied = world.ask(&token).await.expect_err(what);
        assert_eq!(denied.reason, Reason::TokenInvalid, "signed {what}: {denied:?}");
    }
    let unknown = Issuer::new("key-2").sign(&claims);
    assert_eq!(
        world.ask(&unknown).await.unwrap_err().reason,
        Reason::KeyUnknown
    );
    assert!(world.ask(&good).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn r1_what_is_no_token_is_refused() {
    let world = World::new();
    let good = world.issuer.sign(&Issuer::claims("shop", NOW));
    let deep = format!("{}{}", "[".repeat(2000), "]".repeat(2000));
    for token in [
        "".to_owned(),
        ".".to_owned(),
        "..".to_owned(),
        "...".to_owned(),
        "a.b.c".to_owned(),
        "secret".to_owned(),
        "A".repeat(MAX_TOKEN + 1),
        format!(
            "{}.{}.{}",
            "A".repeat(2000),
            "A".repeat(2000),
            "A".repeat(2000)
        ),
        format!(
            "{}.{}.{}",
            encode(deep.as_bytes()),
            encode(b"{}"),
            encode(b"x")
        ),
        format!("{}.{}.{}", encode(b"\xff\xfe"), encode(b"{}"), encode(b"x")),
        format!(
            "{}.e30.AA",
            encode(br#"{"alg":"ES256","alg":"none","kid":"key-1"}"#)
        ),
        format!("{good}."),
        format!(".{good}"),
        format!("{good} "),
        format!("{good}\n"),
        format!("{good}="),
        good.replace('.', ".."),
        good.replacen('.', "\u{ff0e}", 1),
    ] {
        let denied = world.ask(&token).await.expect_err(&token);
        assert_eq!(denied.reason, Reason::TokenInvalid, "{token}: {denied:?}");
    }
    // A piece of a good one, wherever it is cut, and one with an octet too many anywhere.
    for at in 0..good.len() {
        assert!(world.ask(&good[..at]).await.is_err(), "cut at {at}");
        let longer = format!("{}A{}", &good[..at], &good[at..]);
        assert!(world.ask(&longer).await.is_err(), "longer at {at}");
    }
}

/// RFC 7515, appendix A.2: the signature of another implementation, by RSA.
#[test]
fn r1_a_signature_by_rsa_is_verified() {
    const N: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    const SIGNED: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let jwks =
        json!({ "keys": [{ "kty": "RSA", "kid": "rfc", "alg": "RS256", "n": N, "e": "AQAB" }] });
    let keys = keys::KeySet::from_json(&jwks.to_string()).unwrap();
    let token = |signed: &'static str| {
        use base64::Engine as _;
        Unverified {
            algorithm: jwt::Algorithm::Rs256,
            key_id: "rfc".to_owned(),
            signed: signed.as_bytes(),
            payload: Vec::new(),
            signature: base64::engine::general_purpose::URL_SAFE_NO_PAD
                .decode(SIGNATURE)
                .unwrap(),
        }
    };
    assert!(keys.verify(&token(SIGNED)).is_ok());
    let other = token("eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJldmUifQ");
    let error = keys.verify(&other);
    assert_eq!(error.unwrap_err(), Bad::invalid("its signature is wrong"));
}

#[tokio::test]
async fn r5_without_tokens_the_managers_own_namespace_is_the_only_one() {
    let gate = Gate::Own(["shop".to_owned()].into());
    assert_eq!(
        gate.admit(&request(&["shop"], vec![])).await,
        Ok(Admission::default())
    );
    let denied = gate
        .admit(&request(&["shop", "prod"], vec![]))
        .await
        .unwrap_err();
    assert_eq!(denied.reason, Reason::NamespaceNotServed);
    assert_eq!(denied.namespace.as_deref(), Some("prod"));
}
