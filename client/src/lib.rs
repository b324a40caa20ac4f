//! The laptop program: makes the names of a cluster resolve on this machine, and undoes it.
//!
//! Everything that touches the operating system is in `platform`, everything that speaks DNS in
//! `dns`; this crate decides what they do and when. Nothing here is specific to an operating
//! system but the control socket.

pub mod apply;
pub mod cli;
pub mod config;
pub mod control;
pub mod failure;
pub mod routes;
pub mod session;
pub mod zones;

#[cfg(test)]
mod test_util;
