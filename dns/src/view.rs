//! Who asks: the search list, `ndots` and cluster domain that apply, and what the asker may see.
//!
//! A view is plain data. What follows from it is decided in `search` (candidates) and `access` (grants).

use std::collections::BTreeSet;

use crate::name::{Name, NameError};

/// How many dots make a name absolute in a pod (kubelet's default).
pub const DEFAULT_NDOTS: u8 = 5;

/// The id of the view of plain DNS. Ids of sessions are larger; 0 in a cache key means "the same for every view".
pub const PLAIN_VIEW_ID: u64 = 1;

/// The rules that apply to one asker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Tells this view's cached answers from others'; never reused for a view with other contents.
    pub id: u64,
    /// The search list in order.
    pub search: Vec<Name>,
    /// Names with fewer dots than this are tried in the search list first.
    pub ndots: u8,
    /// The domain of the cluster, mostly `cluster.local`.
    pub cluster_domain: Name,
    /// The namespaces the asker may see.
    pub grant: Grant,
    /// What happens to the bare form of a name that is expanded.
    pub bare: BarePolicy,
    /// Zones whose names are never expanded.
    pub absolute_zones: Vec<Name>,
}

/// Which namespaces of the cluster an asker may see (design R2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grant {
    /// All of them: plain DNS in the cluster.
    All,
    /// Only these: a laptop session.
    Namespaces(BTreeSet<String>),
}

/// What happens to the bare form of a name that is expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BarePolicy {
    /// It is asked after every other candidate was negative, unless it is raced as a public name.
    LastToUpstreams,
    /// It is asked only when it is raced as a public name.
    Never,
    /// A laptop session: bare names leave only for the cluster domain and for these suffixes.
    OnlyUnder(Vec<Name>),
}

/// Where the view of plain DNS comes from: the source `resolv.conf` and the flags that override it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainView {
    /// The search list.
    pub search: Vec<Name>,
    /// `ndots`, if the source names it.
    pub ndots: Option<u8>,
    /// The cluster domain, if it is configured.
    pub cluster_domain: Option<Name>,
    /// Zones whose names are never expanded.
    pub absolute_zones: Vec<Name>,
    /// What happens to bare names.
    pub bare: BarePolicy,
}

impl View {
    /// Makes the view of plain DNS on the manager's port.
    ///
    /// The cluster domain is the configured one, else that of the first `X.svc.DOMAIN` in the search list, else `cluster.local`.
    pub fn plain(parts: PlainView) -> Self {
        let from_search = || parts.search.iter().find_map(domain_of_service_zone);
        let cluster_domain = parts
            .cluster_domain
            .clone()
            .or_else(from_search)
            .unwrap_or_else(default_cluster_domain);
        Self {
            id: PLAIN_VIEW_ID,
            search: parts
                .search
                .into_iter()
                .filter(|domain| !domain.is_root())
                .collect(),
            ndots: parts.ndots.unwrap_or(DEFAULT_NDOTS),
            cluster_domain,
            grant: Grant::All,
            bare: parts.bare,
            absolute_zones: parts.absolute_zones,
        }
    }

    /// Makes the view of a laptop session from the plain one: the first `X.svc.DOMAIN` of the search
    /// list becomes the session's first namespace (put in front when there is none), only the given
    /// namespaces are granted, and bare names leave only under the cluster domain and `domains`.
    pub fn session(
        &self,
        namespaces: &[String],
        domains: &[Name],
        id: u64,
    ) -> Result<Self, NameError> {
        let mut search = self.search.clone();
        if let Some(first) = namespaces.first() {
            let zone = service_zone(first, &self.cluster_domain)?;
            let is_service_zone = |domain: &&mut Name| {
                domain_of_service_zone(domain)
                    .is_some_and(|of_domain| of_domain == self.cluster_domain)
            };
            match search.iter_mut().find(is_service_zone) {
                Some(slot) => *slot = zone,
                None => search.insert(0, zone),
            }
        }
        Ok(Self {
            id,
            search,
            grant: Grant::Namespaces(
                namespaces
                    .iter()
                    .map(|namespace| namespace.to_ascii_lowercase())
                    .collect(),
            ),
            bare: BarePolicy::OnlyUnder(domains.to_vec()),
            ..self.clone()
        })
    }
}

/// Returns `DOMAIN` of a name `X.svc.DOMAIN`.
fn domain_of_service_zone(name: &Name) -> Option<Name> {
    let is_service_zone =
        name.label_count() > 2 && name.labels().nth(1)?.eq_ignore_ascii_case(b"svc");
    if is_service_zone {
        name.parent()?.parent()
    } else {
        None
    }
}

fn service_zone(namespace: &str, cluster_domain: &Name) -> Result<Name, NameError> {
    let zone: Name = format!("{namespace}.svc").parse()?;
    zone.join(cluster_domain).ok_or(NameError::TooLong)
}

fn default_cluster_domain() -> Name {
    Name::from_wire(b"\x07cluster\x05local\x00").expect("a literal name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Vec<Name> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn plain(search: &[&str]) -> View {
        let bare = BarePolicy::LastToUpstreams;
        View::plain(PlainView {
            search: names(search),
            ndots: None,
            cluster_domain: None,
            absolute_zones: vec![],
            bare,
        })
    }

    #[test]
    fn the_cluster_domain_comes_from_the_search_list() {
        assert_eq!(
            plain(&["kubebridge.svc.k8s.corp", "svc.k8s.corp"]).cluster_domain,
            "k8s.corp".parse().unwrap()
        );
        assert_eq!(
            plain(&["corp.example"]).cluster_domain,
            "cluster.local".parse().unwrap()
        );
        assert_eq!(plain(&["corp.example"]).ndots, 5);
    }

    #[test]
    fn a_session_puts_its_namespace_in_place_of_the_pods() {
        let view = plain(&[
            "kubebridge.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local",
            "corp.example",
        ]);
        let session = view
            .session(&["shop".into(), "default".into()], &[], 7)
            .unwrap();
        let expected = names(&[
            "shop.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local",
            "corp.example",
        ]);
        assert_eq!(session.search, expected);
        assert_eq!(
            session.grant,
            Grant::Namespaces(BTreeSet::from(["default".into(), "shop".into()]))
        );
        assert_eq!(session.bare, BarePolicy::OnlyUnder(vec![]));
        assert_eq!(session.id, 7);
    }

    #[test]
    fn a_session_puts_its_namespace_in_front_when_the_list_has_none() {
        let session = plain(&["corp.example"])
            .session(&["shop".into()], &[], 2)
            .unwrap();
        assert_eq!(
            session.search,
            names(&["shop.svc.cluster.local", "corp.example"])
        );
    }

    #[test]
    fn a_namespace_that_is_no_label_is_refused() {
        assert!(plain(&[]).session(&[String::new()], &[], 2).is_err());
        assert!(plain(&[]).session(&["a".repeat(64)], &[], 2).is_err());
    }

    #[test]
    fn a_root_search_domain_is_ignored() {
        assert!(plain(&["."]).search.is_empty());
    }
}
