//! The DNS engine of both programs: search expansion, concurrent fan-out, single flight, cache, and servers.
//!
//! It speaks bytes and plain data only: what Services exist is told to it through a trait, and it
//! reads no configuration and touches no setting of the host.

pub mod message;
pub mod name;
pub mod upstream;
