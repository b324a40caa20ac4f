//! Which names of Services are answered, how, and which are left to the upstreams.

use super::*;
use crate::kubernetes::index::{Scope, Served};
use crate::kubernetes::manifest;
use kubebridge_dns::view::{BarePolicy, PlainView};

const MANIFEST: &str = "\
kind: List
items:
- {kind: Service, metadata: {name: authors}, spec: {clusterIPs: [10.96.0.20]}}
- {kind: Service, metadata: {name: dual}, spec: {clusterIPs: ['fd00::20', 10.96.0.22]}}
- {kind: Service, metadata: {name: db}, spec: {clusterIP: None}}
- {kind: Service, metadata: {name: docs}, spec: {type: ExternalName, externalName: docs.example}}
- {kind: Service, metadata: {name: authors, namespace: shop}, spec: {clusterIP: 10.96.0.21}}
";

fn records(authority: Authority) -> (ServiceRecords, Arc<Index>) {
    let index = Arc::new(Index::new(Served::All, 1));
    index.reset(
        &Scope::All,
        manifest::routes(MANIFEST).unwrap(),
        Instant::now(),
    );
    let view = View::plain(PlainView {
        search: Vec::new(),
        ndots: None,
        cluster_domain: Some("cluster.local".parse().unwrap()),
        absolute_zones: Vec::new(),
        bare: BarePolicy::LastToUpstreams,
    });
    let plain = watch::Sender::new(Arc::new(view)).subscribe();
    (
        ServiceRecords::new(Arc::clone(&index), authority, plain),
        index,
    )
}

fn looked_up(authority: Authority, name: &str, rtype: RecordType) -> Local {
    records(authority).0.lookup(&name.parse().unwrap(), rtype)
}

fn addresses(texts: &[&str]) -> Local {
    Local::Addresses(texts.iter().map(|text| text.parse().unwrap()).collect())
}

#[test]
fn a_cluster_service_is_answered_as_the_table_says() {
    use Local::{NoData, NotMine};
    use RecordType as Type;
    let alias = || Local::Alias("docs.example".parse().unwrap());
    for (name, rtype, expected) in [
        ("authors.default.svc", Type::A, addresses(&["10.96.0.20"])),
        ("AUTHORS.Default.SVC", Type::A, addresses(&["10.96.0.20"])),
        ("authors.default.svc", Type::AAAA, NoData),
        ("authors.default.svc", Type::HTTPS, NoData),
        ("authors.default.svc", Type::SRV, NotMine),
        ("authors.shop.svc", Type::A, addresses(&["10.96.0.21"])),
        ("dual.default.svc", Type::A, addresses(&["10.96.0.22"])),
        ("dual.default.svc", Type::AAAA, addresses(&["fd00::20"])),
        ("db.default.svc", Type::A, NotMine),
        ("docs.default.svc", Type::A, alias()),
        ("docs.default.svc", Type::AAAA, alias()),
        ("docs.default.svc", Type::CNAME, alias()),
        ("_http._tcp.authors.default.svc", Type::SRV, NotMine),
        ("unknown.default.svc", Type::A, NotMine),
        ("10-96-0-20.default.pod", Type::A, NotMine),
        ("default.svc", Type::A, NotMine),
    ] {
        let full = format!("{name}.cluster.local");
        assert_eq!(
            looked_up(Authority::Cluster, &full, rtype),
            expected,
            "{name} {rtype}"
        );
    }
    for other in [
        "authors.default",
        "authors.default.svc.other.local",
        "example.com",
    ] {
        assert_eq!(
            looked_up(Authority::Cluster, other, Type::A),
            NotMine,
            "{other}"
        );
    }
}

#[test]
fn addresses_of_services_point_back_to_them() {
    let (records, index) = records(Authority::Cluster);
    let pointer = |name: &str| records.lookup(&name.parse().unwrap(), RecordType::PTR);
    let authors = Local::Pointer(vec!["authors.default.svc.cluster.local".parse().unwrap()]);
    assert_eq!(pointer("20.0.96.10.in-addr.arpa"), authors);
    assert_eq!(pointer("20.0.96.10.IN-ADDR.ARPA"), authors);
    let dual = Local::Pointer(vec!["dual.default.svc.cluster.local".parse().unwrap()]);
    assert_eq!(
        pointer(&format!("0.2.{}0.0.d.f.ip6.arpa", "0.".repeat(26))),
        dual
    );
    for other in [
        "99.0.96.10.in-addr.arpa",
        "0.96.10.in-addr.arpa",
        "x.0.96.10.in-addr.arpa",
    ] {
        assert_eq!(pointer(other), Local::NotMine, "{other}");
    }
    index.delete("default", "authors", Instant::now());
    assert_eq!(pointer("20.0.96.10.in-addr.arpa"), Local::NotMine);
}

#[test]
fn a_reverse_name_leads_back_to_its_address() {
    for text in ["10.96.0.20", "255.0.0.1", "fd00::20", "2001:db8::1"] {
        let address: IpAddr = text.parse().unwrap();
        assert_eq!(
            reverse_address(&reverse_name(address).unwrap()),
            Some(address)
        );
    }
}

#[test]
fn a_service_deleted_a_moment_ago_does_not_exist() {
    let (records, index) = records(Authority::Cluster);
    index.delete("default", "authors", Instant::now());
    let name = "authors.default.svc.cluster.local".parse().unwrap();
    assert_eq!(records.lookup(&name, RecordType::A), Local::NxDomain);
}

#[test]
fn a_namespace_that_is_not_synced_goes_upstream() {
    let (records, index) = records(Authority::Cluster);
    let forbidden = kubebridge_proto::routes::NamespaceState::Forbidden {
        verb: "list".to_owned(),
        resource: "services".to_owned(),
    };
    index.set_state(&Scope::Namespace("default".to_owned()), &forbidden);
    let name = "authors.default.svc.cluster.local".parse().unwrap();
    assert_eq!(records.lookup(&name, RecordType::A), Local::NotMine);
}

#[test]
fn with_manifests_a_headless_service_has_no_data() {
    let name = "db.default.svc.cluster.local";
    assert_eq!(
        looked_up(Authority::Manifests, name, RecordType::A),
        Local::NoData
    );
    let name = "authors.default.svc.cluster.local";
    assert_eq!(
        looked_up(Authority::Manifests, name, RecordType::TXT),
        Local::NoData
    );
}

#[test]
fn an_unknown_service_does_not_exist_only_when_there_is_nobody_else_to_ask() {
    let name = "unknown.default.svc.cluster.local";
    assert_eq!(
        looked_up(Authority::Manifests, name, RecordType::A),
        Local::NotMine
    );
    assert_eq!(
        looked_up(Authority::Alone, name, RecordType::A),
        Local::NxDomain
    );
}

#[test]
fn alone_every_name_of_the_cluster_domain_is_answered() {
    for (name, expected) in [
        ("authors.default.default.svc.cluster.local", Local::NxDomain),
        ("authors.cluster.local", Local::NxDomain),
        (
            "_http._tcp.authors.default.svc.cluster.local",
            Local::NxDomain,
        ),
        ("cluster.local", Local::NoData),
        ("svc.cluster.local", Local::NoData),
        ("Shop.svc.cluster.local", Local::NoData),
        ("other.svc.cluster.local", Local::NxDomain),
        ("example.com", Local::NotMine),
    ] {
        assert_eq!(
            looked_up(Authority::Alone, name, RecordType::A),
            expected,
            "{name}"
        );
    }
}
