//! Which denials of DNS are told, and that no name outside the cluster is.

use std::collections::BTreeSet;

use kubebridge_dns::message::{QueryOptions, encode_query, error_reply};
use kubebridge_dns::name::RecordType;
use kubebridge_dns::view::{BarePolicy, Grant};
use kubebridge_proto::routes::{ServiceKind, ServiceRoute};

use super::*;
use crate::kubernetes::index::{Scope, Served};

fn view() -> View {
    let name = |text: &str| text.parse().unwrap();
    View {
        id: 2,
        search: vec![
            name("shop.svc.cluster.local"),
            name("svc.cluster.local"),
            name("cluster.local"),
        ],
        ndots: 5,
        cluster_domain: name("cluster.local"),
        grant: Grant::Namespaces(BTreeSet::from(["shop".to_owned()])),
        bare: BarePolicy::OnlyUnder(vec![]),
        absolute_zones: vec![],
    }
}

fn index() -> Index {
    let index = Index::new(Served::All, 1);
    let route = |namespace: &str, ip: &str| ServiceRoute {
        name: "authors".to_owned(),
        namespace: namespace.to_owned(),
        kind: ServiceKind::ClusterIp,
        cluster_ips: vec![ip.parse().unwrap()],
        ports: vec![],
        external_name: None,
    };
    let routes = vec![route("shop", "10.96.0.1"), route("prod", "10.96.0.2")];
    index.reset(&Scope::All, routes, tokio::time::Instant::now());
    index
}

fn told(name: &str, code: ResponseCode) -> Option<String> {
    let packet = encode_query(
        7,
        &name.parse().unwrap(),
        RecordType::A,
        QueryOptions::default(),
    );
    let Checked::Query(query) = check(&packet) else {
        panic!("no query")
    };
    let reply = error_reply(&query, code);
    let Denied { namespace, service } = denied(&packet, &reply, &view(), &index())?;
    let word = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    Some(format!("{} {}", word(namespace), word(service)))
}

#[test]
fn r4_names_of_the_cluster_that_were_denied_are_told() {
    let refused = ResponseCode::REFUSED;
    for (name, expected) in [
        ("authors.prod.svc.cluster.local", "prod authors"),
        ("AUTHORS.Prod.SVC.cluster.local", "prod authors"),
        ("_http._tcp.authors.prod.svc.cluster.local", "prod authors"),
        ("prod.svc.cluster.local", "prod -"),
        ("*.prod.svc.cluster.local", "prod -"),
        ("*.*.svc.cluster.local", "- -"),
        (
            "10-0-0-1.unheard-of.pod.cluster.local",
            "unheard-of 10-0-0-1",
        ),
        ("2.0.96.10.in-addr.arpa", "prod authors"),
        // An alias in our own namespace that leads out of it.
        ("alias.shop.svc.cluster.local", "- -"),
    ] {
        assert_eq!(told(name, refused).as_deref(), Some(expected), "{name}");
    }
    for name in ["authors.prod", "authors.prod.svc"] {
        for code in [refused, ResponseCode::NXDOMAIN, ResponseCode::SERVFAIL] {
            assert_eq!(told(name, code).as_deref(), Some("prod authors"), "{name}");
        }
    }
}

#[test]
fn r4_names_outside_the_cluster_are_never_told() {
    for name in [
        "secret-project.example.com",
        "example.com",
        "com",
        "authors",
        "host.unheard-of",
        "8.8.8.8.in-addr.arpa",
        "1.0.96.10.in-addr.arpa",
    ] {
        for code in [
            ResponseCode::REFUSED,
            ResponseCode::NXDOMAIN,
            ResponseCode::SERVFAIL,
        ] {
            assert_eq!(told(name, code), None, "{name} {code}");
        }
    }
    assert_eq!(
        told("authors.shop.svc.cluster.local", ResponseCode::NXDOMAIN),
        None
    );
    assert_eq!(
        told("authors.prod.svc.cluster.local", ResponseCode::NOERROR),
        None
    );
}
