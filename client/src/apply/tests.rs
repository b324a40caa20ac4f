//! The plan for hosts lines and DNS settings, with a property over all plans.

use proptest::prelude::*;

use super::*;
use crate::test_util::{cluster_ip, table_with};

fn policy(form: HostsForm, namespace: &str) -> HostsPolicy {
    HostsPolicy {
        form,
        namespace: namespace.to_owned(),
        cluster_domain: "cluster.local".to_owned(),
    }
}

/// Says of every candidate name that it did not resolve.
fn all_free(table: &RouteTable, policy: &HostsPolicy) -> Before {
    let plan = hosts_plan(table, policy, &Before::new());
    plan.unknown.into_iter().map(|name| (name, false)).collect()
}

fn lines(plan: &HostsPlan) -> Vec<String> {
    plan.lines
        .iter()
        .map(|line| format!("{} {}", line.address, line.names.join(" ")))
        .collect()
}

fn service(name: &str, kind: ServiceKind, addresses: &[&str]) -> ServiceRoute {
    ServiceRoute {
        kind,
        cluster_ips: addresses
            .iter()
            .map(|address| address.parse().unwrap())
            .collect(),
        ..cluster_ip("default", name, "10.96.0.1")
    }
}

#[test]
fn each_form_adds_to_the_one_before() {
    let table = table_with(vec![(
        "default",
        vec![cluster_ip("default", "authors", "10.96.0.7")],
    )]);
    let expected = [
        (HostsForm::Off, vec![]),
        (HostsForm::Short, vec!["10.96.0.7 authors"]),
        (
            HostsForm::Namespaced,
            vec!["10.96.0.7 authors authors.default"],
        ),
        (
            HostsForm::Fqdn,
            vec!["10.96.0.7 authors authors.default authors.default.svc.cluster.local"],
        ),
    ];
    for (form, wanted) in expected {
        let policy = policy(form, "default");
        let plan = hosts_plan(&table, &policy, &all_free(&table, &policy));

        assert_eq!(lines(&plan), wanted, "{form:?}");
        assert_eq!(plan.conflicts, []);
    }
}

#[test]
fn only_services_with_an_address_have_lines() {
    let services = vec![
        service("both", ServiceKind::ClusterIp, &["10.96.0.1", "fd00::1"]),
        service("broken", ServiceKind::ClusterIp, &["0.0.0.0"]),
        service("docs", ServiceKind::ExternalName, &[]),
        service("headless", ServiceKind::Headless, &["10.244.0.9"]),
        service("pending", ServiceKind::ClusterIp, &[]),
    ];
    let table = table_with(vec![("default", services)]);
    let policy = policy(HostsForm::Short, "default");

    let plan = hosts_plan(&table, &policy, &all_free(&table, &policy));

    assert_eq!(lines(&plan), ["10.96.0.1 both", "fd00::1 both"]);
}

#[test]
fn only_the_session_s_own_namespace_has_lines() {
    let table = table_with(vec![
        (
            "default",
            vec![cluster_ip("default", "authors", "10.96.0.7")],
        ),
        ("prod", vec![cluster_ip("prod", "db", "10.96.0.8")]),
    ]);
    let policy = policy(HostsForm::Namespaced, "default");

    let plan = hosts_plan(&table, &policy, &all_free(&table, &policy));

    assert_eq!(lines(&plan), ["10.96.0.7 authors authors.default"]);
}

#[test]
fn a_name_of_the_public_internet_gets_no_line_and_is_listed() {
    let table = table_with(vec![(
        "shop",
        vec![cluster_ip("shop", "authors", "10.96.0.7")],
    )]);
    let policy = policy(HostsForm::Namespaced, "shop");

    let plan = hosts_plan(&table, &policy, &all_free(&table, &policy));

    assert_eq!(lines(&plan), ["10.96.0.7 authors"]);
    assert_eq!(plan.conflicts.len(), 1);
    assert_eq!(plan.conflicts[0].name, "authors.shop");
}

#[test]
fn a_name_that_resolved_before_gets_no_line_and_is_listed() {
    let table = table_with(vec![(
        "default",
        vec![cluster_ip("default", "nas", "10.96.0.7")],
    )]);
    let policy = policy(HostsForm::Namespaced, "default");
    let before = Before::from([("nas".to_owned(), true), ("nas.default".to_owned(), false)]);

    let plan = hosts_plan(&table, &policy, &before);

    assert_eq!(lines(&plan), ["10.96.0.7 nas.default"]);
    assert_eq!(plan.conflicts[0].name, "nas");
}

#[test]
fn a_name_waits_until_its_past_is_known() {
    let table = table_with(vec![(
        "default",
        vec![cluster_ip("default", "nas", "10.96.0.7")],
    )]);

    let plan = hosts_plan(&table, &policy(HostsForm::Short, "default"), &Before::new());

    assert_eq!(plan.lines, []);
    assert_eq!(plan.unknown, BTreeSet::from(["nas".to_owned()]));
}

#[test]
fn the_dns_settings_route_the_cluster_and_search_one_namespace() {
    let session = crate::test_util::session_info(&["10.96.0.0/15", "10.0.0.0/9"]);
    let namespaces = ["default", "shop"].map(str::to_owned);

    let plan = dns_plan(
        &session,
        &namespaces,
        &["corp.example.com".to_owned()],
        "198.19.248.2".parse().unwrap(),
    );

    assert_eq!(
        plan.intent.routes,
        ["cluster.local", "svc", "corp.example.com"]
    );
    assert_eq!(plan.intent.namespaces, ["default", "shop"]);
    assert_eq!(plan.intent.search, ["default.svc.cluster.local"]);
    assert_eq!(
        plan.intent.reverse,
        ["96.10.in-addr.arpa", "97.10.in-addr.arpa"]
    );
    assert_eq!(plan.without_reverse, ["10.0.0.0/9".parse().unwrap()]);
}

fn any_kind() -> impl Strategy<Value = ServiceKind> {
    prop_oneof![
        Just(ServiceKind::ClusterIp),
        Just(ServiceKind::Headless),
        Just(ServiceKind::ExternalName)
    ]
}

prop_compose! {
    fn any_service()(
        name in prop_oneof![
            Just("localhost".to_owned()), Just("wpad".to_owned()), Just("isatap".to_owned()), "[a-d]{1,2}"
        ],
        kind in any_kind(),
        octets in proptest::collection::vec(any::<[u8; 4]>(), 0..3),
    ) -> ServiceRoute {
        let cluster_ips = octets.into_iter().map(IpAddr::from).collect();
        ServiceRoute { kind, cluster_ips, ..cluster_ip("default", &name, "10.96.0.1") }
    }
}

proptest! {
    #[test]
    fn no_plan_has_a_forbidden_line(
        services in proptest::collection::vec(any_service(), 0..12),
        namespace in prop_oneof![Just("default"), Just("shop"), Just("dev")],
        taken in proptest::collection::btree_set("[a-d]{1,2}(\\.(default|shop|dev))?", 0..6),
        form in prop_oneof![
            Just(HostsForm::Off), Just(HostsForm::Short), Just(HostsForm::Namespaced), Just(HostsForm::Fqdn)
        ],
    ) {
        let table = table_with(vec![(namespace, services)]);
        let policy = policy(form, namespace);
        let mut before = all_free(&table, &policy);
        before.extend(taken.iter().map(|name| (name.clone(), true)));

        let plan = hosts_plan(&table, &policy, &before);

        prop_assert!(form != HostsForm::Off || plan.lines.is_empty());
        for line in &plan.lines {
            prop_assert!(!line.address.is_unspecified() && !line.address.is_loopback());
            prop_assert!(!line.names.is_empty());
            for name in &line.names {
                prop_assert!(!taken.contains(name));
                let service = name.split('.').next().unwrap();
                prop_assert!(!NEVER.contains(&service));
                prop_assert!(!name.contains('.') || !is_public_tld(name), "{name}");
                let route = table.service(namespace, service);
                prop_assert!(route.is_some_and(|route| route.kind == ServiceKind::ClusterIp));
            }
        }
    }
}
