//! Fragments that do not make a packet.

use super::*;

fn packet(payload: &[u8], id: u32) -> (Packet<'_>, u32) {
    let packet = Packet {
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
        protocol: Protocol::Udp,
        fragment: None,
        payload,
        whole: payload,
    };
    (packet, id)
}

/// Adds a fragment and tells whether it made a packet.
fn add(
    fragments: &mut Fragments,
    (packet, id): (Packet<'_>, u32),
    offset: usize,
    more: bool,
) -> Result<bool, Reason> {
    let fragment = Fragment { id, offset, more };
    let added = fragments.add(&packet, fragment, Instant::now());
    added.map(|whole| whole.is_some())
}

#[tokio::test(start_paused = true)]
async fn f6_fragments_in_any_order_and_twice_make_one_packet() {
    let mut fragments = Fragments::default();

    for (offset, more) in [(16, false), (0, true), (0, true)] {
        assert_eq!(
            add(&mut fragments, packet(&[1; 8], 1), offset, more),
            Ok(false)
        );
    }
    assert_eq!(add(&mut fragments, packet(&[1; 8], 1), 8, true), Ok(true));
    assert_eq!(fragments.deadline(), None);
}

#[tokio::test(start_paused = true)]
async fn f6_fragments_of_different_packets_are_kept_apart() {
    let mut fragments = Fragments::default();

    assert_eq!(add(&mut fragments, packet(&[1; 8], 1), 0, true), Ok(false));
    assert_eq!(add(&mut fragments, packet(&[1; 8], 2), 8, false), Ok(false));
}

#[tokio::test(start_paused = true)]
async fn f6_a_packet_whose_fragments_contradict_each_other_is_given_up() {
    for (offset, length, more) in [
        (8, 16, true),      // overlaps the one at 16
        (40, 8, true),      // behind the end
        (0, 12, true),      // cut where none may be
        (65_528, 16, true), // too long
        (0, 0, true),       // nothing
        (0, 8, false),      // a second end
    ] {
        let mut fragments = Fragments::default();
        add(&mut fragments, packet(&[1; 8], 1), 16, true).unwrap();
        add(&mut fragments, packet(&[1; 8], 1), 24, false).unwrap();
        let payload = vec![1; length];

        let outcome = add(&mut fragments, packet(&payload, 1), offset, more);

        assert_eq!(outcome, Err(Reason::Fragment), "{offset} {length} {more}");
        assert_eq!(fragments.deadline(), None, "{offset} {length} {more}");
    }
}

#[tokio::test(start_paused = true)]
async fn f6_incomplete_packets_are_bounded_in_number_and_time() {
    let mut fragments = Fragments::default();
    for id in (0..).take(PACKETS) {
        assert_eq!(add(&mut fragments, packet(&[1; 8], id), 0, true), Ok(false));
    }

    assert_eq!(
        add(&mut fragments, packet(&[1; 8], 9999), 0, true),
        Err(Reason::Fragment)
    );
    assert_eq!(fragments.expire(Instant::now()), 0);
    tokio::time::advance(LIFETIME).await;
    assert_eq!(fragments.expire(Instant::now()), PACKETS as u64);
    assert_eq!(
        add(&mut fragments, packet(&[1; 8], 9999), 0, true),
        Ok(false)
    );
}
