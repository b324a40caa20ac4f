//! Which addresses the session carries connections to: networks, and single hosts for a while.
//!
//! Pure. It is made by the session's routes, and asked by whoever takes packets from the link: what
//! is not in here is refused there, even if a packet arrives. How hosts get in is
//! [`answered`](HostRoutes).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use kubebridge_platform::net::IpNet;
use parking_lot::Mutex;
use tokio::time::Instant;

pub use answered::{Answered, HostRoutes};

mod answered;

/// The addresses a session carries connections to, as of now.
#[derive(Clone, Debug, Default)]
pub struct Reachable {
    /// Disjoint and in order.
    nets: Vec<IpNet>,
    /// Single hosts, and how long they stay.
    hosts: BTreeMap<IpAddr, Instant>,
    /// Answered addresses that may not be routed: there is no use in asking again.
    refused: BTreeSet<IpAddr>,
    holds: Holds,
}

/// How many connections there are to single hosts, so that none loses its route.
#[derive(Clone, Debug, Default)]
pub struct Holds(Arc<Mutex<BTreeMap<IpAddr, usize>>>);

/// A right to send to an address, to be kept as long as the connection lives.
#[derive(Debug)]
#[must_use = "a host that nobody holds is withdrawn when its time is over"]
pub struct Hold(Option<(IpAddr, Holds)>);

impl Reachable {
    /// Makes the set of these networks, which are disjoint, and hosts.
    #[must_use]
    pub fn new(mut nets: Vec<IpNet>, hosts: BTreeMap<IpAddr, Instant>, holds: Holds) -> Self {
        nets.sort_unstable();
        Self {
            nets,
            hosts,
            refused: BTreeSet::new(),
            holds,
        }
    }

    /// Adds what was asked for and is somebody else's.
    #[must_use]
    pub fn refusing(self, refused: BTreeSet<IpAddr>) -> Self {
        Self { refused, ..self }
    }

    /// Tells whether the address was asked for in vain.
    #[must_use]
    pub fn refuses(&self, address: IpAddr) -> bool {
        self.refused.contains(&address)
    }

    /// Tells whether a network of the set has the address.
    #[must_use]
    pub fn covers(&self, address: IpAddr) -> bool {
        let full = if address.is_ipv4() { 32 } else { 128 };
        let Ok(host) = IpNet::new(address, full) else {
            return false;
        };
        let after = self.nets.partition_point(|net| *net <= host);
        let before = after.checked_sub(1).and_then(|place| self.nets.get(place));
        before.is_some_and(|net| net.contains(address))
    }

    /// Tells until when a single host is in the set.
    #[must_use]
    pub fn host_until(&self, address: IpAddr) -> Option<Instant> {
        self.hosts.get(&address).copied()
    }

    /// Lets a new connection to an address in, or not.
    pub fn admit(&self, address: IpAddr, now: Instant) -> Option<Hold> {
        if self.covers(address) {
            return Some(Hold(None));
        }
        let until = self.hosts.get(&address)?;
        (now < *until || self.holds.has(address)).then(|| self.holds.hold(address))
    }

    /// Returns the networks, in order.
    #[must_use]
    pub fn nets(&self) -> &[IpNet] {
        &self.nets
    }
}

impl Holds {
    /// Tells whether there is a connection to the host.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        self.0.lock().contains_key(&address)
    }

    fn hold(&self, address: IpAddr) -> Hold {
        *self.0.lock().entry(address).or_insert(0) += 1;
        Hold(Some((address, self.clone())))
    }

    fn release(&self, address: IpAddr) {
        let mut held = self.0.lock();
        if let Some(count) = held.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                held.remove(&address);
            }
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some((address, holds)) = self.0.take() {
            holds.release(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn reachable(nets: &[&str], hosts: &[(&str, Instant)], holds: &Holds) -> Reachable {
        Reachable::new(
            nets.iter().map(|text| text.parse().unwrap()).collect(),
            hosts
                .iter()
                .map(|(text, until)| (ip(text), *until))
                .collect(),
            holds.clone(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn f11_networks_always_and_hosts_for_their_time_are_let_in() {
        let now = Instant::now();
        let later = now + Duration::from_secs(60);
        let nets = [
            "10.244.0.0/16",
            "10.96.0.0/17",
            "10.96.128.0/32",
            "fd00::/112",
        ];
        let set = reachable(&nets, &[("203.0.113.7", later)], &Holds::default());
        for (address, let_in) in [
            ("10.96.0.0", true),
            ("10.96.127.255", true),
            ("10.96.128.0", true),
            ("10.96.128.1", false),
            ("10.95.255.255", false),
            ("10.244.255.255", true),
            ("fd00::ffff", true),
            ("fd00::1:0", false),
            ("::", false),
            ("255.255.255.255", false),
            ("203.0.113.7", true),
            ("203.0.113.8", false),
        ] {
            assert_eq!(set.admit(ip(address), now).is_some(), let_in, "{address}");
        }
        assert!(set.admit(ip("203.0.113.7"), later).is_none());
        assert!(set.admit(ip("10.96.0.1"), later).is_some());
        assert!(Reachable::default().admit(ip("10.96.0.1"), now).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn f11_a_host_with_connections_is_held() {
        let (now, holds) = (Instant::now(), Holds::default());
        let set = reachable(
            &[],
            &[("203.0.113.7", now + Duration::from_secs(1))],
            &holds,
        );
        let one = set.admit(ip("203.0.113.7"), now).unwrap();
        let two = set.admit(ip("203.0.113.7"), now).unwrap();
        drop(one);
        assert!(holds.has(ip("203.0.113.7")));
        let past = now + Duration::from_secs(2);
        let three = set.admit(ip("203.0.113.7"), past);
        assert!(three.is_some());
        drop((two, three));
        assert!(!holds.has(ip("203.0.113.7")));
        assert!(set.admit(ip("203.0.113.7"), past).is_none());
    }
}
