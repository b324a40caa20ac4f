//! The key of an answer: lower-cased wire name, type, class, DO, CD, view id. Built without allocating.

use crate::message::Query;
use crate::name::{MAX_NAME, RecordType};

/// Type and class, as a question has them behind the name.
const KIND: usize = 2 + 2;
/// Flags and view id, which the question of an answer does not tell.
const ASKER: usize = 1 + 8;
/// The view id of names that are never expanded: their answers are the same in every view.
const SHARED: u64 = 0;

/// The key of an answer.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    bytes: [u8; MAX_NAME + KIND + ASKER],
    length: usize,
}

/// The part of a key that stands for the asker: DO, CD, view id.
pub(crate) type AskerPart = [u8; ASKER];

/// What a query says of its asker, for the key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wants {
    pub(crate) dnssec_ok: bool,
    pub(crate) checking_disabled: bool,
    /// The view; `None` for names that are never expanded.
    pub(crate) view: Option<u64>,
}

impl Key {
    /// Makes the key of a query; `view` is `None` for names that are never expanded.
    pub(crate) fn new(query: &Query, view: Option<u64>) -> Self {
        let wants = Wants {
            dnssec_ok: query.dnssec_ok(),
            checking_disabled: query.cd,
            view,
        };
        Self::of_wire(query.name.as_wire(), query.rtype, query.class, wants)
    }

    /// Makes the key of a question whose name is in wire form, of at most 255 octets.
    pub(crate) fn of_wire(name: &[u8], rtype: RecordType, class: u16, wants: Wants) -> Self {
        let mut key = Self::empty();
        key.push(name);
        key.bytes[..key.length].make_ascii_lowercase();
        key.push(&rtype.0.to_be_bytes());
        key.push(&class.to_be_bytes());
        key.push(&[u8::from(wants.dnssec_ok) | u8::from(wants.checking_disabled) << 1]);
        key.push(&wants.view.unwrap_or(SHARED).to_be_bytes());
        key
    }

    /// Makes a key out of a question in wire form, in any case, and the rest of the key it had.
    pub(crate) fn of_question(question: &[u8], asker: AskerPart) -> Self {
        let mut key = Self::empty();
        let (name, kind) = question.split_at(question.len() - KIND);
        key.push(name);
        key.bytes[..key.length].make_ascii_lowercase();
        key.push(kind);
        key.push(&asker);
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

    /// Returns what the question alone does not tell.
    pub(crate) fn asker(&self) -> AskerPart {
        let mut asker = [0; ASKER];
        asker.copy_from_slice(&self.bytes[self.length - ASKER..self.length]);
        asker
    }

    fn empty() -> Self {
        Self {
            bytes: [0; MAX_NAME + KIND + ASKER],
            length: 0,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        self.bytes[self.length..end].copy_from_slice(bytes);
        self.length = end;
    }
}
