//! Addresses, indexes and errors as they go over the bus. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use zbus::fdo;

/// `AF_INET` and `AF_INET6` as they go over the bus.
const INET: i32 = 2;
const INET6: i32 = 10;

/// A server of a link as D-Bus has it: family, address, port, TLS name.
pub(super) type WireServer = (i32, Vec<u8>, u16, String);

/// A server of any link as D-Bus has it, with the link in front.
pub(super) type WireLinkServer = (i32, i32, Vec<u8>, u16, String);

/// An address in a lookup's reply: link, family, address.
pub(super) type WireAddress = (i32, i32, Vec<u8>);

/// Tells whether an error reply has this name (`LinkBusy`, `E2BIG`, …).
pub(in crate::dns) fn is_named(error: &zbus::Error, suffix: &str) -> bool {
    matches!(error, zbus::Error::MethodError(name, _, _) if name.as_str().ends_with(suffix))
}

/// Tells whether the link named in a call does not exist (any more).
pub(super) fn is_no_such_link(error: &zbus::Error) -> bool {
    let unknown_object = |error: &fdo::Error| matches!(error, fdo::Error::UnknownObject(_));
    is_named(error, ".NoSuchLink")
        || matches!(error, zbus::Error::FDO(error) if unknown_object(error))
}

pub(super) fn is_unknown_method(error: &zbus::Error) -> bool {
    matches!(error, zbus::Error::FDO(error) if matches!(**error, fdo::Error::UnknownMethod(_)))
}

pub(super) fn to_wire(address: IpAddr) -> (i32, Vec<u8>) {
    match address {
        IpAddr::V4(address) => (INET, address.octets().to_vec()),
        IpAddr::V6(address) => (INET6, address.octets().to_vec()),
    }
}

pub(super) fn from_wire(family: i32, octets: &[u8]) -> Option<IpAddr> {
    match family {
        INET => <[u8; 4]>::try_from(octets)
            .ok()
            .map(|octets| Ipv4Addr::from(octets).into()),
        INET6 => <[u8; 16]>::try_from(octets)
            .ok()
            .map(|octets| Ipv6Addr::from(octets).into()),
        _ => None,
    }
}

/// Interface indexes are positive and small; a wrong one only finds no link.
pub(super) fn wire_index(link: u32) -> i32 {
    i32::try_from(link).unwrap_or(0)
}

pub(super) fn index(link: i32) -> u32 {
    u32::try_from(link).unwrap_or(0)
}

/// Returns where a server is; one with a link-local address is on its link.
pub(super) fn socket_address(
    link: i32,
    family: i32,
    octets: &[u8],
    port: u16,
) -> Option<SocketAddr> {
    let port = if port == 0 { 53 } else { port };
    Some(match from_wire(family, octets)? {
        IpAddr::V4(address) => SocketAddr::from((address, port)),
        IpAddr::V6(address) => {
            let scope = if address.is_unicast_link_local() {
                index(link)
            } else {
                0
            };
            SocketAddr::V6(SocketAddrV6::new(address, port, 0, scope))
        }
    })
}
