//! Where a traffic-manager that was started with port 0 listens, read from its log.
//!
//! For programs that start one as a child of their own; a [`Daemon`](crate::daemon::Daemon) has its
//! log in a file.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::ChildStderr,
};

use anyhow::{Context, Result, bail};

/// Reads the addresses of listeners, given in the order in which the manager names them, and keeps
/// reading so that its log never blocks it.
pub fn addresses<const COUNT: usize>(
    stderr: ChildStderr,
    listeners: [&str; COUNT],
) -> Result<[SocketAddr; COUNT]> {
    let mut lines = BufReader::new(stderr).lines();
    let mut found = [SocketAddr::from(([0, 0, 0, 0], 0)); COUNT];
    for (listener, address) in listeners.iter().zip(&mut found) {
        *address = address_of(&mut lines, listener)?;
    }
    std::thread::spawn(move || lines.for_each(drop));
    Ok(found)
}

fn address_of(
    lines: &mut impl Iterator<Item = std::io::Result<String>>,
    listener: &str,
) -> Result<SocketAddr> {
    for line in lines {
        let line = line?;
        if line.contains(&format!("listener=\"{listener}\"")) {
            let (_, address) = line.split_once("address=").context("no address")?;
            return Ok(address.trim().parse()?);
        }
    }
    bail!("the manager ended")
}
