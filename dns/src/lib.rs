//! The DNS engine of both programs: search expansion, concurrent fan-out, single flight, cache, and servers.
//!
//! It speaks bytes and plain data only: what Services exist is told to it through a trait, and it
//! reads no configuration and touches no setting of the host.

mod framing;
pub mod message;
pub mod name;
pub mod resolv_conf;
pub mod server;
pub mod split;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
pub mod upstream;
