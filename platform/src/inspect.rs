//! Looking at this machine, for people who wonder what is wrong with it.
//!
//! Only reads: files, `/proc`, routes, systemd-resolved's settings. Needs no right beyond those of
//! whoever runs it; what it may not see is told as absent. What any of it means is not said here.

mod device;
mod encryption;
mod listeners;
mod network;
mod resolv_conf;

pub use device::{Device, ipv6_switched_off, link_mtu, tun_device};
pub use encryption::{Encryption, encryption};
pub use listeners::{Listener, listeners};
pub use network::{Rule, link_names, rules, way_to};
pub use resolv_conf::{ResolvConfFile, resolv_conf_file};

use std::io;
use std::path::Path;

use crate::sys::Sys;

/// Reads a file of the machine; `None` if it is not there.
///
/// # Errors
///
/// It is there and cannot be read.
pub fn file(sys: &Sys, absolute: &str) -> io::Result<Option<Vec<u8>>> {
    match std::fs::read(sys.path(Path::new(absolute))) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
