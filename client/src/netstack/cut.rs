//! Cuts packets that are longer than the link's MTU. Pure.
//!
//! Only datagrams of far ends are that long; TCP makes its segments fit.

use smoltcp::wire::{IpProtocol, IpVersion, Ipv4Packet, Ipv6Packet};

/// The lengths of the headers of packets that we make: no options.
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
const FRAGMENT_HEADER: usize = 8;

/// Returns the fragments of a packet without options that is longer than `mtu`, or the packet.
pub(super) fn cut(packet: Vec<u8>, mtu: usize, id: u32) -> Vec<Vec<u8>> {
    if packet.len() <= mtu {
        return vec![packet];
    }
    match IpVersion::of_packet(&packet) {
        Ok(IpVersion::Ipv4) => cut_v4(&packet, mtu, id),
        Ok(IpVersion::Ipv6) => cut_v6(&packet, mtu, id),
        Err(_) => Vec::new(),
    }
}

fn cut_v4(packet: &[u8], mtu: usize, id: u32) -> Vec<Vec<u8>> {
    let (head, payload) = packet.split_at(V4_HEADER);
    pieces(payload, mtu - V4_HEADER)
        .map(|(offset, piece, more)| {
            let mut bytes = [head, piece].concat();
            let length = bytes.len();
            let mut header = Ipv4Packet::new_unchecked(&mut bytes[..]);
            header.set_total_len(u16::try_from(length).unwrap_or(u16::MAX));
            // The sender's number has 16 bits here.
            header.set_ident(id as u16);
            header.set_dont_frag(false);
            header.set_more_frags(more);
            header.set_frag_offset(offset);
            header.fill_checksum();
            bytes
        })
        .collect()
}

fn cut_v6(packet: &[u8], mtu: usize, id: u32) -> Vec<Vec<u8>> {
    let (head, payload) = packet.split_at(V6_HEADER);
    let protocol = Ipv6Packet::new_unchecked(packet).next_header();
    pieces(payload, mtu - V6_HEADER - FRAGMENT_HEADER)
        .map(|(offset, piece, more)| {
            let [high, low] = (offset | u16::from(more)).to_be_bytes();
            let extension = [u8::from(protocol), 0, high, low];
            let mut bytes = [head, &extension, &id.to_be_bytes(), piece].concat();
            let length = bytes.len() - V6_HEADER;
            let mut header = Ipv6Packet::new_unchecked(&mut bytes[..]);
            header.set_next_header(IpProtocol::Ipv6Frag);
            header.set_payload_len(u16::try_from(length).unwrap_or(u16::MAX));
            bytes
        })
        .collect()
}

/// Cuts a payload at multiples of 8: offset, piece, whether more follow.
fn pieces(payload: &[u8], room: usize) -> impl Iterator<Item = (u16, &[u8], bool)> {
    let size = (room & !7).max(8);
    payload.chunks(size).enumerate().map(move |(index, piece)| {
        let offset = index * size;
        let more = offset + piece.len() < payload.len();
        (u16::try_from(offset).unwrap_or(u16::MAX), piece, more)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::super::fragments::Fragments;
    use super::super::packet::{Packet, Protocol};
    use super::super::replies;
    use super::*;

    /// Cuts a datagram, puts it together again in the given order, and returns its payload.
    fn through(addresses: [&str; 2], payload: &[u8], mtu: usize, reversed: bool) -> Vec<u8> {
        let [from, to] = addresses.map(|text| text.parse().unwrap());
        let packet = replies::packet(from, to, Protocol::Udp, payload);
        let mut pieces = cut(packet.clone(), mtu, 77);
        assert!(pieces.iter().all(|piece| piece.len() <= mtu));
        if pieces.len() == 1 {
            assert_eq!(pieces[0], packet);
            return payload.to_vec();
        }
        if reversed {
            pieces.reverse();
        }
        let (mut fragments, now) = (Fragments::default(), Instant::now());
        let mut whole = Vec::new();
        for piece in &pieces {
            assert_eq!(whole, Vec::<u8>::new());
            let piece = Packet::parse(piece).unwrap();
            let added = fragments.add(&piece, piece.fragment.unwrap(), now).unwrap();
            whole = added.unwrap_or_default();
        }
        let whole = Packet::parse(&whole).unwrap();
        assert_eq!((whole.source, whole.destination), (from, to));
        assert_eq!(whole.protocol, Protocol::Udp);
        whole.payload.to_vec()
    }

    const V4: [&str; 2] = ["10.96.0.1", "198.19.248.1"];
    const V6: [&str; 2] = ["fd00::1", "fd00::2"];

    #[tokio::test]
    async fn f6_the_longest_datagram_survives_being_cut() {
        let payload: Vec<u8> = (0..65_515).map(|index| index as u8).collect();
        for mtu in [1280, 1500, 4064, 16_000] {
            assert_eq!(through(V4, &payload, mtu, false), payload);
            assert_eq!(through(V6, &payload, mtu, true), payload);
        }
    }

    proptest! {
        #[test]
        fn f6_what_is_cut_is_put_together_the_same(
            payload in prop::collection::vec(any::<u8>(), 1..5000),
            mtu in 576_usize..3000,
            reversed: bool,
        ) {
            prop_assert_eq!(&through(V4, &payload, mtu, reversed), &payload);
            prop_assert_eq!(&through(V6, &payload, mtu, reversed), &payload);
        }
    }
}
