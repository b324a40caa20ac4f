//! Headers, good and bad.

use proptest::prelude::*;

use super::super::replies;
use super::*;

const FROM: &str = "198.19.248.1:40000";
const TO: &str = "10.96.0.1:53";

fn key(from: &str, to: &str) -> FlowKey {
    FlowKey {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
    }
}

/// A datagram from the first to the second.
fn datagram(from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    replies::datagram(&key(to, from), payload)
}

#[test]
fn a_datagram_is_read_in_either_family() {
    for (from, to) in [(FROM, TO), ("[fd00::1]:40000", "[fd00::2]:53")] {
        let bytes = datagram(from, to, b"hello");

        let packet = Packet::parse(&bytes).unwrap();
        let read = packet.datagram().unwrap();

        assert_eq!(packet.protocol, Protocol::Udp);
        assert_eq!(packet.fragment, None);
        assert_eq!(read.payload, b"hello");
        assert_eq!(
            packet.key(read.source_port, read.destination_port),
            key(from, to)
        );
    }
}

#[test]
fn what_follows_a_packet_is_not_part_of_it() {
    let mut bytes = datagram(FROM, TO, b"hello");
    let length = bytes.len();
    bytes.extend([0; 9]);

    let packet = Packet::parse(&bytes).unwrap();

    assert_eq!(packet.whole.len(), length);
    assert_eq!(packet.datagram().unwrap().payload, b"hello");
}

#[test]
fn an_ipv6_datagram_behind_a_hop_by_hop_header_is_found() {
    let mut bytes = datagram("[fd00::1]:1", "[fd00::2]:2", b"hello");
    // The router alert of RFC 2711, padded.
    let options = [17, 0, 5, 2, 0, 0, 1, 0];
    bytes.splice(40..40, options);
    bytes[6] = 0;
    bytes[4..6].copy_from_slice(&(8_u16 + 13).to_be_bytes());

    let packet = Packet::parse(&bytes).unwrap();

    assert_eq!(packet.protocol, Protocol::Udp);
    assert_eq!(packet.datagram().unwrap().payload, b"hello");
}

#[test]
fn f6_a_refusal_names_the_flow_of_its_sender_only() {
    for (laptop, far, head) in [
        ("192.0.2.1:4000", "10.96.0.1:53", 20),
        ("[fd6f::1]:4000", "[fd00::1]:53", 40),
    ] {
        let answer = datagram(far, laptop, b"answer");
        let answer = Packet::parse(&answer).unwrap();
        let said = replies::unreachable(&answer, replies::Unreachable::Port).unwrap();
        let said = Packet::parse(&said).unwrap();
        assert_eq!(said.refused(), Some(key(laptop, far)));
        // The least that a quote has (RFC 792): the header and eight octets of the datagram.
        let payload = &said.payload[..8 + head + 8];
        assert_eq!(Packet { payload, ..said }.refused(), Some(key(laptop, far)));
        let payload = &said.payload[..8 + head + 3];
        assert_eq!(Packet { payload, ..said }.refused(), None);
        let (source, destination) = (said.destination, said.source);
        let turned = Packet {
            source,
            destination,
            ..said
        };
        assert_eq!(turned.refused(), None);
    }
}

#[test]
fn packets_for_nobody_in_particular_are_not_ours() {
    for (from, to) in [
        (FROM, "224.0.0.251:5353"),
        (FROM, "255.255.255.255:67"),
        (FROM, "0.0.0.0:9"),
        ("0.0.0.0:68", TO),
        ("[fe80::1]:1", "[ff02::2]:2"),
        ("[::]:1", "[fd00::2]:2"),
    ] {
        let bytes = datagram(from, to, b"");
        assert_eq!(
            Packet::parse(&bytes),
            Err(Reason::NotUnicast),
            "{from} {to}"
        );
    }
}

#[test]
fn broken_headers_are_malformed() {
    let good = datagram(FROM, TO, b"hello");
    let spoilt = |place: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[place] = value;
        bytes
    };
    for bytes in [
        Vec::new(),
        vec![0x55; 40],
        good[..19].to_vec(),
        good[..good.len() - 1].to_vec(),
        spoilt(0, 0x4f),
        spoilt(0, 0x44),
    ] {
        assert_eq!(Packet::parse(&bytes), Err(Reason::Malformed), "{bytes:x?}");
    }
    // A length beyond the packet's, one below the header's, and no ports.
    for spoil in [(24, [0, 200]), (24, [0, 7]), (20, [0, 0]), (22, [0, 0])] {
        let mut bytes = good.clone();
        bytes[spoil.0..spoil.0 + 2].copy_from_slice(&spoil.1);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!(packet.datagram(), Err(Reason::Malformed), "{spoil:?}");
    }
}

proptest! {
    #[test]
    fn no_octets_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), v6: bool) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = if v6 { 0x60 } else { 0x45 };
        }
        if let Ok(packet) = Packet::parse(&bytes) {
            let _ = packet.segment();
            let _ = packet.datagram();
            let _ = replies::reset(&packet);
            let _ = replies::echo_request(&packet);
            let _ = replies::echoed(&packet);
            let _ = replies::unreachable(&packet, replies::Unreachable::Host);
        }
    }
}
