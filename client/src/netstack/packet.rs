//! What a packet is: addresses, protocol, fragment, ports. Pure.
//!
//! It looks at as much as it takes to know whose packet it is; TCP's state machine, and what is
//! done about a packet, are elsewhere.

use std::net::{IpAddr, SocketAddr};

use smoltcp::wire::{
    IpProtocol, IpVersion, Ipv4Packet, Ipv6ExtHeader, Ipv6FragmentHeader, Ipv6Packet, TcpPacket,
    UdpPacket,
};

use super::drops::Reason;

/// The length of an IPv4 header without options.
const IPV4_HEADER: usize = 20;
/// The length of an IPv6 header.
const IPV6_HEADER: usize = 40;
/// The type and code of an ICMP message that says that nobody has a port.
const NO_PORT_V4: [u8; 2] = [3, 3];
const NO_PORT_V6: [u8; 2] = [1, 4];
/// The octets of an ICMP error before what it quotes.
const ERROR_HEADER: usize = 8;
/// The length of an IPv6 fragment header.
const FRAGMENT_HEADER: usize = 8;

/// Two ends of a flow, as its packets from the laptop name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FlowKey {
    /// The program on the laptop.
    pub(super) source: SocketAddr,
    /// Whom it speaks to.
    pub(super) destination: SocketAddr,
}

/// One IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet<'a> {
    /// Who sent it.
    pub(super) source: IpAddr,
    /// For whom it is.
    pub(super) destination: IpAddr,
    /// What it carries.
    pub(super) protocol: Protocol,
    /// Which part of a larger packet it is, if it is one.
    pub(super) fragment: Option<Fragment>,
    /// What stands behind the IP headers.
    pub(super) payload: &'a [u8],
    /// All of it.
    pub(super) whole: &'a [u8],
}

/// What a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// The ICMP of the packet's family.
    Icmp,
    /// Anything else, by its number.
    Other(u8),
}

/// A fragment's place in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fragment {
    /// The sender's number for the packet.
    pub(super) id: u32,
    /// Where in the packet's payload it belongs.
    pub(super) offset: usize,
    /// Whether others follow.
    pub(super) more: bool,
}

/// What is to be known of a TCP segment to decide about a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    /// The sender's port.
    pub(super) source_port: u16,
    /// The receiver's port.
    pub(super) destination_port: u16,
    /// Whether it opens a connection.
    pub(super) is_opening: bool,
    /// Whether it resets one.
    pub(super) is_reset: bool,
}

/// A UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram<'a> {
    /// The sender's port.
    pub(super) source_port: u16,
    /// The receiver's port.
    pub(super) destination_port: u16,
    /// What it says.
    pub(super) payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Reads a packet's headers.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, Reason> {
        if bytes.is_empty() {
            return Err(Reason::Malformed);
        }
        let packet = match IpVersion::of_packet(bytes) {
            Ok(IpVersion::Ipv4) => Self::parse_v4(bytes)?,
            Ok(IpVersion::Ipv6) => Self::parse_v6(bytes)?,
            Err(_) => return Err(Reason::Malformed),
        };
        if is_host(packet.source) && is_host(packet.destination) {
            Ok(packet)
        } else {
            Err(Reason::NotUnicast)
        }
    }

    fn parse_v4(bytes: &'a [u8]) -> Result<Self, Reason> {
        let header = Ipv4Packet::new_checked(bytes).map_err(|_| Reason::Malformed)?;
        let whole = bytes
            .get(..usize::from(header.total_len()))
            .ok_or(Reason::Malformed)?;
        let offset = usize::from(header.frag_offset());
        let more = header.more_frags();
        let fragment = (more || offset != 0).then(|| Fragment {
            id: u32::from(header.ident()),
            offset,
            more,
        });
        Ok(Self {
            source: header.src_addr().into(),
            destination: header.dst_addr().into(),
            protocol: protocol(header.next_header()),
            fragment,
            payload: whole
                .get(usize::from(header.header_len())..)
                .ok_or(Reason::Malformed)?,
            whole,
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Result<Self, Reason> {
        let header = Ipv6Packet::new_checked(bytes).map_err(|_| Reason::Malformed)?;
        let whole = bytes.get(..header.total_len()).ok_or(Reason::Malformed)?;
        let mut payload = whole.get(IPV6_HEADER..).ok_or(Reason::Malformed)?;
        let mut next = header.next_header();
        if next == IpProtocol::HopByHop {
            let options = Ipv6ExtHeader::new_checked(payload).map_err(|_| Reason::Malformed)?;
            next = options.next_header();
            let length = 8 * (usize::from(options.header_len()) + 1);
            payload = payload.get(length..).ok_or(Reason::Malformed)?;
        }
        let mut fragment = None;
        if next == IpProtocol::Ipv6Frag {
            let extension = Ipv6ExtHeader::new_checked(payload).map_err(|_| Reason::Malformed)?;
            next = extension.next_header();
            let header = Ipv6FragmentHeader::new_checked(extension.payload())
                .map_err(|_| Reason::Malformed)?;
            fragment = Some(Fragment {
                id: header.ident(),
                offset: 8 * usize::from(header.frag_offset()),
                more: header.more_frags(),
            });
            payload = payload.get(FRAGMENT_HEADER..).ok_or(Reason::Malformed)?;
        }
        Ok(Self {
            source: header.src_addr().into(),
            destination: header.dst_addr().into(),
            protocol: protocol(next),
            fragment,
            payload,
            whole,
        })
    }

    /// Reads the payload as a TCP segment.
    pub(super) fn segment(&self) -> Result<Segment, Reason> {
        let header = TcpPacket::new_checked(self.payload).map_err(|_| Reason::Malformed)?;
        if header.src_port() == 0 || header.dst_port() == 0 {
            return Err(Reason::Malformed);
        }
        Ok(Segment {
            source_port: header.src_port(),
            destination_port: header.dst_port(),
            is_opening: header.syn() && !header.ack() && !header.rst() && !header.fin(),
            is_reset: header.rst(),
        })
    }

    /// Reads the payload as a UDP datagram.
    pub(super) fn datagram(&self) -> Result<Datagram<'a>, Reason> {
        let header = UdpPacket::new_checked(self.payload).map_err(|_| Reason::Malformed)?;
        let length = usize::from(header.len());
        if header.src_port() == 0 || header.dst_port() == 0 {
            return Err(Reason::Malformed);
        }
        Ok(Datagram {
            source_port: header.src_port(),
            destination_port: header.dst_port(),
            payload: self.payload.get(8..length).ok_or(Reason::Malformed)?,
        })
    }

    /// Reads an ICMP message as the laptop's word that no program has the port a datagram was
    /// for any more; returns the flow of that datagram.
    pub(super) fn refused(&self) -> Option<FlowKey> {
        let said = match self.source {
            IpAddr::V4(_) => NO_PORT_V4,
            IpAddr::V6(_) => NO_PORT_V6,
        };
        if !self.payload.starts_with(&said) {
            return None;
        }
        let (from, to) = ends_of_quote(self.source, self.payload.get(ERROR_HEADER..)?)?;
        // Nobody may speak of the flows of others.
        let is_its = to.ip() == self.source && from.ip() == self.destination;
        is_its.then_some(FlowKey {
            source: to,
            destination: from,
        })
    }

    /// Returns the flow a packet with these ports belongs to.
    pub(super) fn key(&self, source_port: u16, destination_port: u16) -> FlowKey {
        FlowKey {
            source: SocketAddr::new(self.source, source_port),
            destination: SocketAddr::new(self.destination, destination_port),
        }
    }
}

/// Reads from whom and for whom a quoted datagram was; the quote may end behind its ports.
fn ends_of_quote(reporter: IpAddr, quote: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    let (from, to, protocol, head): (IpAddr, IpAddr, _, _) = match reporter {
        IpAddr::V4(_) => {
            quote.get(..IPV4_HEADER)?;
            let header = Ipv4Packet::new_unchecked(quote);
            let ends = (header.src_addr(), header.dst_addr());
            let head = usize::from(header.header_len());
            (ends.0.into(), ends.1.into(), header.next_header(), head)
        }
        IpAddr::V6(_) => {
            quote.get(..IPV6_HEADER)?;
            let header = Ipv6Packet::new_unchecked(quote);
            let ends = (header.src_addr(), header.dst_addr());
            (
                ends.0.into(),
                ends.1.into(),
                header.next_header(),
                IPV6_HEADER,
            )
        }
    };
    let [a, b, c, d] = *quote.get(head..)?.first_chunk()?;
    let port = |high, low| u16::from_be_bytes([high, low]);
    let ends = (
        SocketAddr::new(from, port(a, b)),
        SocketAddr::new(to, port(c, d)),
    );
    (protocol == IpProtocol::Udp).then_some(ends)
}

fn protocol(number: IpProtocol) -> Protocol {
    match number {
        IpProtocol::Tcp => Protocol::Tcp,
        IpProtocol::Udp => Protocol::Udp,
        IpProtocol::Icmp | IpProtocol::Icmpv6 => Protocol::Icmp,
        other => Protocol::Other(other.into()),
    }
}

/// Whether an address can be one end of a conversation.
fn is_host(address: IpAddr) -> bool {
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !address.is_multicast() && !address.is_unspecified() && !is_broadcast
}

#[cfg(test)]
mod tests;
