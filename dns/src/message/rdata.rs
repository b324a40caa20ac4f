//! Where names lie in record data, for the types whose names may be compressed (RFC 3597 §4).
//!
//! Their pointers refer to the old message, so they are expanded on reading. Every other type is opaque.

use std::ops::Range;

use super::MessageError;
use super::wire::Reader;
use crate::name::{Name, RecordType};

/// The shape of record data: fixed octets, character strings, names, and a rest that stays as it is.
#[derive(Debug, Clone, Copy)]
struct Layout {
    fixed: usize,
    strings: usize,
    names: usize,
    /// Whether senders may compress the names too (RFC 1035 types only).
    compressible: bool,
}

fn layout(rtype: RecordType) -> Option<Layout> {
    let shape = |fixed, strings, names, compressible| {
        Some(Layout {
            fixed,
            strings,
            names,
            compressible,
        })
    };
    match rtype.0 {
        // NS, MD, MF, CNAME, MB, MG, MR, PTR
        2..=5 | 7..=9 | 12 => shape(0, 0, 1, true),
        // SOA, MINFO
        6 | 14 => shape(0, 0, 2, true),
        // MX
        15 => shape(2, 0, 1, true),
        // AFSDB, RT, KX
        18 | 21 | 36 => shape(2, 0, 1, false),
        // RP
        17 => shape(0, 0, 2, false),
        // SIG
        24 => shape(18, 0, 1, false),
        // PX
        26 => shape(2, 0, 2, false),
        // NXT, DNAME
        30 | 39 => shape(0, 0, 1, false),
        // SRV
        33 => shape(6, 0, 1, false),
        // NAPTR
        35 => shape(4, 3, 1, false),
        _ => None,
    }
}

/// Copies record data out of a message with its names expanded.
pub(crate) fn expand(
    packet: &[u8],
    rtype: RecordType,
    data: Range<usize>,
) -> Result<Vec<u8>, MessageError> {
    let Some(shape) = layout(rtype) else {
        return Ok(packet[data].to_vec());
    };
    let mut reader = Reader::at(&packet[..data.end], data.start);
    let mut copy = pass_front(&mut reader, shape)?.to_vec();
    for _ in 0..shape.names {
        copy.extend_from_slice(reader.name().map_err(|_| MessageError::BadData)?.as_wire());
    }
    copy.extend_from_slice(&packet[reader.position()..data.end]);
    Ok(copy)
}

/// Returns where the names in record data begin, for those who move records without expanding them.
pub(crate) fn name_positions(
    packet: &[u8],
    rtype: RecordType,
    data: Range<usize>,
) -> Result<Vec<usize>, MessageError> {
    let Some(shape) = layout(rtype) else {
        return Ok(Vec::new());
    };
    let mut reader = Reader::at(&packet[..data.end], data.start);
    pass_front(&mut reader, shape)?;
    let mut positions = Vec::new();
    for _ in 0..shape.names {
        positions.push(reader.position());
        reader.skip_name().map_err(|_| MessageError::BadData)?;
    }
    Ok(positions)
}

/// Returns the names in expanded record data; none for opaque types and for data of the wrong shape.
pub(crate) fn names_in(rtype: RecordType, data: &[u8]) -> Vec<Name> {
    split(rtype, data)
        .map(|parts| parts.names)
        .unwrap_or_default()
}

/// Expanded record data taken apart for writing.
pub(crate) struct Parts<'a> {
    pub(crate) front: &'a [u8],
    pub(crate) names: Vec<Name>,
    pub(crate) rest: &'a [u8],
    pub(crate) compressible: bool,
}

/// Takes expanded record data apart; `None` for opaque types.
pub(crate) fn split(rtype: RecordType, data: &[u8]) -> Option<Parts<'_>> {
    let shape = layout(rtype)?;
    let mut reader = Reader::at(data, 0);
    let front = pass_front(&mut reader, shape).ok()?;
    let names = (0..shape.names)
        .map(|_| plain_name(&mut reader))
        .collect::<Option<Vec<_>>>()?;
    let rest = &data[reader.position()..];
    Some(Parts {
        front,
        names,
        rest,
        compressible: shape.compressible,
    })
}

/// Reads a name that holds no pointer.
fn plain_name(reader: &mut Reader<'_>) -> Option<Name> {
    let start = *reader;
    reader.skip_name().ok()?;
    let mut again = start;
    Name::from_wire(again.bytes(reader.position() - start.position()).ok()?).ok()
}

fn pass_front<'a>(reader: &mut Reader<'a>, shape: Layout) -> Result<&'a [u8], MessageError> {
    let mut start = *reader;
    let bad = |_| MessageError::BadData;
    reader.bytes(shape.fixed).map_err(bad)?;
    for _ in 0..shape.strings {
        let length = reader.u8().map_err(bad)?;
        reader.bytes(usize::from(length)).map_err(bad)?;
    }
    start.bytes(reader.position() - start.position())
}
