//! Where flows may go.

use std::net::IpAddr;

use kubebridge_platform::net::IpNet;
use tokio::time::Instant;

/// The addresses that the cluster has.
#[derive(Clone, Debug, Default)]
pub struct Reachable {
    prefixes: Vec<IpNet>,
}

/// A right to send to an address.
#[derive(Debug)]
pub struct Hold(());

impl Reachable {
    /// The addresses of these networks.
    #[must_use]
    pub fn new(prefixes: Vec<IpNet>) -> Self {
        Self { prefixes }
    }

    /// Lets a new flow to an address in, or not.
    pub fn admit(&self, address: IpAddr, _now: Instant) -> Option<Hold> {
        let has = self.prefixes.iter().any(|net| net.contains(address));
        has.then_some(Hold(()))
    }
}
