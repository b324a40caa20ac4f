//! Where flows may go.

use std::net::IpAddr;

use kubebridge_platform::net::IpNet;

/// The addresses that the cluster has.
#[derive(Clone, Debug, Default)]
pub struct Reachable {
    prefixes: Vec<IpNet>,
}

impl Reachable {
    /// The addresses of these networks.
    #[must_use]
    pub fn new(prefixes: Vec<IpNet>) -> Self {
        Self { prefixes }
    }

    /// Whether a flow may go there.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.prefixes.iter().any(|net| net.contains(address))
    }
}
