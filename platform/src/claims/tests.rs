use super::*;

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

fn claims(domain: &str, namespaces: &[&str], networks: &[&str]) -> Claims {
    Claims {
        name: format!("context {domain}"),
        domain: domain.to_owned(),
        suffixes: Vec::new(),
        namespaces: texts(namespaces),
        networks: networks.iter().map(|net| net.parse().unwrap()).collect(),
    }
}

fn claimant(number: u64, claims: Claims) -> Claimant {
    Claimant {
        session: format!("{number:08x}").parse().unwrap(),
        pid: 42,
        number,
        claims,
    }
}

fn alpha() -> Claimant {
    claimant(0, claims("alpha.local", &["default"], &["10.96.0.0/12"]))
}

#[test]
fn the_same_domain_or_overlapping_networks_clash_and_nothing_else_does() {
    let suffix = |suffix: &str, claims: Claims| Claims {
        suffixes: texts(&[suffix]),
        ..claims
    };
    let disjoint = claims("beta.local", &["default"], &["10.112.0.0/12"]);
    for (own, expected) in [
        (disjoint.clone(), None),
        (claims("x.alpha.local", &[], &[]), None),
        (suffix("corp.example.com", disjoint.clone()), None),
        (
            claims("alpha.local", &[], &[]),
            Some("both have the domain alpha.local"),
        ),
        (
            suffix("alpha.local", disjoint),
            Some("both have the domain alpha.local"),
        ),
        (
            claims("beta.local", &[], &["fd00::/64", "10.100.0.0/16"]),
            Some("have networks that overlap: 10.96.0.0/12 and 10.100.0.0/16"),
        ),
    ] {
        let second = claimant(7, own);

        let said = second.clash(&[alpha()]).map(|clash| clash.to_string());

        assert_eq!(said.is_some(), expected.is_some(), "{said:?}");
        let said = said.unwrap_or_default();
        assert!(said.ends_with(expected.unwrap_or_default()), "{said}");
        if expected.is_some() {
            // Who is who, and whom to disconnect.
            assert!(
                said.contains("00000000 (pid 42, context alpha.local)"),
                "{said}"
            );
            assert!(said.contains("00000007"), "{said}");
        }
    }
}

fn wish() -> Intent {
    let line = |names: &[&str]| HostsLine {
        address: "10.112.0.7".parse().unwrap(),
        names: texts(names),
    };
    let dns = DnsIntent {
        servers: vec!["198.19.248.6".parse().unwrap()],
        routes: texts(&["beta.local", "svc", "alpha.local"]),
        namespaces: texts(&["default", "shop"]),
        search: texts(&["default.svc.beta.local"]),
        reverse: texts(&["112.10.in-addr.arpa", "100.10.in-addr.arpa"]),
    };
    let hosts = vec![
        line(&[
            "authors",
            "authors.default",
            "authors.default.svc.beta.local",
        ]),
        line(&["cart", "cart.shop", "cart.shop.svc"]),
        line(&["db.default.svc.alpha.local"]),
    ];
    Intent {
        dns: Some(dns),
        hosts,
        routes: vec!["10.112.0.0/12".parse().unwrap()],
        given: Vec::new(),
    }
}

#[test]
fn the_first_session_gets_all_it_wants() {
    let own = claims("beta.local", &["default"], &[]);
    assert_eq!(withhold(wish(), &own, &[]), (wish(), None));
}

#[test]
fn bare_names_and_shared_namespaces_are_left_to_the_first() {
    let own = claims("beta.local", &["default", "shop"], &["10.112.0.0/12"]);

    let (left, withheld) = withhold(wish(), &own, &[alpha()]);

    let dns = left.dns.unwrap();
    assert_eq!(dns.routes, ["beta.local"]);
    assert_eq!(dns.namespaces, ["shop"]);
    assert!(dns.search.is_empty());
    assert_eq!(dns.reverse, ["112.10.in-addr.arpa"]);
    let names: Vec<_> = left.hosts.iter().map(|line| line.names.clone()).collect();
    assert_eq!(
        names,
        [
            texts(&["authors.default.svc.beta.local"]),
            texts(&["cart.shop"])
        ]
    );
    let withheld = withheld.unwrap();
    assert_eq!(withheld.session.as_str(), "00000000");
    assert_eq!(withheld.hosts_names, 5);
    assert_eq!(
        withheld.domains,
        [
            "svc",
            "alpha.local",
            "default",
            "default.svc.beta.local",
            "100.10.in-addr.arpa"
        ]
    );
}

#[test]
fn a_domain_below_that_of_the_first_keeps_its_names() {
    let own = claims("dev.alpha.local", &[], &[]);
    let earlier = [alpha().claims];
    assert!(!is_taken("a.default.svc.dev.alpha.local", &own, &earlier));
    assert!(is_taken("a.default.svc.alpha.local", &own, &earlier));
    assert!(!is_taken("a.default.svc.notalpha.local", &own, &earlier));
}

#[test]
fn claims_are_normalised_and_names_that_are_none_are_refused() {
    let wild = Claims {
        name: format!("a\nb{}", "x".repeat(NAME_CHARS)),
        domain: "Beta.Local.".to_owned(),
        ..claims("", &["Shop"], &[])
    };
    let checked = wild.checked().unwrap();
    assert_eq!(checked.domain, "beta.local");
    assert_eq!(checked.namespaces, ["shop"]);
    assert!(checked.name.starts_with("abx") && checked.name.len() == NAME_CHARS);

    for domain in ["", ".", "a b", "a..b"] {
        let error = claims(domain, &[], &[]).checked().unwrap_err();
        assert!(matches!(error, ClaimsError::Name { .. }), "{domain:?}");
    }
    let many = Claims {
        namespaces: vec!["a".to_owned(); ENTRIES + 1],
        ..claims("beta.local", &[], &[])
    };
    assert_eq!(many.checked(), Err(ClaimsError::TooMany));
}
