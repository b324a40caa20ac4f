//! The few bytes of DNS that the lab writes and reads itself, where dig is too slow.

use std::net::Ipv4Addr;

/// A question for the A records of `name`, recursion desired.
pub fn query(number: u16, name: &str) -> Vec<u8> {
    question(number, name, 1)
}

/// A question for the records of `name` of the type with this number, recursion desired.
pub fn question(number: u16, name: &str, kind: u16) -> Vec<u8> {
    let mut packet = number.to_be_bytes().to_vec();
    packet.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        packet.push(u8::try_from(label.len()).unwrap_or(0));
        packet.extend(label.bytes());
    }
    packet.push(0);
    packet.extend(kind.to_be_bytes());
    packet.extend([0, 1]);
    packet
}

/// The number of a reply and its response code.
pub fn head(reply: &[u8]) -> Option<(u16, u8)> {
    let [high, low, _, flags, ..] = *reply else {
        return None;
    };
    Some((u16::from_be_bytes([high, low]), flags & 0xf))
}

/// Whether a record of `reply` has this address.
pub fn has_address(reply: &[u8], address: Ipv4Addr) -> bool {
    let mut data = vec![0, 4];
    data.extend(address.octets());
    reply.windows(data.len()).any(|bytes| bytes == data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_a_header_a_name_and_the_type_and_class() {
        let packet = query(0x1234, "a.bc");

        assert_eq!(packet[..12], [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(packet[12..], *b"\x01a\x02bc\x00\x00\x01\x00\x01");
    }

    #[test]
    fn an_address_is_found_behind_its_length() {
        let reply = [0, 7, 0x81, 0x83, 0, 4, 10, 96, 1, 1];

        assert_eq!(head(&reply), Some((7, 3)));
        assert!(has_address(&reply, Ipv4Addr::new(10, 96, 1, 1)));
        assert!(!has_address(&reply, Ipv4Addr::new(10, 96, 1, 2)));
    }
}
