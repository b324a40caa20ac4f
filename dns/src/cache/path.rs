//! A name written from the right, so that the names below it are those that begin with it.

use std::sync::Arc;

use crate::name::{MAX_NAME, Name};

/// A name's labels from the right, in lower case, each behind its length; the root is empty.
///
/// Whole labels only: the length in front keeps `mydb.shop` from beginning with what `db.shop` is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path(Arc<[u8]>);

impl Path {
    pub(crate) fn of(name: &Name) -> Self {
        let length = name.as_wire().len() - 1;
        let mut path = [0; MAX_NAME];
        let mut at = length;
        for label in name.labels() {
            at -= 1 + label.len();
            // The wire form just read holds the same length octet; labels are at most 63 octets.
            path[at] = u8::try_from(label.len()).unwrap_or(u8::MAX);
            path[at + 1..=at + label.len()].copy_from_slice(label);
        }
        path[..length].make_ascii_lowercase();
        Self(Arc::from(&path[..length]))
    }

    /// Says whether this is `other` or a name below it.
    pub(crate) fn is_at_or_below(&self, other: &Self) -> bool {
        self.0.starts_with(&other.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        Path::of(&text.parse().unwrap())
    }

    #[test]
    fn names_below_a_name_begin_with_it_and_no_others_do() {
        for (lower, upper, below) in [
            ("db.shop", "shop", true),
            ("DB.Shop", "sHop", true),
            ("db.shop", "db.shop", true),
            ("mydb.shop", "db.shop", false),
            ("shop", "db.shop", false),
            ("a.b", ".", true),
            (".", "a", false),
            (r"a\.shop", "shop", false),
            (r"x.\001b", "b", false),
        ] {
            assert_eq!(
                path(lower).is_at_or_below(&path(upper)),
                below,
                "{lower} {upper}"
            );
        }
    }

    #[test]
    fn names_of_every_length_have_a_path() {
        let long = [
            "a".repeat(63),
            "b".repeat(63),
            "c".repeat(63),
            "d".repeat(61),
        ]
        .join(".");
        assert_eq!(path(&long).len(), 254);
        assert!(path(&long).is_at_or_below(&path(&"d".repeat(61))));
        assert_eq!(path(".").len(), 0);
    }
}
