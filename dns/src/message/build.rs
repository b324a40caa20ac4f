//! Writes a reply in its final form and remembers where its TTLs lie.
//!
//! An owner equal to the asked name always becomes a pointer to the question, so that patching the
//! question's spelling patches the owners with it. No other name points into the question: the case
//! of one asker must not show in names that only share a suffix.

use std::collections::HashMap;

use super::rdata::split;
use super::{Header, Record, push_question};
use crate::name::{Name, RecordType};

/// Pointers have fourteen bits.
const FURTHEST_POINTER: usize = 0x3fff;
/// The question's name begins right behind the header.
const TO_QUESTION: [u8; 2] = [0xc0, 0x0c];

/// A reply without id and flags, and the places of its TTLs.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) wire: Vec<u8>,
    pub(crate) ttl_spots: Vec<u16>,
}

/// Writes one reply.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    asked: &'a Name,
    wire: Vec<u8>,
    ttl_spots: Vec<u16>,
    counts: [u16; 4],
    /// Where each suffix was written, in its exact spelling.
    suffixes: HashMap<Box<[u8]>, u16>,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(asked: &'a Name, rtype: RecordType, class: u16) -> Self {
        let mut wire = vec![0; Header::LENGTH];
        push_question(&mut wire, asked, rtype, class);
        Self {
            asked,
            wire,
            ttl_spots: Vec::new(),
            counts: [1, 0, 0, 0],
            suffixes: HashMap::new(),
        }
    }

    pub(crate) fn answer(&mut self, record: &Record) {
        self.counts[1] = self.counts[1].saturating_add(1);
        self.record(record);
    }

    pub(crate) fn authority(&mut self, record: &Record) {
        self.counts[2] = self.counts[2].saturating_add(1);
        self.record(record);
    }

    /// Returns the reply; `None` when it outgrew what a DNS message can hold.
    pub(crate) fn finish(mut self) -> Option<Built> {
        if self.wire.len() > usize::from(u16::MAX) {
            return None;
        }
        Header {
            id: 0,
            flags: 0,
            counts: self.counts,
        }
        .overwrite(&mut self.wire);
        Some(Built {
            wire: self.wire,
            ttl_spots: self.ttl_spots,
        })
    }

    fn record(&mut self, record: &Record) {
        if record.owner == *self.asked && !record.owner.is_root() {
            self.wire.extend_from_slice(&TO_QUESTION);
        } else {
            self.name(&record.owner);
        }
        self.wire.extend_from_slice(&record.rtype.0.to_be_bytes());
        self.wire.extend_from_slice(&record.class.to_be_bytes());
        // A position beyond 16 bits belongs to a message that `finish` refuses.
        self.ttl_spots
            .push(u16::try_from(self.wire.len()).unwrap_or(u16::MAX));
        self.wire.extend_from_slice(&record.ttl.to_be_bytes());
        let length_at = self.wire.len();
        self.wire.extend_from_slice(&[0, 0]);
        self.data(record);
        let length = u16::try_from(self.wire.len() - length_at - 2).unwrap_or(u16::MAX);
        self.wire[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    }

    fn data(&mut self, record: &Record) {
        match split(record.rtype, &record.data) {
            Some(parts) if parts.compressible => {
                self.wire.extend_from_slice(parts.front);
                for name in &parts.names {
                    self.name(name);
                }
                self.wire.extend_from_slice(parts.rest);
            }
            _ => self.wire.extend_from_slice(&record.data),
        }
    }

    /// Writes a name, ending in a pointer where a suffix of it was written before.
    fn name(&mut self, name: &Name) {
        let mut rest = name.as_wire();
        while rest[0] != 0 {
            if let Some(at) = self.suffixes.get(rest) {
                self.wire.extend_from_slice(&(0xc000 | at).to_be_bytes());
                return;
            }
            if self.wire.len() <= FURTHEST_POINTER
                && let Ok(at) = u16::try_from(self.wire.len())
            {
                self.suffixes.insert(rest.into(), at);
            }
            let (label, next) = rest.split_at(1 + usize::from(rest[0]));
            self.wire.extend_from_slice(label);
            rest = next;
        }
        self.wire.push(0);
    }
}
