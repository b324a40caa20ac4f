//! Which names an asker may have answered (design R2, and the bare names a session never sends).
//!
//! Pure, and asked twice: before the cache about the name asked, and after it about the names an
//! answer points to, because answers of names that are never expanded are shared between views.

use crate::name::{AsName, MAX_LABEL, Name};
use crate::search::never_expanded;
use crate::view::{BarePolicy, Grant, View};

/// Says whether a name is outside the cluster's namespaces or in one that is granted.
pub(crate) fn may_see(view: &View, name: &impl AsName) -> bool {
    match &view.grant {
        Grant::All => true,
        Grant::Namespaces(granted) => match namespace_of(name, &view.cluster_domain) {
            None => true,
            Some(namespace) => {
                // Asked for every query, so it allocates nothing; grants are in lower case.
                let mut folded = [0; MAX_LABEL];
                let folded = &mut folded[..namespace.len()];
                folded.copy_from_slice(namespace);
                folded.make_ascii_lowercase();
                str::from_utf8(folded).is_ok_and(|namespace| granted.contains(namespace))
            }
        },
    }
}

impl View {
    /// Returns the namespace of a name of the cluster that the asker may not see, in lower case.
    #[must_use]
    pub fn ungranted(&self, name: &Name) -> Option<String> {
        if may_see(self, name) {
            return None;
        }
        let namespace = namespace_of(name, &self.cluster_domain)?;
        Some(String::from_utf8_lossy(namespace).to_ascii_lowercase())
    }

    /// Returns the names that a search for `asked` tries for others and not for this asker, who
    /// may not see them.
    #[must_use]
    pub fn left_out(&self, asked: &Name) -> Vec<Name> {
        if never_expanded(asked, self) {
            return Vec::new();
        }
        let expanded = self.search.iter().filter_map(|domain| asked.join(domain));
        expanded.filter(|name| !may_see(self, name)).collect()
    }
}

/// Says whether the bare form of a name may be sent to upstreams.
pub(crate) fn may_send_bare(view: &View, name: &impl AsName) -> bool {
    let name = name.as_name();
    match &view.bare {
        BarePolicy::LastToUpstreams | BarePolicy::Never => true,
        BarePolicy::OnlyUnder(domains) => {
            name.ends_with(&view.cluster_domain)
                || is_reverse(&name)
                || domains.iter().any(|domain| name.ends_with(domain))
        }
    }
}

/// Says whether a name lies in the reverse trees; a laptop sends only those of cluster addresses here.
pub(crate) fn is_reverse(name: &impl AsName) -> bool {
    let mut last_two = [&b""[..]; 2];
    for label in name.as_name().labels() {
        last_two = [last_two[1], label];
    }
    let [second, top] = last_two;
    top.eq_ignore_ascii_case(b"arpa")
        && (second.eq_ignore_ascii_case(b"in-addr") || second.eq_ignore_ascii_case(b"ip6"))
}

/// Returns the namespace of a name at or under `NS.svc.DOMAIN` or `NS.pod.DOMAIN`, in its own case.
pub(crate) fn namespace_of<'a>(name: &'a impl AsName, cluster_domain: &Name) -> Option<&'a [u8]> {
    let name = name.as_name();
    if !name.ends_with(cluster_domain) {
        return None;
    }
    let relative = name.label_count() - cluster_domain.label_count();
    let mut last_two = [None; 2];
    for label in name.labels().take(relative) {
        last_two = [last_two[1], Some(label)];
    }
    let [namespace, kind] = last_two;
    let kind = kind?;
    let is_namespaced = kind.eq_ignore_ascii_case(b"svc") || kind.eq_ignore_ascii_case(b"pod");
    is_namespaced.then_some(namespace?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn session() -> View {
        View {
            id: 2,
            search: vec![],
            ndots: 5,
            cluster_domain: name("cluster.local"),
            grant: Grant::Namespaces(BTreeSet::from(["shop".into()])),
            bare: BarePolicy::OnlyUnder(vec![name("corp.example")]),
            absolute_zones: vec![],
        }
    }

    #[test]
    fn only_granted_namespaces_are_seen() {
        for (asked, seen) in [
            ("authors.shop.svc.cluster.local", true),
            ("authors.SHOP.svc.cluster.local", true),
            ("shop.svc.cluster.local", true),
            ("authors.prod.svc.cluster.local", false),
            ("authors.PROD.SVC.Cluster.Local", false),
            ("prod.svc.cluster.local", false),
            ("_http._tcp.authors.prod.svc.cluster.local", false),
            ("10-0-0-1.prod.pod.cluster.local", false),
            ("10-0-0-1.shop.pod.cluster.local", true),
            ("svc.cluster.local", true),
            ("cluster.local", true),
            ("node.cluster.local", true),
            ("authors.prod.svc.other.local", true),
            (r"a.shop\.svc.prod.svc.cluster.local", false),
            ("example.com", true),
        ] {
            assert_eq!(may_see(&session(), &name(asked)), seen, "{asked}");
        }
        let everything = View {
            grant: Grant::All,
            ..session()
        };
        assert!(may_see(
            &everything,
            &name("authors.prod.svc.cluster.local")
        ));
    }

    #[test]
    fn what_is_left_out_of_a_search_is_told() {
        let mut view = session();
        view.search = vec![name("shop.svc.cluster.local"), name("svc.cluster.local")];
        for (asked, left_out) in [
            ("authors", vec!["authors.svc.cluster.local"]),
            ("authors.prod", vec!["authors.prod.svc.cluster.local"]),
            ("authors.shop", vec![]),
            ("authors.prod.svc.cluster.local", vec![]),
            ("1.0.96.10.in-addr.arpa", vec![]),
        ] {
            let expected: Vec<Name> = left_out.into_iter().map(name).collect();
            let expected: Vec<Name> = expected
                .into_iter()
                .filter(|name| view.ungranted(name).is_some())
                .collect();
            assert_eq!(view.left_out(&name(asked)), expected, "{asked}");
        }
        let ungranted = |asked| view.ungranted(&name(asked));
        assert_eq!(
            ungranted("db.PROD.svc.cluster.local").as_deref(),
            Some("prod")
        );
        assert_eq!(ungranted("db.shop.svc.cluster.local"), None);
        assert_eq!(ungranted("example.com"), None);
    }

    #[test]
    fn a_session_sends_bare_names_of_its_domains_only() {
        for (bare, sent) in [
            ("authors", false),
            ("example.com", false),
            ("db.corp.example", true),
            ("authors.shop.svc.cluster.local", true),
            ("1.0.96.10.in-addr.arpa", true),
            ("8.b.d.ip6.arpa", true),
            ("arpa", false),
        ] {
            assert_eq!(may_send_bare(&session(), &name(bare)), sent, "{bare}");
        }
    }
}
