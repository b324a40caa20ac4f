//! The syntax of the names that cross the wire: RFC 1123 labels and version numbers.
//!
//! DNS names in general belong to the `dns` crate.

use crate::error::InvalidMessage;

/// The longest RFC 1123 label.
const MAX_LABEL: usize = 63;

/// Checks that a value is an RFC 1123 label, as namespaces and Services are.
///
/// # Errors
/// When it is empty ([`InvalidMessage::Missing`]) or not a label; the error names `field`.
pub fn check_label(field: &'static str, value: &str) -> Result<(), InvalidMessage> {
    if value.is_empty() {
        return Err(InvalidMessage::Missing { field });
    }
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| *byte != b'-');
    let bytes = value.as_bytes();
    let fits = bytes.len() <= MAX_LABEL
        && bytes.iter().copied().all(inner)
        && edge(bytes.first())
        && edge(bytes.last());
    if fits {
        return Ok(());
    }
    Err(InvalidMessage::invalid(
        field,
        value,
        "an RFC 1123 label has 1 to 63 of a-z, 0-9 and '-', and no '-' at an end",
    ))
}

/// Checks that a value is a version number, `MAJOR.MINOR.PATCH` with an optional pre-release.
///
/// # Errors
/// When it is empty ([`InvalidMessage::Missing`]) or no version; the error names `field`.
pub fn parse_version(field: &'static str, value: &str) -> Result<(u64, u64, u64), InvalidMessage> {
    if value.is_empty() {
        return Err(InvalidMessage::Missing { field });
    }
    let core = value.split(['-', '+']).next().unwrap_or_default();
    let mut numbers = core.split('.').map(str::parse::<u64>);
    match (
        numbers.next(),
        numbers.next(),
        numbers.next(),
        numbers.next(),
    ) {
        (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) => Ok((major, minor, patch)),
        _ => Err(InvalidMessage::invalid(
            field,
            value,
            "expected MAJOR.MINOR.PATCH",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_follow_rfc_1123() {
        for good in ["a", "shop", "team-1", "9", &"x".repeat(63)] {
            assert_eq!(check_label("namespace", good), Ok(()), "{good}");
        }
        for bad in [
            "-a",
            "a-",
            "A",
            "a.b",
            "a_b",
            "\u{e9}",
            " ",
            &"x".repeat(64),
        ] {
            let error = check_label("namespace", bad).unwrap_err();
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("namespace is {bad:?}")),
                "{error}"
            );
        }
    }

    #[test]
    fn an_empty_label_is_missing() {
        let error = check_label("namespaces", "").unwrap_err();
        assert_eq!(
            error,
            InvalidMessage::Missing {
                field: "namespaces"
            }
        );
    }

    #[test]
    fn versions_have_three_numbers() {
        assert_eq!(parse_version("version", "1.22.3"), Ok((1, 22, 3)));
        assert_eq!(parse_version("version", "0.1.0-rc.1+abc"), Ok((0, 1, 0)));
        for bad in ["1.2", "1.2.3.4", "v1.2.3", "1..3"] {
            assert!(parse_version("version", bad).is_err(), "{bad}");
        }
    }
}
