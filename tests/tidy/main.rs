//! Checks what the compiler cannot: who may depend on whom, licences, banned crates, the shape of
//! files, and that ARCHITECTURE.md names what is there. It reads the tree and `cargo metadata`,
//! and deliberately knows nothing of behaviour.

#![expect(
    clippy::unwrap_used,
    reason = "a tidy check stops at the first thing it cannot read"
)]

mod conformance;
mod dependencies;
mod files;
mod tree;
mod writes;
