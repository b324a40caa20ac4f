//! Datagrams as packets, for tests that are the laptop.

use std::net::SocketAddr;

use super::packet::{FlowKey, Packet};
use super::replies;

/// Builds the packet of a datagram.
pub(crate) fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let key = FlowKey {
        source: to,
        destination: from,
    };
    replies::datagram(&key, payload)
}

/// Reads a packet as a datagram: from whom, to whom, what.
pub(crate) fn read_datagram(packet: &[u8]) -> Option<(SocketAddr, SocketAddr, Vec<u8>)> {
    let packet = Packet::parse(packet).ok()?;
    let datagram = packet.datagram().ok()?;
    let ends = packet.key(datagram.source_port, datagram.destination_port);
    Some((ends.source, ends.destination, datagram.payload.to_vec()))
}
