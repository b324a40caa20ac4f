//! The key of an answer: lower-cased wire name, type, class, DO, CD, view id. Built without allocating.

use crate::message::Query;
use crate::name::MAX_NAME;

/// Type, class, flags, view id.
const TAIL: usize = 2 + 2 + 1 + 8;
/// The view id of names that are never expanded: their answers are the same in every view.
const SHARED: u64 = 0;

/// The key of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    bytes: [u8; MAX_NAME + TAIL],
    length: usize,
}

impl Key {
    /// Makes the key of a query; `view` is `None` for names that are never expanded.
    pub(crate) fn new(query: &Query, view: Option<u64>) -> Self {
        let mut key = Self {
            bytes: [0; MAX_NAME + TAIL],
            length: 0,
        };
        key.push(query.name.as_wire());
        key.bytes[..key.length].make_ascii_lowercase();
        key.push(&query.rtype.0.to_be_bytes());
        key.push(&query.class.to_be_bytes());
        key.push(&[u8::from(query.dnssec_ok()) | u8::from(query.cd) << 1]);
        key.push(&view.unwrap_or(SHARED).to_be_bytes());
        key
    }

    /// Makes the key of a query that another process of ours sent: it shares no resolution with
    /// anybody else's.
    pub(crate) fn of_other_process(query: &Query, instance: u64) -> Self {
        // The ids of views are counted from 1.
        Self::new(query, Some(instance | 1 << 63))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }
}
