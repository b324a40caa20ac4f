//! Which DNS names the laptop's resolver may be pointed at: domain name syntax and the names that
//! are never ours to take.
//!
//! Pure. What else the host uses (its own search and routing domains) is compared in `dns`.

/// Single labels that belong to the host, its network or the DNS itself (condition C5).
const RESERVED: [&str; 13] = [
    "alt",
    "arpa",
    "corp",
    "home",
    "internal",
    "intranet",
    "invalid",
    "lan",
    "local",
    "localhost",
    "localdomain",
    "onion",
    "test",
];

/// Why a domain may not be sent to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It is no domain name.
    #[error("not a domain name")]
    Syntax,
    /// It is the root.
    #[error("the root would take every name")]
    Root,
    /// Other people register names under it.
    #[error("a public suffix")]
    PublicSuffix,
    /// It belongs to the local network or the DNS itself.
    #[error("reserved for the local network or the DNS itself")]
    Reserved,
    /// It is a single label that is neither `svc` nor a namespace.
    #[error("a single label that is no namespace of the session")]
    SingleLabel,
}

/// Lower-cases a domain name, drops the trailing dot and checks its form.
///
/// Letters, digits, `-` and `_` only: these names become arguments, file names and hosts lines.
pub fn normalise(name: &str) -> Result<String, Refusal> {
    if name == "." {
        return Err(Refusal::Root);
    }
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() <= 253 && name.split('.').all(label) {
        Ok(name)
    } else {
        Err(Refusal::Syntax)
    }
}

/// Tells whether anyone may register names directly under `name` (`com`, `dev`, `co.uk`).
pub fn is_public_suffix(name: &str) -> bool {
    psl::suffix(name.as_bytes()).is_some_and(|suffix| suffix.is_known() && suffix == name)
}

/// Tells whether the last label of `name` is a top-level domain of the public DNS.
pub fn has_public_tld(name: &str) -> bool {
    let tld = name.rsplit('.').next().unwrap_or(name);
    is_public_suffix(tld)
}

/// Tells whether a Service of a cluster can have this name: `SERVICE`, `SERVICE.NAMESPACE` or
/// `SERVICE.NAMESPACE.svc.DOMAIN`.
pub fn is_service_name(name: &str) -> bool {
    let labels = name.split('.').count();
    labels <= 2 || labels > 3 && name.split('.').nth(2) == Some("svc")
}

/// Checks a namespace (normalised) as a routing domain of its own.
///
/// A namespace that is a public TLD passes: our resolver sends only names it knows to the cluster.
pub fn check_namespace(namespace: &str) -> Result<(), Refusal> {
    if namespace.contains('.') {
        Err(Refusal::Syntax)
    } else if RESERVED.contains(&namespace) {
        Err(Refusal::Reserved)
    } else {
        Ok(())
    }
}

/// Checks any other routing or search domain (normalised).
pub fn check_domain(domain: &str) -> Result<(), Refusal> {
    if is_public_suffix(domain) {
        Err(Refusal::PublicSuffix)
    } else if RESERVED.contains(&domain) {
        Err(Refusal::Reserved)
    } else if !domain.contains('.') && domain != "svc" {
        Err(Refusal::SingleLabel)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_lower_cased_and_lose_their_trailing_dot() {
        assert_eq!(normalise("Cluster.Local."), Ok("cluster.local".to_owned()));
        assert_eq!(normalise("_grpc._tcp.x"), Ok("_grpc._tcp.x".to_owned()));
    }

    #[test]
    fn names_that_could_be_read_as_something_else_are_refused() {
        let long = "a".repeat(64);
        for name in [
            "", "a..b", ".a", "a b", "a/b", "a:b", "a\\b", "a#b", "a\nb", "-a", "a-", "*.a", &long,
        ] {
            assert_eq!(normalise(name), Err(Refusal::Syntax), "{name:?}");
        }
        assert_eq!(normalise("."), Err(Refusal::Root));
    }

    #[test]
    fn no_scope_is_a_public_suffix_or_a_reserved_label() {
        for (domain, verdict) in [
            ("cluster.local", Ok(())),
            ("svc", Ok(())),
            ("default.svc.cluster.local", Ok(())),
            ("corp.example.com", Ok(())),
            ("com", Err(Refusal::PublicSuffix)),
            ("co.uk", Err(Refusal::PublicSuffix)),
            ("dev", Err(Refusal::PublicSuffix)),
            ("local", Err(Refusal::Reserved)),
            ("internal", Err(Refusal::Reserved)),
            ("cluster", Err(Refusal::SingleLabel)),
        ] {
            assert_eq!(check_domain(domain), verdict, "{domain}");
        }
    }

    #[test]
    fn a_namespace_may_be_a_public_tld_but_not_a_reserved_label() {
        for (namespace, verdict) in [
            ("default", Ok(())),
            ("shop", Ok(())),
            ("dev", Ok(())),
            ("test", Err(Refusal::Reserved)),
            ("lan", Err(Refusal::Reserved)),
            ("a.b", Err(Refusal::Syntax)),
        ] {
            assert_eq!(check_namespace(namespace), verdict, "{namespace}");
        }
    }

    #[test]
    fn public_tlds_are_known_by_name() {
        assert!(has_public_tld("authors.shop"));
        assert!(has_public_tld("dev"));
        assert!(!has_public_tld("authors.default"));
        assert!(!has_public_tld("authors.default.svc.cluster.local"));
    }
}
