//! Where names go, as a table.

use super::*;
use crate::test_util::table_of;

fn zones() -> Zones {
    let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Zones::new(&ZoneNames {
        cluster_domain: "cluster.local".to_owned(),
        namespaces: text(&["default", "shop", "lan"]),
        domains: text(&["corp.example.com"]),
        reverse: text(&["96.10.in-addr.arpa"]),
    })
    .unwrap()
}

fn table() -> RouteTable {
    table_of(&[
        ("default", &["authors", "db"]),
        ("shop", &["authors"]),
        ("lan", &["nas"]),
    ])
}

#[test]
fn names_go_where_a_pod_would_send_them() {
    use Destination::{Cluster, NoData, NoSuchName, Originals};
    let table = [
        // Single labels: known Services, else a local answer, never the original servers.
        ("authors", Cluster),
        ("AUTHORS", Cluster),
        ("printer", NoSuchName),
        ("com", NoData),
        ("shop", NoData),
        ("default", NoData),
        ("svc", NoData),
        ("local", NoData),
        ("arpa", NoData),
        // The cluster's suffixes.
        ("authors.default", Cluster),
        ("nothere.default", Cluster),
        ("x.authors.default", Cluster),
        ("authors.default.svc", Cluster),
        ("authors.default.svc.cluster.local", Cluster),
        ("Authors.Default.SVC.Cluster.Local", Cluster),
        ("cluster.local", Cluster),
        ("pod-0.db.default.svc.cluster.local", Cluster),
        ("_http._tcp.authors.shop.svc.cluster.local", Cluster),
        // What a search list makes of names of the world.
        ("nothere.example.org.default.svc.cluster.local", NoSuchName),
        ("example.shop.default.svc.cluster.local", NoSuchName),
        ("nothere.default.svc.cluster.local", Cluster),
        ("a.b.prod.svc.cluster.local", Cluster),
        ("db.corp.example.com", Cluster),
        ("7.0.96.10.in-addr.arpa", Cluster),
        // Namespaces the world uses too: only Services.
        ("authors.shop", Cluster),
        ("example.shop", Originals),
        ("www.authors.shop", Originals),
        ("nas.lan", Cluster),
        ("router.lan", Originals),
        // The world.
        ("www.example.com", Originals),
        ("corp.example.net", Originals),
        ("notcluster.local", Originals),
        ("authors.prod", Originals),
        ("1.0.0.127.in-addr.arpa", Originals),
        (".", Originals),
    ];
    let (zones, routes) = (zones(), self::table());
    for (name, wanted) in table {
        assert_eq!(
            zones.decide(&name.parse().unwrap(), &routes),
            wanted,
            "{name}"
        );
    }
}

#[test]
fn single_labels_go_to_the_cluster_while_its_services_are_not_known() {
    let unknown = RouteTable::new(&["default".to_owned(), "shop".to_owned()]);

    let decided = |name: &str| zones().decide(&name.parse().unwrap(), &unknown);

    assert_eq!(decided("authors"), Destination::Cluster);
    assert_eq!(decided("authors.shop"), Destination::Originals);
}

#[test]
fn services_that_hide_names_of_the_world_are_listed() {
    let namespaces = ["default", "shop", "lan"].map(str::to_owned);

    assert_eq!(shadowed(&namespaces, &table()), ["authors.shop", "nas.lan"]);
}

#[test]
fn a_namespace_called_svc_or_like_the_domain_changes_nothing() {
    let zones = Zones::new(&ZoneNames {
        cluster_domain: "dev".to_owned(),
        namespaces: vec!["dev".to_owned(), "svc".to_owned()],
        domains: Vec::new(),
        reverse: Vec::new(),
    })
    .unwrap();

    let decided = zones.decide(&"a.b.svc.dev".parse().unwrap(), &RouteTable::new(&[]));

    assert_eq!(decided, Destination::Cluster);
}

#[test]
fn a_name_of_the_cluster_tells_which_service_it_stands_for() {
    let table = [
        ("authors", Some(("default", "authors"))),
        ("Authors.Shop", Some(("shop", "authors"))),
        ("authors.shop.svc", Some(("shop", "authors"))),
        ("authors.shop.svc.cluster.local", Some(("shop", "authors"))),
        ("authors.other", None),
        ("db-0.db.shop.svc.cluster.local", None),
        ("www.corp.example.com", None),
        ("shop.svc.cluster.local", None),
    ];
    for (name, wanted) in table {
        let found = zones().service_of(&name.parse().unwrap());
        let found = found.map(|one| (one.namespace, one.service));
        let wanted = wanted.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn the_rule_and_the_suffix_behind_a_destination_are_told() {
    let table_of_rules = [
        ("", Rule::Root, None),
        ("authors", Rule::Service, None),
        ("printer", Rule::NoService, None),
        ("shop", Rule::NamesBelow, Some("shop")),
        ("authors.default", Rule::Suffix, Some("default")),
        (
            "authors.default.svc.cluster.local",
            Rule::Suffix,
            Some("cluster.local"),
        ),
        (
            "db.corp.example.com",
            Rule::Suffix,
            Some("corp.example.com"),
        ),
        (
            "nothere.example.org.default.svc.cluster.local",
            Rule::SearchNoise,
            Some("cluster.local"),
        ),
        ("authors.shop", Rule::SharedService, Some("shop")),
        ("example.shop", Rule::SharedOutside, Some("shop")),
        ("www.example.com", Rule::Outside, None),
    ];
    for (text, rule, suffix) in table_of_rules {
        let name = if text.is_empty() { "." } else { text };
        let name: Name = name.parse().unwrap();

        assert_eq!(zones().rule(&name, &table()), rule, "{text}");
        assert_eq!(
            zones().decide(&name, &table()),
            rule.destination(),
            "{text}"
        );
        let found = zones().suffix(&name).map(ToString::to_string);
        assert_eq!(found.as_deref(), suffix, "{text}");
    }
    let unknown = RouteTable::new(&["default".to_owned()]);
    let name: Name = "printer".parse().unwrap();
    assert_eq!(zones().rule(&name, &unknown), Rule::RoutesUnknown);
}
