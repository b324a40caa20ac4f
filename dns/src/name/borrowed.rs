//! A name where it lies in a packet: what is asked of every query's name, without a copy.

use super::{MAX_NAME, Name};

/// A borrowed domain name in uncompressed wire form.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameRef<'a>(&'a [u8]);

impl<'a> NameRef<'a> {
    /// Takes bytes that have been walked: they are exactly one uncompressed name.
    pub(crate) fn checked(wire: &'a [u8]) -> Self {
        debug_assert!(wire.len() <= MAX_NAME && wire.ends_with(&[0]));
        Self(wire)
    }

    pub(crate) fn as_wire(self) -> &'a [u8] {
        self.0
    }

    pub(crate) fn to_name(self) -> Name {
        Name(self.0.into())
    }

    pub(crate) fn is_root(self) -> bool {
        self.0.len() == 1
    }

    /// Iterates over the labels from the left, without the root label.
    pub(crate) fn labels(self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (length, tail) = rest.split_first()?;
            if *length == 0 {
                return None;
            }
            let (label, next) = tail.split_at(usize::from(*length));
            rest = next;
            Some(label)
        })
    }

    pub(crate) fn label_count(self) -> usize {
        self.labels().count()
    }

    /// Says whether the name is `suffix` or lies under it.
    pub(crate) fn ends_with(self, suffix: &Name) -> bool {
        self.suffix_start(suffix).is_some()
    }

    /// Finds where `suffix` begins in the wire form, on a label boundary.
    pub(super) fn suffix_start(self, suffix: &Name) -> Option<usize> {
        let start = self.0.len().checked_sub(suffix.0.len())?;
        // The octets first: most names do not end so, and need not be walked.
        // Length octets are at most 63, so folding the case of whole wire forms never confuses one with a letter.
        if !self.0[start..].eq_ignore_ascii_case(&suffix.0) {
            return None;
        }
        let mut at = 0;
        while at < start {
            at += 1 + usize::from(self.0[at]);
        }
        (at == start).then_some(start)
    }
}

/// What holds a name or borrows one.
pub(crate) trait AsName {
    fn as_name(&self) -> NameRef<'_>;
}

impl AsName for Name {
    fn as_name(&self) -> NameRef<'_> {
        self.into()
    }
}

impl AsName for NameRef<'_> {
    fn as_name(&self) -> NameRef<'_> {
        *self
    }
}

impl<'a> From<&'a Name> for NameRef<'a> {
    fn from(name: &'a Name) -> Self {
        Self(&name.0)
    }
}
