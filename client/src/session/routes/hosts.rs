//! Hosts outside the cluster's networks that are routed for as long as the answer was good that
//! named them.
//!
//! Pure: the time comes from outside, on the session's clock.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

/// The most hosts routed at once: far more than programs talk to, far less than a kernel takes.
pub(super) const MAX_HOSTS: usize = 1024;

/// The least time a host stays: a program resolves and then connects, maybe a while later. The
/// manager lets connections to resolved addresses through as long.
const SHORTEST: Duration = Duration::from_secs(60);

/// The longest time a host stays without being asked for again, as in the manager's cache.
const LONGEST: Duration = Duration::from_secs(30 * 60);

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    /// The name it was an answer for, the last one.
    pub(super) name: String,
    /// When it goes.
    pub(super) until: Instant,
}

/// The hosts routed now.
#[derive(Debug, Default)]
pub(super) struct Hosts(BTreeMap<IpAddr, Host>);

impl Hosts {
    /// Takes an answered address in, or gives it more time. The host that would go first makes
    /// room; `held` ones do not.
    pub(super) fn note(
        &mut self,
        address: IpAddr,
        name: &str,
        ttl: Duration,
        now: Instant,
        held: impl Fn(IpAddr) -> bool,
    ) {
        let until = now + ttl.clamp(SHORTEST, LONGEST);
        if let Some(host) = self.0.get_mut(&address) {
            host.until = host.until.max(until);
            name.clone_into(&mut host.name);
            return;
        }
        if self.0.len() >= MAX_HOSTS && !self.make_room(held) {
            tracing::warn!("too many hosts with connections: one more is not routed");
            return;
        }
        let name = name.to_owned();
        self.0.insert(address, Host { name, until });
    }

    fn make_room(&mut self, held: impl Fn(IpAddr) -> bool) -> bool {
        let free = self.0.iter().filter(|(address, _)| !held(**address));
        let first = free.min_by_key(|(_, host)| host.until);
        let first = first.map(|(address, _)| *address);
        first.is_some_and(|address| self.0.remove(&address).is_some())
    }

    /// Drops the hosts whose time is over, but for those that have connections.
    pub(super) fn expire(&mut self, now: Instant, held: impl Fn(IpAddr) -> bool) {
        self.0.retain(|address, host| {
            if host.until <= now && held(*address) {
                host.until = now + SHORTEST;
            }
            host.until > now
        });
    }

    /// Drops the hosts that may not be routed any more.
    pub(super) fn retain(&mut self, may: impl Fn(IpAddr) -> bool) {
        self.0.retain(|address, _| may(*address));
    }

    /// When the next one goes.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.0.values().map(|host| host.until).min()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (IpAddr, &Host)> {
        self.0.iter().map(|(address, host)| (*address, host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(number: u32) -> IpAddr {
        IpAddr::from((0xcb00_7100 + number).to_be_bytes())
    }

    fn nobody(_: IpAddr) -> bool {
        false
    }

    fn all(hosts: &Hosts) -> Vec<IpAddr> {
        hosts.iter().map(|(address, _)| address).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn f11_a_host_stays_for_the_time_of_its_answer_within_bounds() {
        let now = Instant::now();
        for (ttl, stays) in [(0, 60), (90, 90), (86_400, 1800)] {
            let mut hosts = Hosts::default();
            hosts.note(ip(1), "docs", Duration::from_secs(ttl), now, nobody);
            let end = now + Duration::from_secs(stays);
            assert_eq!(hosts.next_end(), Some(end), "{ttl}");
            hosts.expire(end - Duration::from_millis(1), nobody);
            assert_eq!(all(&hosts), [ip(1)], "{ttl}");
            hosts.expire(end, nobody);
            assert!(all(&hosts).is_empty(), "{ttl}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn f11_an_answer_again_gives_more_time_and_never_less() {
        let now = Instant::now();
        let mut hosts = Hosts::default();
        hosts.note(ip(1), "docs", Duration::from_secs(300), now, nobody);
        hosts.note(ip(1), "other", Duration::from_secs(1), now, nobody);
        assert_eq!(hosts.next_end(), Some(now + Duration::from_secs(300)));
        let later = now + Duration::from_secs(200);
        hosts.note(ip(1), "docs", Duration::from_secs(300), later, nobody);
        assert_eq!(hosts.next_end(), Some(later + Duration::from_secs(300)));
    }

    #[tokio::test(start_paused = true)]
    async fn f11_a_host_with_connections_outlives_its_answer() {
        let now = Instant::now();
        let mut hosts = Hosts::default();
        hosts.note(ip(1), "docs", Duration::ZERO, now, nobody);
        let end = now + SHORTEST;
        hosts.expire(end, |address| address == ip(1));
        assert_eq!(hosts.next_end(), Some(end + SHORTEST));
        hosts.expire(end + SHORTEST, nobody);
        assert!(all(&hosts).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn f11_hosts_are_bounded_and_the_one_that_goes_first_makes_room() {
        let now = Instant::now();
        let mut hosts = Hosts::default();
        for number in 0..MAX_HOSTS as u32 {
            let ttl = Duration::from_secs(u64::from(100 + number));
            hosts.note(ip(number), "docs", ttl, now, nobody);
        }
        let held = |address| address == ip(0);
        hosts.note(ip(5000), "docs", Duration::from_secs(500), now, held);
        let left = all(&hosts);
        assert_eq!(left.len(), MAX_HOSTS);
        assert!(left.contains(&ip(0)) && left.contains(&ip(5000)));
        assert!(!left.contains(&ip(1)));
        hosts.note(ip(5001), "docs", Duration::from_secs(500), now, |_| true);
        assert!(!all(&hosts).contains(&ip(5001)));
    }
}
