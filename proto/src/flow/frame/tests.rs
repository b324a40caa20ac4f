use proptest::prelude::*;

use super::*;

/// Reads octets that come in pieces of the given lengths, over and over.
fn read_in_pieces(
    mut reader: FrameReader,
    octets: &[u8],
    lengths: &[usize],
) -> Result<Vec<Frame>, FrameError> {
    let mut frames = Vec::new();
    let mut rest = octets;
    for length in lengths.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*length).min(rest.len()));
        rest = after;
        reader.push(Bytes::copy_from_slice(piece));
        while let Some(frame) = reader.read()? {
            frames.push(frame);
        }
    }
    Ok(frames)
}

/// Puts DATA that follows on DATA together.
fn joined(frames: Vec<Frame>) -> Vec<Frame> {
    let mut joined: Vec<Frame> = Vec::new();
    for frame in frames {
        match (joined.last_mut(), frame) {
            (Some(Frame::Data(last)), Frame::Data(more)) => {
                *last = [&last[..], &more[..]].concat().into();
            }
            (_, frame) => joined.push(frame),
        }
    }
    joined
}

fn any_frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 1..300).prop_map(|data| Frame::Data(data.into())),
        (any::<u64>(), any::<u32>())
            .prop_map(|(consumed, window)| Frame::Credit(Credit { consumed, window })),
        Just(Frame::Fin),
    ]
}

proptest! {
    #[test]
    fn frames_are_found_however_their_octets_are_cut(
        frames in prop::collection::vec(any_frame(), 0..20),
        lengths in prop::collection::vec(1_usize..400, 1..8),
    ) {
        let octets: Vec<u8> = frames.iter().flat_map(|frame| frame.encode().to_vec()).collect();

        let whole = read_in_pieces(FrameReader::datagrams(), &octets, &lengths).unwrap();
        let stream = read_in_pieces(FrameReader::stream(), &octets, &lengths).unwrap();

        prop_assert_eq!(&whole, &frames);
        prop_assert_eq!(joined(stream), joined(frames));
    }

    #[test]
    fn no_octets_make_a_reader_panic(
        octets in prop::collection::vec(any::<u8>(), 0..500),
        lengths in prop::collection::vec(1_usize..100, 1..8),
    ) {
        let _ = read_in_pieces(FrameReader::datagrams(), &octets, &lengths);
        let _ = read_in_pieces(FrameReader::stream(), &octets, &lengths);
    }
}

#[test]
fn a_datagram_may_be_empty() {
    let frame = Frame::Data(Bytes::new());
    let found = read_in_pieces(FrameReader::datagrams(), &frame.encode(), &[1]).unwrap();
    assert_eq!(found, [frame]);
}

#[test]
fn frames_of_a_newer_peer_are_skipped() {
    let mut octets = vec![9, 1, 0];
    octets.extend_from_slice(&[7; 256]);
    octets.extend_from_slice(&[9, 0, 0]);
    octets.extend_from_slice(&Frame::Fin.encode());
    for lengths in [[1], [300]] {
        let found = read_in_pieces(FrameReader::stream(), &octets, &lengths).unwrap();
        assert_eq!(found, [Frame::Fin]);
    }
}

#[test]
fn frames_of_an_impossible_length_are_refused() {
    let (long, longer) = (MAX_DATA + 1, MAX_DATAGRAM + 1);
    let header = |length: usize| data_header(length).to_vec();
    let read = |reader, octets: &[u8]| read_in_pieces(reader, octets, &[2]);
    assert_eq!(
        read(FrameReader::stream(), &header(long)),
        Err(FrameError::DataLength(long))
    );
    assert_eq!(read(FrameReader::datagrams(), &header(long)), Ok(vec![]));
    assert_eq!(
        read(FrameReader::datagrams(), &header(longer)),
        Err(FrameError::DataLength(longer))
    );
    assert_eq!(
        read(FrameReader::stream(), &[1, 0, 11]),
        Err(FrameError::CreditLength(11))
    );
    assert_eq!(
        read(FrameReader::stream(), &[2, 0, 1]),
        Err(FrameError::FinLength(1))
    );
}
