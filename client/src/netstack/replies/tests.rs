//! What the laptop is told, octet by octet where that matters.

use super::*;

const V4: [&str; 2] = ["198.19.248.1:40000", "10.96.0.1:443"];
const V6: [&str; 2] = ["[fd00::1]:40000", "[fd00::2]:443"];

fn key([from, to]: [&str; 2]) -> FlowKey {
    FlowKey {
        source: from.parse().unwrap(),
        destination: to.parse().unwrap(),
    }
}

/// A segment of the laptop.
fn segment(ends: [&str; 2], control: TcpControl, ack: Option<i32>, payload: &[u8]) -> Vec<u8> {
    let FlowKey {
        source,
        destination,
    } = key(ends);
    let repr = TcpRepr {
        src_port: source.port(),
        dst_port: destination.port(),
        control,
        seq_number: TcpSeqNumber(1000),
        ack_number: ack.map(TcpSeqNumber),
        window_len: 100,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload,
    };
    let (from, to) = (source.ip(), destination.ip());
    build(from, to, IpProtocol::Tcp, repr.buffer_len(), |buffer| {
        let mut segment = TcpPacket::new_unchecked(buffer);
        repr.emit(&mut segment, &from.into(), &to.into(), &checksums());
    })
}

#[test]
fn f1_a_reset_is_one_the_sender_believes() {
    for ends in [V4, V6] {
        for (control, ack, payload, expected) in [
            (TcpControl::Syn, None, &b""[..], (0, Some(1001))),
            (TcpControl::None, Some(77), b"data", (77, None)),
            (TcpControl::Fin, Some(77), b"", (77, None)),
            (TcpControl::Fin, None, b"data", (0, Some(1005))),
        ] {
            let sent = segment(ends, control, ack, payload);

            let reply = reset(&Packet::parse(&sent).unwrap()).unwrap();

            let reply = Packet::parse(&reply).unwrap();
            let read = TcpPacket::new_checked(reply.payload).unwrap();
            let ends = key(ends);
            assert_eq!(
                reply.key(read.src_port(), read.dst_port()).source,
                ends.destination
            );
            assert!(read.rst());
            assert!(read.verify_checksum(&reply.source.into(), &reply.destination.into()));
            assert_eq!(read.seq_number().0, expected.0);
            assert_eq!(read.ack().then(|| read.ack_number().0), expected.1);
        }
        let sent = segment(ends, TcpControl::Rst, None, b"");
        assert_eq!(reset(&Packet::parse(&sent).unwrap()), None);
    }
}

#[test]
fn f1_an_error_quotes_what_was_sent() {
    let whys = [
        (Unreachable::Network, 0, 0),
        (Unreachable::Host, 1, 3),
        (Unreachable::Port, 3, 4),
        (Unreachable::Protocol, 2, 1),
        (Unreachable::Prohibited, 13, 1),
    ];
    for (why, code_v4, code_v6) in whys {
        let sent = segment(V4, TcpControl::Syn, None, &[7; 2000]);
        let error = unreachable(&Packet::parse(&sent).unwrap(), why).unwrap();
        let error = Packet::parse(&error).unwrap();
        let message = Icmpv4Packet::new_checked(error.payload).unwrap();
        assert!(message.verify_checksum());
        assert_eq!((error.payload[0], error.payload[1]), (3, code_v4));
        assert_eq!(error.payload[8 + 12..8 + 28], sent[12..28]);
        assert_eq!(error.whole.len(), ERROR_V4);

        let sent = segment(V6, TcpControl::Syn, None, &[7; 2000]);
        let error = unreachable(&Packet::parse(&sent).unwrap(), why).unwrap();
        let error = Packet::parse(&error).unwrap();
        assert_eq!((error.payload[0], error.payload[1]), (1, code_v6));
        assert_eq!(error.payload[8 + 8..8 + 48], sent[8..48]);
        assert_eq!(error.whole.len(), ERROR_V6);
    }
}

#[test]
fn f7_an_echo_has_the_identifier_of_its_asker_and_a_right_checksum() {
    for ([from, to], kinds) in [(V4, (8, 0)), (V6, (128, 129))] {
        let ends = key([from, to]);
        let (near, far) = (ends.source.ip(), ends.destination.ip());
        let message = [&[kinds.0, 0, 9, 9, 0x12, 0x34, 0, 7][..], b"payload"].concat();
        let sent = packet(near, far, Protocol::Icmp, &message);
        let sent = Packet::parse(&sent).unwrap();
        assert_eq!(echo_request(&sent), Some(0x1234));

        // A pod's kernel has put an identifier of its own.
        let heard = [&[kinds.1, 0, 1, 1, 0xaa, 0xbb, 0, 7][..], b"payload"].concat();
        let reply = echo(far, near, Some(0x1234), &heard).unwrap();
        let reply = Packet::parse(&reply).unwrap();

        assert_eq!((reply.source, reply.destination), (far, near));
        assert_eq!(reply.payload[..2], [kinds.1, 0]);
        assert_eq!(reply.payload[4..], message[4..]);
        assert_eq!(echo_request(&reply), None);
        assert_eq!(echo(far, near, None, &heard[..7]), None);
        if let (IpAddr::V6(from), IpAddr::V6(to)) = (far, near) {
            let message = Icmpv6Packet::new_checked(reply.payload).unwrap();
            assert!(message.verify_checksum(&from, &to));
        } else {
            assert!(
                Icmpv4Packet::new_checked(reply.payload)
                    .unwrap()
                    .verify_checksum()
            );
        }
    }
}
