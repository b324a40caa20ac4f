//! Chooses by suffix who answers a name: the longest matching suffix wins. Pure.

use std::collections::HashMap;

use crate::name::Name;

/// Maps name suffixes to targets.
#[derive(Debug, Clone)]
pub struct Split<T> {
    default: T,
    suffixes: HashMap<Box<[u8]>, T>,
}

impl<T> Split<T> {
    /// Sends every name to the default.
    pub fn new(default: T) -> Self {
        Self {
            default,
            suffixes: HashMap::new(),
        }
    }

    /// Sends the suffix and the names under it to a target, unless a longer suffix matches. A
    /// target given for the same suffix before is replaced.
    pub fn insert(&mut self, suffix: &Name, to: T) {
        self.suffixes.insert(key(suffix).into(), to);
    }

    /// Returns the target of the longest suffix that matches whole labels of the name.
    pub fn route(&self, name: &Name) -> &T {
        let wire = key(name);
        let mut rest = &wire[..];
        while let Some((&length, labels)) = rest.split_first() {
            if let Some(to) = self.suffixes.get(rest) {
                return to;
            }
            rest = labels.get(usize::from(length)..).unwrap_or_default();
        }
        &self.default
    }
}

/// Folds the case of a wire name; length octets are below 64 and stay as they are.
fn key(name: &Name) -> Vec<u8> {
    name.as_wire().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn cluster() -> Split<&'static str> {
        let mut split = Split::new("default");
        split.insert(&name("cluster.local"), "cluster");
        split.insert(&name("Special.Cluster.Local"), "special");
        split.insert(&name("svc"), "svc");
        split
    }

    #[test]
    fn the_longest_suffix_wins_whatever_the_case() {
        let split = cluster();
        for (text, to) in [
            ("authors.default.svc.cluster.local", "cluster"),
            ("cluster.local", "cluster"),
            ("CLUSTER.LOCAL", "cluster"),
            ("a.special.cluster.local", "special"),
            ("authors.default.svc", "svc"),
            ("local", "default"),
            (".", "default"),
        ] {
            assert_eq!(*split.route(&name(text)), to, "{text}");
        }
    }

    #[test]
    fn a_suffix_matches_whole_labels_only() {
        let split = cluster();
        for text in [
            "mycluster.local",
            r"my\.cluster.local",
            "cluster.local.example",
        ] {
            assert_eq!(*split.route(&name(text)), "default", "{text}");
        }
    }

    #[test]
    fn the_root_suffix_replaces_the_default_and_a_second_insert_the_first() {
        let mut split = cluster();
        split.insert(&Name::root(), "root");
        split.insert(&name("SVC"), "other");
        assert_eq!(*split.route(&name("example")), "root");
        assert_eq!(*split.route(&name("a.svc")), "other");
    }

    proptest! {
        #[test]
        fn routing_agrees_with_comparing_all_suffixes(
            suffixes in prop::collection::vec("([ab]{1,2}\\.){0,3}[abAB]", 0..8),
            asked in "([abAB]{1,2}\\.){0,4}[abAB]",
        ) {
            let mut split = Split::new(None);
            let mut model: Vec<(Name, usize)> = Vec::new();
            for (index, suffix) in suffixes.iter().enumerate() {
                let suffix = name(suffix);
                split.insert(&suffix, Some(index));
                model.retain(|(known, _)| *known != suffix);
                model.push((suffix, index));
            }
            let asked = name(&asked);
            let matching = model.iter().filter(|(suffix, _)| asked.ends_with(suffix));
            let longest = matching.max_by_key(|(suffix, _)| suffix.label_count());
            prop_assert_eq!(*split.route(&asked), longest.map(|(_, index)| *index));
        }
    }
}
