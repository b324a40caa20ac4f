//! The handshake survives the wire, and what is wrong with a request is named.

use proptest::collection::{btree_map, hash_set, vec};
use proptest::option;
use proptest::prelude::*;
use std::net::IpAddr;

use super::*;

type Spoil<T> = fn(&mut T);

fn range() -> impl Strategy<Value = Cidr> {
    (any::<IpAddr>(), 0..=32u8).prop_map(|(address, prefix)| Cidr::new(address, prefix).unwrap())
}

fn seconds() -> impl Strategy<Value = Option<Duration>> {
    option::of((1..=u64::from(u32::MAX)).prop_map(Duration::from_secs))
}

prop_compose! {
    fn limits()(
        idle in seconds(),
        namespaces in option::of(1..=u32::MAX),
        dns_in_flight in option::of(1..=u32::MAX),
        flows in option::of(1..=u32::MAX),
    ) -> Limits {
        Limits { idle, namespaces, dns_in_flight, flows }
    }
}

prop_compose! {
    fn info()(
        id in "[0-9a-f]{8}",
        search in vec("[a-z]{1,5}\\.svc\\.cluster\\.local", 0..4),
        ndots in 0..=15u8,
        service_cidrs in vec(range(), 0..3),
        pod_cidrs in vec(range(), 0..3),
        limits in limits(),
        fleet_defaults in btree_map("[a-z-]{1,8}", "[ -~]{0,8}", 0..3),
        minimum_client_version in option::of(Just("0.1.0".to_owned())),
        recommended_client_version in option::of(Just("1.2.3-rc.1".to_owned())),
        expires_in in seconds(),
    ) -> SessionInfo {
        SessionInfo {
            id,
            manager_version: "0.1.0".into(),
            cluster_domain: "cluster.local".into(),
            search,
            ndots,
            service_cidrs,
            pod_cidrs,
            limits,
            fleet_defaults,
            minimum_client_version,
            recommended_client_version,
            expires_in,
        }
    }
}

prop_compose! {
    fn request()(
        id in option::of("[0-9a-f]{8}"),
        namespaces in hash_set("[a-z][a-z0-9]{0,8}", 1..5),
        domains in vec("[a-z]{1,5}\\.example", 0..3),
        proven in vec("[A-Za-z0-9._-]{1,40}", 0..5),
    ) -> SessionRequest {
        let namespaces: Vec<String> = namespaces.into_iter().collect();
        let tokens = namespaces.iter().zip(proven).map(|(namespace, token)| NamespaceToken {
            namespace: namespace.clone(),
            token,
        });
        let tokens = tokens.collect();
        SessionRequest { client_version: "0.1.0".into(), id, namespaces, domains, tokens }
    }
}

proptest! {
    #[test]
    fn a_session_survives_the_wire(info in info()) {
        use prost::Message;
        let octets = v1::OpenSessionResponse::from(info.clone()).encode_to_vec();
        let wire = v1::OpenSessionResponse::decode(octets.as_slice()).unwrap();
        prop_assert_eq!(SessionInfo::try_from(wire).unwrap(), info);
    }

    #[test]
    fn a_request_survives_the_wire(request in request()) {
        let wire = v1::OpenSessionRequest::from(request.clone());
        prop_assert_eq!(SessionRequest::try_from(wire).unwrap(), request);
    }
}

fn good_request() -> v1::OpenSessionRequest {
    v1::OpenSessionRequest {
        client_version: "0.1.0".into(),
        namespaces: vec!["default".into()],
        ..v1::OpenSessionRequest::default()
    }
}

#[test]
fn a_bad_request_names_field_and_value() {
    let cases: [(Spoil<v1::OpenSessionRequest>, &str); 6] = [
        (
            |request| request.client_version.clear(),
            "client_version is missing",
        ),
        (
            |request| request.client_version = "new".into(),
            "client_version is \"new\"",
        ),
        (
            |request| request.namespaces.clear(),
            "namespaces is missing",
        ),
        (
            |request| request.namespaces.push(String::new()),
            "namespaces is \"\"",
        ),
        (
            |request| request.namespaces.push("Shop".into()),
            "namespaces is \"Shop\"",
        ),
        (
            |request| request.domains.push(".".into()),
            "domains is \".\"",
        ),
    ];
    for (spoil, expected) in cases {
        let mut request = good_request();
        spoil(&mut request);
        let error = SessionRequest::try_from(request).unwrap_err();
        assert!(
            error.to_string().starts_with(expected),
            "{error} for {expected}"
        );
    }
}

#[test]
fn a_namespace_named_twice_counts_once_and_the_order_stays() {
    let names = ["shop", "default", "shop"].map(str::to_owned).to_vec();
    assert_eq!(wanted_namespaces(names).unwrap(), ["shop", "default"]);
}

#[test]
fn a_bad_answer_names_the_field() {
    let good = || v1::OpenSessionResponse {
        session_id: "00000001".into(),
        manager_version: "0.1.0".into(),
        cluster_domain: "cluster.local".into(),
        ..v1::OpenSessionResponse::default()
    };
    assert!(SessionInfo::try_from(good()).is_ok());
    let cases: [(Spoil<v1::OpenSessionResponse>, &str); 5] = [
        (|answer| answer.session_id.clear(), "session_id is missing"),
        (
            |answer| answer.cluster_domain = ".".into(),
            "cluster_domain is missing",
        ),
        (|answer| answer.ndots = 16, "ndots is \"16\""),
        (
            |answer| answer.pod_cidrs.push("x".into()),
            "pod_cidrs is \"x\"",
        ),
        (
            |answer| answer.minimum_client_version = "x".into(),
            "minimum_client_version is \"x\"",
        ),
    ];
    for (spoil, expected) in cases {
        let mut answer = good();
        spoil(&mut answer);
        let error = SessionInfo::try_from(answer).unwrap_err();
        assert!(
            error.to_string().starts_with(expected),
            "{error} for {expected}"
        );
    }
}
