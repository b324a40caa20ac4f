//! What is known about who leads back to us, and for which zones. Pure.
//!
//! The upstreams themselves are told of it (`Upstreams::mark_looped`); this is what is to be told,
//! also to those that take the place of others when the set is replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::probes::Target;
use crate::name::Name;
use crate::upstream::UpstreamSpec;

/// The verdicts as they are now.
#[derive(Debug, Default)]
pub(super) struct Looped {
    /// The zones below the root that may be routed in another way than the rest, the longest first.
    zones: Vec<Name>,
    /// What the last probe of a pair showed.
    verdicts: BTreeMap<Arc<Target>, bool>,
    /// Upstreams that are our own sockets.
    own: BTreeSet<UpstreamSpec>,
}

impl Looped {
    /// Replaces the zones, and returns those that are gone, if any are others. Verdicts go with their
    /// zone.
    pub(super) fn set_zones(&mut self, zones: &[Name]) -> Option<Vec<Name>> {
        let zones = zones.iter().filter(|zone| !zone.is_root()).cloned();
        let mut zones: Vec<Name> = zones.collect::<BTreeSet<_>>().into_iter().collect();
        zones.sort_by_key(|zone| std::cmp::Reverse(zone.label_count()));
        if zones == self.zones {
            return None;
        }
        let before = std::mem::replace(&mut self.zones, zones);
        let known = &self.zones;
        self.verdicts
            .retain(|target, _| target.zone.is_root() || known.contains(&target.zone));
        let gone = before.into_iter().filter(|zone| !known.contains(zone));
        Some(gone.collect())
    }

    /// Returns the zones, the root among them, the most general ones first.
    pub(super) fn zones(&self) -> Vec<Name> {
        let below = self.zones.iter().rev().cloned();
        std::iter::once(Name::root()).chain(below).collect()
    }

    /// Returns the zone whose routing decides where a name goes.
    pub(super) fn zone_of(&self, name: &Name) -> Name {
        let zone = self.zones.iter().find(|zone| name.ends_with(zone));
        zone.cloned().unwrap_or_else(Name::root)
    }

    /// Says whether a zone is one that is looked after.
    pub(super) fn has_zone(&self, zone: &Name) -> bool {
        zone.is_root() || self.zones.contains(zone)
    }

    /// Notes what a probe showed; says whether that is news. Of an upstream of which nothing is
    /// known, it is none that it does not lead back.
    pub(super) fn note(&mut self, target: &Arc<Target>, leads_back: bool) -> bool {
        let before = self.verdicts.insert(Arc::clone(target), leads_back);
        before.unwrap_or_default() != leads_back
    }

    /// Replaces the upstreams that are our own sockets; returns those that were not before.
    pub(super) fn set_own(&mut self, own: BTreeSet<UpstreamSpec>) -> Vec<UpstreamSpec> {
        let new = own.difference(&self.own).cloned().collect();
        self.own = own;
        new
    }

    pub(super) fn is_own(&self, upstream: &UpstreamSpec) -> bool {
        self.own.contains(upstream)
    }

    /// Says what is known of an upstream and a zone; `None` is nothing.
    pub(super) fn verdict(&self, upstream: &UpstreamSpec, zone: &Name) -> Option<bool> {
        if self.is_own(upstream) {
            return Some(true);
        }
        let target = Target {
            upstream: upstream.clone(),
            zone: zone.clone(),
        };
        self.verdicts.get(&target).copied()
    }

    /// Forgets what was known about upstreams that are gone.
    pub(super) fn keep(&mut self, upstreams: &BTreeSet<UpstreamSpec>) {
        self.verdicts
            .retain(|target, _| upstreams.contains(&target.upstream));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    fn upstream(text: &str) -> UpstreamSpec {
        text.parse().unwrap()
    }

    fn target(server: &str, zone: &str) -> Arc<Target> {
        Arc::new(Target {
            upstream: upstream(server),
            zone: name(zone),
        })
    }

    #[test]
    fn a_verdict_is_news_when_it_is_another() {
        let mut looped = Looped::default();
        let pair = target("10.96.0.10", ".");
        let told = [false, true, true, false, false, true];
        let news = told.map(|leads_back| looped.note(&pair, leads_back));
        assert_eq!(news, [false, true, false, true, false, true]);
        assert_eq!(looped.verdict(&pair.upstream, &name(".")), Some(true));
        assert_eq!(looped.verdict(&pair.upstream, &name("corp")), None);
        assert_eq!(looped.verdict(&upstream("10.96.0.11"), &name(".")), None);
    }

    #[test]
    fn the_longest_zone_decides_where_a_name_goes() {
        let mut looped = Looped::default();
        let zones = ["cluster.local", "corp.example", "eu.corp.example", "."].map(name);
        assert_eq!(looped.set_zones(&zones), Some(vec![]));
        assert_eq!(looped.set_zones(&zones), None);
        for (asked, zone) in [
            ("www.example.org", "."),
            ("authors", "."),
            ("a.CLUSTER.local", "cluster.local"),
            ("corp.example", "corp.example"),
            ("a.eu.corp.example", "eu.corp.example"),
        ] {
            assert_eq!(looped.zone_of(&name(asked)), name(zone), "{asked}");
        }
        let order = looped.zones();
        assert_eq!(
            (&order[0], &order[3]),
            (&name("."), &name("eu.corp.example"))
        );
    }

    #[test]
    fn our_own_sockets_lead_back_for_every_zone() {
        let (own, other) = (upstream("127.0.0.1:1053"), upstream("127.0.0.1:5353"));
        let mut looped = Looped::default();
        let ours: BTreeSet<_> = [own.clone()].into();
        assert_eq!(looped.set_own(ours.clone()), Vec::from_iter(ours.clone()));
        assert_eq!(looped.set_own(ours), []);
        assert_eq!(looped.verdict(&own, &name("a.test")), Some(true));
        assert_eq!(looped.verdict(&other, &name("a.test")), None);
    }

    #[test]
    fn verdicts_go_with_their_zone_and_their_upstream() {
        let mut looped = Looped::default();
        looped.set_zones(&[name("corp.example")]);
        for (server, zone) in [
            ("10.0.0.1", "corp.example"),
            ("10.0.0.1", "."),
            ("10.0.0.2", "."),
        ] {
            looped.note(&target(server, zone), true);
        }
        assert_eq!(looped.set_zones(&[]), Some(vec![name("corp.example")]));
        looped.keep(&[upstream("10.0.0.1")].into());
        assert_eq!(
            looped.verdict(&upstream("10.0.0.1"), &name("corp.example")),
            None
        );
        assert_eq!(
            looped.verdict(&upstream("10.0.0.1"), &name(".")),
            Some(true)
        );
        assert_eq!(looped.verdict(&upstream("10.0.0.2"), &name(".")), None);
    }
}
