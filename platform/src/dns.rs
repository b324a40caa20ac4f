//! The OS resolver: what can go wrong with it.

/// Why the OS resolver could not be read or set.
#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    /// The system bus could not be reached.
    #[error("connecting to the system bus")]
    Bus(#[source] zbus::Error),
}
