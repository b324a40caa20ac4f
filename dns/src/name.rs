//! Domain names in uncompressed wire form, the case as it was written; comparison ignores ASCII case (RFC 4343).
//!
//! Text is only a way in and out (`name/text.rs`); compression is undone by the message reader
//! before a name is made, so nothing here knows about pointers. No IDNA: labels are octets.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

mod borrowed;
#[cfg(test)]
mod tests;
mod text;
mod types;

pub(crate) use borrowed::{AsName, NameRef};
pub use types::{RecordType, ResponseCode, UnknownRecordType};

/// The longest name in wire form, root label included (RFC 1035 §2.3.4).
pub(crate) const MAX_NAME: usize = 255;
/// The longest label (RFC 1035 §2.3.4); larger length octets are pointers or reserved types.
pub(crate) const MAX_LABEL: usize = 63;

/// A domain name: labels in wire form, always ending in the root label.
#[derive(Clone)]
pub struct Name(Arc<[u8]>);

/// What made bytes or text no domain name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The name is longer than 255 octets in wire form.
    #[error("name is longer than 255 octets")]
    TooLong,
    /// A label is longer than 63 octets.
    #[error("label is longer than 63 octets")]
    LabelTooLong,
    /// There is an empty label, or no text at all.
    #[error("name has an empty label")]
    EmptyLabel,
    /// The wire form ends before its root label, or goes on after it.
    #[error("name does not end with its root label")]
    BadEnd,
    /// The wire form holds a compression pointer or a reserved label type.
    #[error("name holds a pointer or an unknown label type")]
    BadLabelType,
    /// A backslash is not followed by a character or three digits up to 255.
    #[error("name has a bad escape")]
    BadEscape,
    /// The text holds something other than printable ASCII.
    #[error("name is not printable ASCII; write other octets as \\DDD")]
    NotAscii,
}

impl Name {
    /// Returns the root name.
    pub fn root() -> Self {
        Self(Arc::from([0u8].as_slice()))
    }

    /// Takes a name in wire form; the bytes are exactly one uncompressed name.
    pub fn from_wire(wire: &[u8]) -> Result<Self, NameError> {
        if wire.len() > MAX_NAME {
            return Err(NameError::TooLong);
        }
        let mut at = 0;
        loop {
            let length = usize::from(*wire.get(at).ok_or(NameError::BadEnd)?);
            if length > MAX_LABEL {
                return Err(NameError::BadLabelType);
            }
            at += 1 + length;
            if length == 0 {
                break;
            }
        }
        if at != wire.len() {
            return Err(NameError::BadEnd);
        }
        Ok(Self(Arc::from(wire)))
    }

    /// Returns the wire form, the case as it was given.
    pub fn as_wire(&self) -> &[u8] {
        &self.0
    }

    /// Iterates over the labels from the left, without the root label.
    pub fn labels(&self) -> impl Iterator<Item = &[u8]> {
        NameRef::from(self).labels()
    }

    /// Counts the labels, without the root label.
    pub fn label_count(&self) -> usize {
        self.labels().count()
    }

    /// Counts the dots as `ndots` does: one less than the labels, none for the root.
    pub fn dots(&self) -> usize {
        self.label_count().saturating_sub(1)
    }

    /// Says whether this is the root name.
    pub fn is_root(&self) -> bool {
        self.0.len() == 1
    }

    /// Says whether the name is `suffix` or lies under it.
    pub fn ends_with(&self, suffix: &Self) -> bool {
        self.suffix_start(suffix).is_some()
    }

    /// Puts the labels of `suffix` after those of this name; `None` when that is longer than 255 octets.
    pub fn join(&self, suffix: &Self) -> Option<Self> {
        let own = self.0.len() - 1;
        if own + suffix.0.len() > MAX_NAME {
            return None;
        }
        let mut wire = Vec::with_capacity(own + suffix.0.len());
        wire.extend_from_slice(&self.0[..own]);
        wire.extend_from_slice(&suffix.0);
        Some(Self(Arc::from(wire)))
    }

    /// Returns the name without its leftmost label; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        if self.is_root() {
            return None;
        }
        let first = 1 + usize::from(self.0[0]);
        Some(Self(Arc::from(&self.0[first..])))
    }

    /// Returns the labels before `suffix` as a name of their own; `None` when this name is not under it.
    pub fn strip_suffix(&self, suffix: &Self) -> Option<Self> {
        let start = self.suffix_start(suffix)?;
        let mut wire = self.0[..start].to_vec();
        wire.push(0);
        Some(Self(Arc::from(wire)))
    }

    /// Returns the name with ASCII letters in lower case.
    pub fn to_lowercase(&self) -> Self {
        Self(Arc::from(self.0.to_ascii_lowercase()))
    }

    /// Finds where `suffix` begins in the wire form, on a label boundary.
    fn suffix_start(&self, suffix: &Self) -> Option<usize> {
        NameRef::from(self).suffix_start(suffix)
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl Eq for Name {}

impl Ord for Name {
    /// Orders by the lower-cased wire form: total and stable, but not DNSSEC's canonical order.
    fn cmp(&self, other: &Self) -> Ordering {
        let lower = |octet: &u8| octet.to_ascii_lowercase();
        self.0.iter().map(lower).cmp(other.0.iter().map(lower))
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        for octet in self.0.iter() {
            state.write_u8(octet.to_ascii_lowercase());
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}
