//! The laptop program: makes the names of a cluster resolve on this machine, and undoes it.
//!
//! Everything that touches the operating system is in `platform`, everything that speaks DNS in
//! `dns`; this crate decides what they do and when.

pub mod cli;
pub mod config;

pub mod background;
pub mod certs;
pub mod command;
pub mod connect;
pub mod demo;
pub mod helper;
pub mod install;
pub mod session;

pub mod access;
pub mod cluster;
pub mod control;
pub mod doctor;
pub mod flows;
pub mod forward;
pub mod inquiry;
pub mod local_dns;
pub mod netstack;
pub mod originals;
pub mod places;
pub mod probe;
pub mod proxy;
pub mod skew;
pub mod stale;
pub mod zones;

pub mod apply;
pub mod before;
pub mod reachable;
pub mod routes;

pub mod failure;
pub mod output;
pub mod progress;
pub mod status;
pub mod task;

#[cfg(test)]
mod test_util;
