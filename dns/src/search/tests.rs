use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::view::{Grant, PlainView};

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn plain() -> View {
    let search = [
        "kubebridge.svc.cluster.local",
        "svc.cluster.local",
        "cluster.local",
        "ec2.internal",
    ];
    View::plain(PlainView {
        search: search.map(name).to_vec(),
        ndots: None,
        cluster_domain: None,
        absolute_zones: vec![name("corp.example")],
        bare: BarePolicy::LastToUpstreams,
    })
}

fn session() -> View {
    plain()
        .session(&["shop".into()], &[name("partner.example")], 2)
        .unwrap()
}

/// Shows candidates with `+` before those of the second stage.
fn shown(asked: &str, view: &View) -> Vec<String> {
    let show = |candidate: Candidate| match candidate.stage {
        Stage::First => candidate.name.to_string(),
        Stage::Second => format!("+{}", candidate.name),
    };
    candidates(&name(asked), view)
        .into_iter()
        .map(show)
        .collect()
}

#[test]
fn a_single_label_goes_through_the_search_list_and_bare_last() {
    let expected = [
        "authors.kubebridge.svc.cluster.local",
        "authors.svc.cluster.local",
        "authors.cluster.local",
        "authors.ec2.internal",
        "+authors",
    ];
    assert_eq!(shown("authors", &plain()), expected);
}

#[test]
fn a_dotted_name_without_public_suffix_is_asked_bare_last() {
    let shown = shown("authors.default", &plain());
    assert_eq!(shown.last().unwrap(), "+authors.default");
    assert_eq!(shown.len(), 5);
}

#[test]
fn a_name_under_a_public_suffix_is_raced_bare() {
    for public in [
        "google.com",
        "www.bbc.co.uk",
        "GOOGLE.COM",
        "example.shop",
        "a.b.ck",
    ] {
        assert_eq!(shown(public, &plain()).last().unwrap(), public);
    }
    for private in ["authors.default", "a.svc", "x.internal", r"a.b\.com"] {
        assert!(
            shown(private, &plain()).last().unwrap().starts_with('+'),
            "{private}"
        );
    }
}

#[test]
fn a_name_with_enough_dots_is_asked_bare_and_expanded_only_afterwards() {
    let asked = "a.b.c.d.e.f";
    let shown = shown(asked, &plain());
    assert_eq!(shown[0], asked);
    assert_eq!(shown[1], "+a.b.c.d.e.f.kubebridge.svc.cluster.local");
    assert_eq!(shown.len(), 5);
}

#[test]
fn cluster_names_reverse_names_and_absolute_zones_are_never_expanded() {
    for asked in [
        "authors.default.svc.cluster.local",
        "authors.default.svc.CLUSTER.local",
        "cluster.local",
        "1.0.96.10.in-addr.arpa",
        "1.0.0.ip6.arpa",
        "db.corp.example",
        ".",
    ] {
        assert_eq!(shown(asked, &plain()), [asked]);
        assert!(never_expanded(&name(asked), &plain()));
    }
    assert!(!never_expanded(&name("notcluster.local"), &plain()));
}

#[test]
fn never_turns_the_last_bare_name_off_but_not_public_names() {
    let view = View {
        bare: BarePolicy::Never,
        ..plain()
    };
    assert_eq!(shown("authors", &view).len(), 4);
    assert_eq!(shown("authors.default", &view).len(), 4);
    assert_eq!(shown("google.com", &view).last().unwrap(), "google.com");
    assert_eq!(shown("a.b.c.d.e.f", &view)[0], "a.b.c.d.e.f");
}

#[test]
fn a_session_never_sends_bare_names_outside_its_domains() {
    // `authors.svc.cluster.local` would be a namespace that is not granted.
    let expanded = [
        "authors.shop.svc.cluster.local",
        "authors.cluster.local",
        "authors.ec2.internal",
    ];
    assert_eq!(shown("authors", &session()), expanded);
    for asked in ["authors", "authors.shop", "google.com", "a.b.c.d.e.f"] {
        let bare = candidates(&name(asked), &session())
            .into_iter()
            .find(|candidate| !candidate.expanded);
        assert_eq!(bare, None, "{asked}");
    }
    assert_eq!(
        shown("db.partner.example", &session()).last().unwrap(),
        "db.partner.example"
    );
    assert_eq!(
        shown("1.0.96.10.in-addr.arpa", &session()),
        ["1.0.96.10.in-addr.arpa"]
    );
    assert!(shown("db.corp.example", &session()).is_empty());
}

#[test]
fn a_session_with_small_ndots_still_finds_dotted_services() {
    let view = View {
        ndots: 1,
        ..session()
    };
    let found = shown("authors.shop", &view);
    assert!(
        found.contains(&"authors.shop.svc.cluster.local".to_owned()),
        "{found:?}"
    );
}

#[test]
fn candidates_outside_the_grant_are_left_out() {
    let found = shown("authors.prod", &session());
    assert!(!found.contains(&"authors.prod.svc.cluster.local".to_owned()));
    assert!(found.contains(&"authors.prod.shop.svc.cluster.local".to_owned()));
    let both = View {
        grant: Grant::Namespaces(BTreeSet::from(["shop".into(), "prod".into()])),
        ..session()
    };
    assert!(shown("authors.prod", &both).contains(&"authors.prod.svc.cluster.local".to_owned()));
}

#[test]
fn a_candidate_over_255_octets_is_skipped() {
    let long = [63, 63, 63, 40].map(|length| "a".repeat(length)).join(".");
    let found = shown(&long, &plain());
    assert!(
        found
            .iter()
            .all(|candidate| !candidate.ends_with("kubebridge.svc.cluster.local")),
        "{found:?}"
    );
    assert_eq!(found.len(), 3 + 1, "the three shorter domains still fit");
}

#[test]
fn escaped_dots_survive_expansion() {
    assert_eq!(
        shown(r"a\.b", &plain())[0],
        r"a\.b.kubebridge.svc.cluster.local"
    );
    assert_eq!(name(r"a\.b").dots(), 0);
}

#[test]
fn structural_names_are_marked_only_when_expanded() {
    let marked = |asked: &str| -> Vec<String> {
        let found = candidates(&name(asked), &plain());
        found
            .into_iter()
            .filter(|found| found.structural)
            .map(|found| found.name.to_string())
            .collect()
    };
    assert_eq!(marked("default"), ["default.svc.cluster.local"]);
    assert_eq!(
        marked("svc"),
        ["svc.svc.cluster.local", "svc.cluster.local"]
    );
    assert_eq!(
        marked("pod"),
        ["pod.svc.cluster.local", "pod.cluster.local"]
    );
    assert_eq!(marked("shop.svc"), ["shop.svc.cluster.local"]);
    assert!(marked("default.svc.cluster.local").is_empty());
    assert!(marked("authors.default").is_empty());
}

#[test]
fn a_repeated_search_domain_gives_one_candidate() {
    let view = View {
        search: vec![name("x.example"), name("X.example")],
        ..plain()
    };
    assert_eq!(shown("a", &view), ["a.x.example", "+a"]);
}

#[test]
fn without_a_search_list_the_bare_name_is_all_there_is() {
    let view = View {
        search: vec![],
        ..plain()
    };
    assert_eq!(shown("authors", &view), ["authors"]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranks_are_distinct_stages_in_order_and_the_bare_name_comes_once(
        labels in prop::collection::vec("[a-z]{1,8}|com|svc|default|cluster|local|arpa|in-addr", 1..8),
        ndots in 0u8..8,
        is_session in any::<bool>(),
    ) {
        let asked = name(&labels.join("."));
        let view = View { ndots, ..if is_session { session() } else { plain() } };
        let found = candidates(&asked, &view);
        prop_assert!(found.windows(2).all(|pair| pair[0].stage <= pair[1].stage));
        let distinct: BTreeSet<&Name> = found.iter().map(|candidate| &candidate.name).collect();
        prop_assert_eq!(distinct.len(), found.len());
        prop_assert!(found.iter().filter(|candidate| !candidate.expanded).count() <= 1);
        prop_assert!(found.first().is_none_or(|candidate| candidate.stage == Stage::First));
        for candidate in &found {
            prop_assert!(candidate.name.as_wire().len() <= 255);
            prop_assert!(!candidate.expanded || candidate.name.label_count() > asked.label_count());
        }
    }
}
