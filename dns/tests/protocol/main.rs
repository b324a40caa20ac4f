//! The protocol conditions of the DNS engine, each seen from a client's socket: the real servers in front,
//! the real plain transport behind, a scripted server on loopback at the far end.
//!
//! One file per letter of the conditions; a test's doc comment names its row. What cannot be seen from
//! outside (distribution of ids, eviction, property tests) is tested beside the code.

#![expect(
    clippy::unwrap_used,
    reason = "a test stops at the first thing that is not as it should be"
)]

mod allocations;
mod caching;
mod edns;
mod flood;
mod keeping;
mod matching;
mod names;
mod packet;
mod parse;
mod size;
mod stream;
mod world;
