//! The DNS engine of both programs: search expansion, concurrent fan-out, single flight, cache, and servers.
//!
//! It speaks bytes and plain data only: what Services exist is told to it through a trait, and it
//! reads no configuration and touches no setting of the host.

mod access;
mod cache;
pub mod explain;
mod fanout;
mod flight;
pub mod forward;
mod framing;
mod health;
mod interpret;
pub mod loops;
pub mod message;
pub mod name;
mod policy;
pub mod records;
pub mod resolv_conf;
pub mod resolver;
mod rewrite;
mod search;
pub mod server;
mod settle;
pub mod split;
#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
pub mod upstream;
pub mod upstreams;
pub mod view;
