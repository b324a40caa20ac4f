//! What we say to the laptop in the place of a far end: resets, ICMP errors, echo replies. Pure.
//!
//! Errors come from the address that was spoken to: every packet came to us because the laptop's
//! routes lead that address here, so no filter on reverse paths stops them.

use std::net::IpAddr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    Icmpv4DstUnreachable, Icmpv4Packet, Icmpv4Repr, Icmpv6DstUnreachable, Icmpv6Packet, Icmpv6Repr,
    IpProtocol, IpRepr, Ipv4Packet, Ipv4Repr, Ipv6Packet, Ipv6Repr, TcpControl, TcpPacket, TcpRepr,
    TcpSeqNumber, UdpPacket, UdpRepr,
};

use super::packet::{FlowKey, Packet, Protocol};

/// The hops a packet of ours may take; it takes one.
const HOPS: u8 = 64;

/// The types of echo requests and replies.
const ECHO_V4: (u8, u8) = (8, 0);
const ECHO_V6: (u8, u8) = (128, 129);

/// The longest ICMP error, so that it passes everywhere (RFC 1812 §4.3.2.3, RFC 4443 §3.1).
const ERROR_V4: usize = 576;
const ERROR_V6: usize = 1280;

/// Why something cannot be reached, as ICMP tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unreachable {
    /// There is no way to the network.
    Network,
    /// The host is not there.
    Host,
    /// Nobody listens on the port.
    Port,
    /// The protocol is not spoken.
    Protocol,
    /// It is not allowed.
    Prohibited,
}

/// Answers a TCP segment with a reset; `None` for one that must not be answered.
pub(super) fn reset(packet: &Packet<'_>) -> Option<Vec<u8>> {
    let segment = TcpPacket::new_checked(packet.payload).ok()?;
    if segment.rst() {
        return None;
    }
    // RFC 9293 §3.5.2: in the sequence the sender expects, or confirming what it sent.
    let (sequence, confirmed) = if segment.ack() {
        (segment.ack_number(), None)
    } else {
        let end = segment.seq_number() + segment.segment_len();
        (TcpSeqNumber(0), Some(end))
    };
    let reply = TcpRepr {
        src_port: segment.dst_port(),
        dst_port: segment.src_port(),
        control: TcpControl::Rst,
        seq_number: sequence,
        ack_number: confirmed,
        window_len: 0,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    let (from, to) = (packet.destination, packet.source);
    let bytes = build(from, to, IpProtocol::Tcp, reply.buffer_len(), |buffer| {
        let mut segment = TcpPacket::new_unchecked(buffer);
        reply.emit(&mut segment, &from.into(), &to.into(), &checksums());
    });
    Some(bytes)
}

/// Tells the sender of a packet that it did not arrive, and why.
pub(super) fn unreachable(packet: &Packet<'_>, why: Unreachable) -> Option<Vec<u8>> {
    match (packet.source, packet.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let header = Ipv4Repr {
                src_addr: source,
                dst_addr: destination,
                next_header: number(packet.protocol, IpProtocol::Icmp),
                payload_len: packet.payload.len(),
                hop_limit: HOPS,
            };
            let room = ERROR_V4 - 2 * header.buffer_len() - 8;
            let error = Icmpv4Repr::DstUnreachable {
                reason: reason_v4(why),
                header,
                data: quoted(packet.payload, room),
            };
            let length = error.buffer_len();
            let (from, to) = (packet.destination, packet.source);
            Some(build(from, to, IpProtocol::Icmp, length, |buffer| {
                error.emit(&mut Icmpv4Packet::new_unchecked(buffer), &checksums());
            }))
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = Ipv6Repr {
                src_addr: source,
                dst_addr: destination,
                next_header: number(packet.protocol, IpProtocol::Icmpv6),
                payload_len: packet.payload.len(),
                hop_limit: HOPS,
            };
            let room = ERROR_V6 - 2 * header.buffer_len() - 8;
            let error = Icmpv6Repr::DstUnreachable {
                reason: reason_v6(why),
                header,
                data: quoted(packet.payload, room),
            };
            let length = error.buffer_len();
            let (from, to) = (packet.destination, packet.source);
            Some(build(from, to, IpProtocol::Icmpv6, length, |buffer| {
                let mut icmp = Icmpv6Packet::new_unchecked(buffer);
                error.emit(&destination, &source, &mut icmp, &checksums());
            }))
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => None,
    }
}

/// Builds a datagram of a flow's far end.
pub(super) fn datagram(key: &FlowKey, payload: &[u8]) -> Vec<u8> {
    let header = UdpRepr {
        src_port: key.destination.port(),
        dst_port: key.source.port(),
    };
    let (from, to) = (key.destination.ip(), key.source.ip());
    let length = header.header_len() + payload.len();
    build(from, to, IpProtocol::Udp, length, |buffer| {
        header.emit(
            &mut UdpPacket::new_unchecked(buffer),
            &from.into(),
            &to.into(),
            payload.len(),
            |body| body.copy_from_slice(payload),
            &checksums(),
        );
    })
}

/// Makes an echo request its reply, as the answer of the host it was sent to.
pub(super) fn echoed(packet: &Packet<'_>) -> Option<Vec<u8>> {
    echo(packet.destination, packet.source, None, packet.payload)
}

/// Whether an ICMP message asks for an echo, and by which identifier.
pub(super) fn echo_request(packet: &Packet<'_>) -> Option<u16> {
    let asks = match packet.destination {
        IpAddr::V4(_) => ECHO_V4.0,
        IpAddr::V6(_) => ECHO_V6.0,
    };
    match packet.payload {
        [kind, 0, _, _, high, low, _, _, ..] if *kind == asks => {
            Some(u16::from_be_bytes([*high, *low]))
        }
        _ => None,
    }
}

/// Builds the head of an echo request to `to`.
pub(super) fn request_head(to: IpAddr, identifier: u16) -> [u8; 8] {
    let kind = match to {
        IpAddr::V4(_) => ECHO_V4.0,
        IpAddr::V6(_) => ECHO_V6.0,
    };
    let [high, low] = identifier.to_be_bytes();
    [kind, 0, 0, 0, high, low, 0, 0]
}

/// Builds an echo reply from a message, as sent by `from`; with another identifier if given.
pub(super) fn echo(
    from: IpAddr,
    to: IpAddr,
    identifier: Option<u16>,
    message: &[u8],
) -> Option<Vec<u8>> {
    let kind = match from {
        IpAddr::V4(_) => ECHO_V4.1,
        IpAddr::V6(_) => ECHO_V6.1,
    };
    let mut message = message.to_vec();
    let head = message.first_chunk_mut::<8>()?;
    (head[0], head[1]) = (kind, 0);
    if let Some(identifier) = identifier {
        [head[4], head[5]] = identifier.to_be_bytes();
    }
    match (from, to) {
        (IpAddr::V4(_), IpAddr::V4(_)) => {
            Icmpv4Packet::new_unchecked(&mut message[..]).fill_checksum();
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            Icmpv6Packet::new_unchecked(&mut message[..]).fill_checksum(&from, &to);
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return None,
    }
    Some(packet(from, to, Protocol::Icmp, &message))
}

/// Builds the packet of a payload.
pub(super) fn packet(from: IpAddr, to: IpAddr, protocol: Protocol, payload: &[u8]) -> Vec<u8> {
    let icmp = match from {
        IpAddr::V4(_) => IpProtocol::Icmp,
        IpAddr::V6(_) => IpProtocol::Icmpv6,
    };
    build(from, to, number(protocol, icmp), payload.len(), |buffer| {
        buffer.copy_from_slice(payload);
    })
}

/// Builds a packet from an IP header and what `write` puts behind it.
fn build(
    from: IpAddr,
    to: IpAddr,
    protocol: IpProtocol,
    length: usize,
    write: impl FnOnce(&mut [u8]),
) -> Vec<u8> {
    let header = IpRepr::new(from.into(), to.into(), protocol, length, HOPS);
    let mut bytes = vec![0; header.buffer_len()];
    match header {
        IpRepr::Ipv4(header) => {
            header.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[..]), &checksums());
        }
        IpRepr::Ipv6(header) => header.emit(&mut Ipv6Packet::new_unchecked(&mut bytes[..])),
    }
    write(&mut bytes[header.header_len()..]);
    bytes
}

/// All of them are computed.
fn checksums() -> ChecksumCapabilities {
    ChecksumCapabilities::default()
}

fn quoted(payload: &[u8], room: usize) -> &[u8] {
    &payload[..payload.len().min(room)]
}

fn number(protocol: Protocol, icmp: IpProtocol) -> IpProtocol {
    match protocol {
        Protocol::Tcp => IpProtocol::Tcp,
        Protocol::Udp => IpProtocol::Udp,
        Protocol::Icmp => icmp,
        Protocol::Other(number) => number.into(),
    }
}

fn reason_v4(why: Unreachable) -> Icmpv4DstUnreachable {
    match why {
        Unreachable::Network => Icmpv4DstUnreachable::NetUnreachable,
        Unreachable::Host => Icmpv4DstUnreachable::HostUnreachable,
        Unreachable::Port => Icmpv4DstUnreachable::PortUnreachable,
        Unreachable::Protocol => Icmpv4DstUnreachable::ProtoUnreachable,
        Unreachable::Prohibited => Icmpv4DstUnreachable::CommProhibited,
    }
}

/// IPv6 has no code for a protocol that is not spoken; it is told as not allowed.
fn reason_v6(why: Unreachable) -> Icmpv6DstUnreachable {
    match why {
        Unreachable::Network => Icmpv6DstUnreachable::NoRoute,
        Unreachable::Host => Icmpv6DstUnreachable::AddrUnreachable,
        Unreachable::Port => Icmpv6DstUnreachable::PortUnreachable,
        Unreachable::Protocol | Unreachable::Prohibited => Icmpv6DstUnreachable::AdminProhibit,
    }
}

#[cfg(test)]
mod tests;
