//! Routes survive the wire, and what a newer or broken peer sends is named.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::v1;

type Spoil = fn(&mut v1::ServiceRoute);

fn label() -> impl Strategy<Value = String> {
    "[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?"
}

fn port() -> impl Strategy<Value = ServicePort> {
    let protocol = prop_oneof![
        Just(PortProtocol::Tcp),
        Just(PortProtocol::Udp),
        Just(PortProtocol::Sctp),
    ];
    ("[a-z]{0,5}", protocol, 1..=u16::MAX).prop_map(|(name, protocol, port)| ServicePort {
        name,
        protocol,
        port,
    })
}

fn route(namespace: String) -> impl Strategy<Value = ServiceRoute> {
    let kind = prop_oneof![
        Just((ServiceKind::ClusterIp, None)),
        Just((ServiceKind::Headless, None)),
        "[a-z]{1,9}\\.example".prop_map(|target| (ServiceKind::ExternalName, Some(target))),
    ];
    (label(), kind, vec(any::<IpAddr>(), 0..3), vec(port(), 0..3)).prop_map(
        move |(name, (kind, external_name), cluster_ips, ports)| ServiceRoute {
            name,
            namespace: namespace.clone(),
            kind,
            cluster_ips,
            ports,
            external_name,
        },
    )
}

fn state() -> impl Strategy<Value = NamespaceState> {
    prop_oneof![
        Just(NamespaceState::Synced),
        Just(NamespaceState::Waiting),
        Just(NamespaceState::NoSource),
        ("[a-z]{1,5}", "[a-z]{1,9}")
            .prop_map(|(verb, resource)| NamespaceState::Forbidden { verb, resource }),
    ]
}

fn update() -> impl Strategy<Value = RouteUpdate> {
    label().prop_flat_map(|namespace| {
        let (page, delta, of) = (namespace.clone(), namespace.clone(), namespace.clone());
        prop_oneof![
            (
                any::<u64>(),
                vec(route(namespace.clone()), 0..4),
                any::<bool>()
            )
                .prop_map(move |(revision, routes, last)| RouteUpdate::Page {
                    namespace: page.clone(),
                    revision,
                    routes,
                    last
                }),
            (
                any::<u64>(),
                any::<u64>(),
                vec(route(namespace), 0..4),
                vec(label(), 0..4)
            )
                .prop_map(move |(base_revision, revision, upserts, deletes)| {
                    RouteUpdate::Delta {
                        namespace: delta.clone(),
                        base_revision,
                        revision,
                        upserts,
                        deletes,
                    }
                }),
            state().prop_map(move |state| RouteUpdate::State {
                namespace: of.clone(),
                state
            }),
        ]
    })
}

proptest! {
    #[test]
    fn every_update_survives_the_wire(update in update()) {
        use prost::Message;
        let octets = v1::WatchNamespaceRoutesResponse::from(update.clone()).encode_to_vec();
        let wire = v1::WatchNamespaceRoutesResponse::decode(octets.as_slice()).unwrap();
        prop_assert_eq!(RouteUpdate::try_from(wire).unwrap(), update);
    }

    #[test]
    fn no_wire_message_makes_the_conversion_panic(octets in vec(any::<u8>(), 0..200)) {
        use prost::Message;
        if let Ok(wire) = v1::WatchNamespaceRoutesResponse::decode(octets.as_slice()) {
            let _ = RouteUpdate::try_from(wire);
        }
    }
}

fn authors() -> v1::ServiceRoute {
    v1::ServiceRoute {
        name: "authors".into(),
        namespace: "default".into(),
        kind: v1::service_route::Kind::ClusterIp.into(),
        cluster_ips: vec![vec![10, 96, 0, 20]],
        ports: vec![v1::ServicePort {
            name: String::new(),
            protocol: 1,
            port: 80,
        }],
        external_name: String::new(),
    }
}

fn page(routes: Vec<v1::ServiceRoute>) -> v1::WatchNamespaceRoutesResponse {
    use v1::watch_namespace_routes_response::Update;
    let page = v1::SnapshotPage {
        revision: 1,
        routes,
        last: true,
    };
    v1::WatchNamespaceRoutesResponse {
        namespace: "default".into(),
        update: Some(Update::Page(page)),
    }
}

#[test]
fn an_error_names_the_field() {
    let cases: [(Spoil, &str); 7] = [
        (|route| route.name.clear(), "route.name is missing"),
        (|route| route.name = "A".into(), "route.name is \"A\""),
        (
            |route| route.namespace.clear(),
            "route.namespace is missing",
        ),
        (
            |route| route.cluster_ips[0] = vec![1; 5],
            "route.cluster_ips is \"5 octets\"",
        ),
        (
            |route| route.ports[0].port = 65_536,
            "route.ports.port is \"65536\"",
        ),
        (|route| route.ports[0].port = 0, "route.ports.port is \"0\""),
        (|route| route.kind = 3, "route.external_name is missing"),
    ];
    for (spoil, expected) in cases {
        let mut route = authors();
        spoil(&mut route);
        let error = RouteUpdate::try_from(page(vec![route])).unwrap_err();
        assert!(
            error.to_string().starts_with(expected),
            "{error} for {expected}"
        );
        assert!(!error.is_from_newer_peer());
    }
}

#[test]
fn a_route_of_another_namespace_is_refused() {
    let mut route = authors();
    route.namespace = "shop".into();
    let error = RouteUpdate::try_from(page(vec![route])).unwrap_err();
    assert!(
        error.to_string().starts_with("page.routes is \"shop\""),
        "{error}"
    );
}

#[test]
fn a_route_of_an_unknown_kind_is_left_out_of_a_page() {
    let mut newer = authors();
    newer.name = "newer".into();
    newer.kind = 77;
    let RouteUpdate::Page { routes, .. } =
        RouteUpdate::try_from(page(vec![newer, authors()])).unwrap()
    else {
        panic!("not a page");
    };
    assert_eq!(routes.len(), 1);
    assert_eq!(routes[0].name, "authors");
}

#[test]
fn an_upsert_of_an_unknown_kind_counts_as_a_removal() {
    use v1::watch_namespace_routes_response::Update;
    let newer = v1::ServiceRoute {
        kind: 77,
        ..authors()
    };
    let delta = v1::RouteDelta {
        base_revision: 1,
        revision: 2,
        upserts: vec![newer],
        deletes: vec!["db".into()],
    };
    let frame = v1::WatchNamespaceRoutesResponse {
        namespace: "default".into(),
        update: Some(Update::Delta(delta)),
    };
    let RouteUpdate::Delta {
        upserts, deletes, ..
    } = RouteUpdate::try_from(frame).unwrap()
    else {
        panic!("not a delta");
    };
    assert_eq!(upserts, []);
    assert_eq!(deletes, ["db", "authors"]);
}

#[test]
fn a_port_of_an_unknown_protocol_is_left_out() {
    let mut route = authors();
    route.ports.push(v1::ServicePort {
        name: "quic".into(),
        protocol: 9,
        port: 443,
    });
    let RouteUpdate::Page { routes, .. } = RouteUpdate::try_from(page(vec![route])).unwrap() else {
        panic!("not a page");
    };
    assert_eq!(routes[0].ports.len(), 1);
}

#[test]
fn frames_and_states_of_a_newer_peer_say_so() {
    let empty = v1::WatchNamespaceRoutesResponse {
        namespace: "default".into(),
        update: None,
    };
    assert!(
        RouteUpdate::try_from(empty)
            .unwrap_err()
            .is_from_newer_peer()
    );
    let state = v1::NamespaceState {
        kind: 99,
        ..v1::NamespaceState::default()
    };
    assert!(
        NamespaceState::try_from(state)
            .unwrap_err()
            .is_from_newer_peer()
    );
}

mod newer;
