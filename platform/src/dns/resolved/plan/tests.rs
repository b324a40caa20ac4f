use super::*;

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

fn intent() -> DnsIntent {
    DnsIntent {
        servers: vec!["198.19.248.2".parse().unwrap()],
        routes: strings(&["cluster.local", "svc"]),
        namespaces: strings(&["default", "shop"]),
        search: strings(&["default.svc.cluster.local"]),
        reverse: strings(&["96.10.in-addr.arpa"]),
    }
}

fn domain(name: &str, routing: bool) -> Domain {
    (name.to_owned(), routing)
}

fn state(domains: Vec<Domain>) -> LinkState {
    LinkState {
        servers: intent().servers,
        domains,
        ..LinkState::default()
    }
}

fn numbered(count: usize) -> Vec<Domain> {
    (0..count)
        .map(|number| domain(&format!("d{number}.example"), true))
        .collect()
}

#[test]
fn a_new_link_gets_search_then_routing_then_reverse_domains() {
    let plan = plan(&intent(), &LinkState::default(), true, &[]);

    let expected = Plan {
        servers: intent().servers,
        domains: vec![
            domain("default.svc.cluster.local", false),
            domain("cluster.local", true),
            domain("svc", true),
            domain("default", true),
            domain("shop", true),
            domain("96.10.in-addr.arpa", true),
        ],
        ..Plan::default()
    };
    assert_eq!(plan, expected);
}

#[test]
fn settings_of_an_earlier_session_are_reverted_first() {
    let old = state(vec![domain("cluster.local", false)]);
    let fresh = plan(&intent(), &old, true, &[]);
    assert!(fresh.revert_first);
    assert!(!fresh.clear_first);
    assert!(!plan(&intent(), &old, false, &[]).revert_first);
}

#[test]
fn a_changed_flag_or_a_big_union_empties_the_list_first() {
    for (old, clear) in [
        (vec![domain("cluster.local", true)], false),
        (vec![domain("cluster.local", false)], true),
        (vec![domain("default.svc.cluster.local", true)], true),
        (vec![domain("gone.example", false)], false),
        (numbered(244), false),
        (numbered(245), true),
    ] {
        assert_eq!(
            plan(&intent(), &state(old.clone()), false, &[]).clear_first,
            clear,
            "{} old",
            old.len()
        );
    }
}

#[test]
fn a_domain_wanted_for_search_and_routing_is_sent_once() {
    let mut intent = intent();
    intent.search.push("cluster.local".to_owned());
    let plan = plan(&intent, &LinkState::default(), true, &[]);
    let sent: Vec<_> = plan
        .domains
        .iter()
        .filter(|(name, _)| name == "cluster.local")
        .collect();
    assert_eq!(sent, [&domain("cluster.local", false)]);
}

#[test]
fn both_halves_of_the_list_are_bounded() {
    let mut intent = intent();
    intent.namespaces = (0..40).map(|number| format!("team{number}")).collect();
    intent.reverse = (0..40)
        .map(|number| format!("{number}.10.in-addr.arpa"))
        .collect();

    let plan = plan(&intent, &LinkState::default(), true, &[]);

    assert_eq!(plan.domains.len(), MAX_FORWARD + MAX_REVERSE_ZONES);
    assert_eq!(plan.domains[31], domain("team28", true));
    assert_eq!(plan.warnings.len(), 11);
    assert_eq!(
        plan.warnings[0],
        "\"team29\" is not routed: more than 32 domains"
    );
}

#[test]
fn domains_of_the_host_are_not_taken() {
    let mut intent = intent();
    intent.namespaces.push("test".to_owned());
    let host = [
        domain("shop", false),
        domain("cluster.local", true),
        domain("96.10.in-addr.arpa", true),
    ];

    let plan = plan(&intent, &LinkState::default(), true, &host);

    let names: Vec<_> = plan.domains.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "default.svc.cluster.local",
            "cluster.local",
            "svc",
            "default"
        ]
    );
    assert_eq!(
        plan.warnings,
        [
            "names under \"test\" are not routed: reserved for the local network or the DNS itself",
            "another link has \"cluster.local\" too: either may answer",
            "names under \"shop\" are not routed: this host uses it already",
        ]
    );
}

#[test]
fn what_reads_back_differently_is_named() {
    let plan = plan(&intent(), &LinkState::default(), true, &[]);
    let mut reordered = plan.domains.clone();
    reordered.reverse();
    let as_sent = state(reordered);
    assert_eq!(difference(&as_sent, &plan), None);
    for (state, setting) in [
        (
            LinkState {
                servers: Vec::new(),
                ..as_sent.clone()
            },
            "the servers",
        ),
        (
            LinkState {
                domains: Vec::new(),
                ..as_sent.clone()
            },
            "the domains",
        ),
        (
            LinkState {
                default_route: true,
                ..as_sent
            },
            "the default route",
        ),
    ] {
        assert_eq!(difference(&state, &plan), Some(setting));
    }
}
