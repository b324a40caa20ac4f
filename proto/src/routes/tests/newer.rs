//! W16: frames of a newer server, written octet by octet as no generated code of ours would.

use prost::Message;

use super::*;
use crate::error::InvalidMessage;

/// A field of octets; all numbers here are below 16 and all lengths below 128.
fn octets(number: u8, value: &[u8]) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap();
    assert!(number < 16 && length < 128);
    [&[number << 3 | 2, length], value].concat()
}

/// A field of a number below 128.
fn number(field: u8, value: u8) -> Vec<u8> {
    assert!(field < 16 && value < 128);
    vec![field << 3, value]
}

/// Fields of two wire types under numbers that no message of this version has.
fn unknown() -> Vec<u8> {
    [
        [15 << 3, 0x96, 0x01].as_slice(),
        &octets(15, b"new"),
        // A number of two octets, 1000.
        &[0xc2, 0x3e, 1, 9],
    ]
    .concat()
}

fn decode(frame: &[Vec<u8>]) -> v1::WatchNamespaceRoutesResponse {
    v1::WatchNamespaceRoutesResponse::decode(frame.concat().as_slice()).unwrap()
}

fn read(frame: &[Vec<u8>]) -> Result<RouteUpdate, InvalidMessage> {
    RouteUpdate::try_from(decode(frame))
}

/// A Service of namespace `n`.
fn service(name: &str, kind: u8, ports: &[Vec<u8>]) -> Vec<u8> {
    let parts = [
        octets(1, name.as_bytes()),
        octets(2, b"n"),
        number(3, kind),
        octets(4, &[10, 0, 0, 1]),
        ports.concat(),
    ];
    parts.concat()
}

/// W16: fields unknown here change nothing, at every depth.
#[test]
fn unknown_fields_at_every_depth_are_passed_over() {
    let port = [unknown(), number(2, 2), number(3, 53)].concat();
    let route = [service("a", 1, &[octets(5, &port)]), unknown()].concat();
    let page = [number(1, 9), unknown(), octets(2, &route), number(3, 1)].concat();
    let update = read(&[unknown(), octets(1, b"n"), octets(2, &page)]).unwrap();
    let expected = RouteUpdate::Page {
        namespace: "n".to_owned(),
        revision: 9,
        routes: vec![ServiceRoute {
            name: "a".to_owned(),
            namespace: "n".to_owned(),
            kind: ServiceKind::ClusterIp,
            cluster_ips: vec!["10.0.0.1".parse().unwrap()],
            ports: vec![ServicePort {
                name: String::new(),
                protocol: PortProtocol::Udp,
                port: 53,
            }],
            external_name: None,
        }],
        last: true,
    };
    assert_eq!(update, expected);
}

/// W16: a Service of a kind unknown here, and a port of a protocol unknown here, take nothing else
/// with them.
#[test]
fn unknown_enum_values_take_only_what_carries_them() {
    let ports = [[number(2, 99), number(3, 1)], [number(2, 1), number(3, 80)]]
        .map(|port| octets(5, &port.concat()));
    let page = [
        octets(2, &service("future", 99, &[])),
        octets(2, &service("web", 1, &ports)),
        number(3, 1),
    ]
    .concat();
    let RouteUpdate::Page { routes, last, .. } =
        read(&[octets(1, b"n"), octets(2, &page)]).unwrap()
    else {
        panic!("not a page")
    };
    assert!(last);
    let found: Vec<_> = routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(found, ["web"]);
    let ports: Vec<_> = routes[0].ports.iter().map(|port| port.port).collect();
    assert_eq!(ports, [80]);
}

/// W16: a Service that turns into a kind unknown here is gone for us, and the revision moves on.
#[test]
fn a_change_to_an_unknown_kind_is_a_removal() {
    let delta = [
        number(1, 4),
        number(2, 5),
        octets(3, &service("web", 99, &[])),
        octets(4, b"old"),
    ]
    .concat();
    let update = read(&[octets(1, b"n"), octets(3, &delta)]).unwrap();
    let expected = RouteUpdate::Delta {
        namespace: "n".to_owned(),
        base_revision: 4,
        revision: 5,
        upserts: Vec::new(),
        deletes: vec!["old".to_owned(), "web".to_owned()],
    };
    assert_eq!(update, expected);
}

/// W16: a frame or a state unknown here is told from a broken one, so that a client passes over it.
#[test]
fn an_unknown_frame_or_state_is_said_to_be_of_a_newer_peer() {
    let frame = [octets(1, b"n"), octets(9, b"something new")];
    let state = [octets(1, b"n"), octets(4, &number(1, 99))];
    for frame in [frame, state] {
        assert!(read(&frame).unwrap_err().is_from_newer_peer());
    }
    let broken = [octets(1, b"N"), octets(4, &number(1, 1))];
    assert!(!read(&broken).unwrap_err().is_from_newer_peer());
}
