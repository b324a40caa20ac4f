//! From the asked name to the names that are tried, in the order of their rank. Pure.
//!
//! A resolver in a pod would try them one after the other; here only the order of ranks matters, and
//! which of them wait until all others were negative. Who answers is not known here.

use crate::access::{is_reverse, may_see, may_send_bare};
use crate::name::{AsName, Name};
use crate::view::{BarePolicy, View};

#[cfg(test)]
mod tests;

/// The most candidates of one query: `fanout` allows no more upstream queries than this anyway.
const MOST_CANDIDATES: usize = 64;

/// One name to try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) name: Name,
    /// When it may be asked.
    pub(crate) stage: Stage,
    /// Whether it differs from the asked name.
    pub(crate) expanded: bool,
    /// Whether it lies in the cluster domain, where a failure blocks all later ranks.
    pub(crate) inside: bool,
    /// Whether "no data" only says that the name is part of the zone's structure.
    pub(crate) structural: bool,
}

/// When a candidate may be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// At once.
    First,
    /// After all candidates of the first stage were negative.
    Second,
}

/// Returns the names to try in the order of their rank; none if the asker may have none of them tried.
pub(crate) fn candidates(asked: &Name, view: &View) -> Vec<Candidate> {
    let bare = |stage| candidate(asked.clone(), stage, false, view);
    if never_expanded(asked, view) {
        return if may_send_bare(view, asked) {
            vec![bare(Stage::First)]
        } else {
            vec![]
        };
    }
    let sends_bare = may_send_bare(view, asked);
    let few_dots = asked.dots() < usize::from(view.ndots);
    let search_stage = if few_dots || !sends_bare {
        Stage::First
    } else {
        Stage::Second
    };
    let mut ranked = Vec::with_capacity(view.search.len() + 1);
    if !few_dots && sends_bare {
        ranked.push(bare(Stage::First));
    }
    for name in view.search.iter().filter_map(|domain| asked.join(domain)) {
        let known = ranked
            .iter()
            .any(|earlier: &Candidate| earlier.name == name);
        if !known && may_see(view, &name) {
            ranked.push(candidate(name, search_stage, true, view));
        }
    }
    if few_dots && sends_bare {
        if is_raced(asked, view) || ranked.is_empty() && view.bare != BarePolicy::Never {
            ranked.push(bare(Stage::First));
        } else if view.bare != BarePolicy::Never {
            ranked.push(bare(Stage::Second));
        }
    }
    ranked.truncate(MOST_CANDIDATES);
    ranked
}

/// Returns the asked name alone, if it may be sent.
pub(crate) fn alone(asked: &Name, view: &View) -> Vec<Candidate> {
    let bare = candidate(asked.clone(), Stage::First, false, view);
    may_send_bare(view, asked)
        .then_some(bare)
        .into_iter()
        .collect()
}

/// Says whether a name is asked as it is, in every view alike: names under the cluster domain or a
/// configured zone, reverse names, and the root.
pub(crate) fn never_expanded(asked: &impl AsName, view: &View) -> bool {
    let asked = asked.as_name();
    asked.is_root()
        || asked.ends_with(&view.cluster_domain)
        || is_reverse(&asked)
        || view.absolute_zones.iter().any(|zone| asked.ends_with(zone))
}

/// Says whether the bare name may be asked together with the rest: it is dotted and known to be public or configured.
fn is_raced(asked: &Name, view: &View) -> bool {
    let configured = match &view.bare {
        BarePolicy::LastToUpstreams | BarePolicy::Never => false,
        BarePolicy::OnlyUnder(domains) => domains.iter().any(|domain| asked.ends_with(domain)),
    };
    asked.dots() > 0 && (configured || has_public_suffix(asked))
}

/// Says whether the name lies under a suffix of the public suffix list. The list's catch-all rule,
/// which takes any last label for public, does not count.
fn has_public_suffix(name: &Name) -> bool {
    let mut text = Vec::with_capacity(name.as_wire().len());
    for label in name.labels() {
        if label.contains(&b'.') {
            return false;
        }
        if !text.is_empty() {
            text.push(b'.');
        }
        text.extend(label.iter().map(u8::to_ascii_lowercase));
    }
    psl::suffix(&text).is_some_and(|suffix| suffix.is_known())
}

fn candidate(name: Name, stage: Stage, expanded: bool, view: &View) -> Candidate {
    let inside = name.ends_with(&view.cluster_domain);
    let structural = expanded && inside && is_structural(&name, &view.cluster_domain);
    Candidate {
        name,
        stage,
        expanded,
        inside,
        structural,
    }
}

/// Says whether a name is `<label>.svc.DOMAIN`, `svc.DOMAIN` or `pod.DOMAIN`.
fn is_structural(name: &Name, cluster_domain: &Name) -> bool {
    let Some(relative) = name.strip_suffix(cluster_domain) else {
        return false;
    };
    let is = |label: Option<&[u8]>, text: &[u8]| {
        label.is_some_and(|label| label.eq_ignore_ascii_case(text))
    };
    let mut labels = relative.labels();
    match relative.label_count() {
        1 => {
            let only = labels.next();
            is(only, b"svc") || is(only, b"pod")
        }
        2 => is(labels.nth(1), b"svc"),
        _ => false,
    }
}
