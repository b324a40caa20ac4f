//! The names an answer rests on, for purging and for access. Pure.

use super::Path;
use crate::access::namespace_of;
use crate::message::{Record, names_in};
use crate::name::Name;

/// What a dependency costs beside its octets: its allocation, and its place here and in the index
/// (a B-tree of three words a place, on average three quarters full).
const PATH_OVERHEAD: usize = 16 + 2 * size_of::<usize>() + 40;

/// The names an answer rests on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Dependencies {
    /// Every candidate that was or could have been asked, and what the answer shows; each once.
    paths: Box<[Path]>,
    /// Names in the cluster's namespaces that the answer itself shows.
    pub(crate) shown: Box<[Name]>,
}

impl Dependencies {
    /// Collects them; names of the answer count when they lie in a namespace of the cluster.
    pub(crate) fn new(
        asked: impl Iterator<Item = Name>,
        answer: &[Record],
        cluster_domain: &Name,
    ) -> Self {
        let owners = answer.iter().map(|record| record.owner.clone());
        let targets = answer
            .iter()
            .flat_map(|record| names_in(record.rtype, &record.data));
        let mut shown: Vec<Name> = owners
            .chain(targets)
            .filter(|name| namespace_of(name, cluster_domain).is_some())
            .collect();
        shown.sort_unstable();
        shown.dedup();
        let asked = asked.map(|name| Path::of(&name));
        let mut paths: Vec<Path> = asked.chain(shown.iter().map(Path::of)).collect();
        paths.sort_unstable();
        paths.dedup();
        Self {
            paths: paths.into(),
            shown: shown.into(),
        }
    }

    pub(crate) fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// Says whether one of them is the name or lies below it.
    pub(crate) fn include(&self, name: &Path) -> bool {
        self.paths.iter().any(|path| path.is_at_or_below(name))
    }

    pub(crate) fn size(&self) -> usize {
        let paths = self.paths.iter().map(|path| path.len() + PATH_OVERHEAD);
        let shown = self.shown.iter();
        let shown = shown.map(|name| name.as_wire().len() + 2 * size_of::<Name>());
        paths.sum::<usize>() + shown.sum::<usize>()
    }
}
