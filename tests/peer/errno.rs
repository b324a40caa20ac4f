//! Names of the errors that a network gives.

use std::io::{self, ErrorKind};

/// The name, as in `errno.h`, of what a person would tell apart.
pub(crate) fn name(error: &io::Error) -> String {
    let known = match error.kind() {
        ErrorKind::ConnectionRefused => "ECONNREFUSED",
        ErrorKind::ConnectionReset => "ECONNRESET",
        ErrorKind::HostUnreachable => "EHOSTUNREACH",
        ErrorKind::NetworkUnreachable => "ENETUNREACH",
        ErrorKind::TimedOut => "ETIMEDOUT",
        ErrorKind::AddrNotAvailable => "EADDRNOTAVAIL",
        ErrorKind::BrokenPipe => "EPIPE",
        ErrorKind::PermissionDenied => "EACCES",
        _ => return error.to_string(),
    };
    known.to_owned()
}
