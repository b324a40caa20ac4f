//! What the machine gives up when its user says so: addresses of a route that is wider than what the
//! session wants, a VPN's `10.0.0.0/8` say.
//!
//! Pure. Everything else that is taken stays so: local networks, gateways, name servers, the way to
//! the cluster, SSH peers, and routes that are as narrow as what is wanted or narrower.

use super::set::AddressSet;
use super::{Overlap, Taken, TakenNet, Why, overlap};
use crate::net::IpNet;

/// The most networks that are taken from wider routes: what a person writes down.
pub const MOST_GIVEN: usize = 64;

impl Taken {
    /// What is still taken when the user has `given` these networks away.
    #[must_use]
    pub fn giving(self, given: &[IpNet]) -> Self {
        let left = |one: TakenNet| -> Vec<TakenNet> {
            let gone: Vec<_> = given.iter().filter(|net| is_given(net, &one)).collect();
            if gone.is_empty() {
                return vec![one];
            }
            let rest = AddressSet::of([&one.net]).without(&AddressSet::of(gone));
            let part = |net| TakenNet { net, ..one.clone() };
            rest.nets().into_iter().map(part).collect()
        };
        Self {
            nets: self.nets.into_iter().flat_map(left).collect(),
            no_ipv6: self.no_ipv6,
        }
    }

    /// Lists which given network is taken from which route.
    #[must_use]
    pub fn given_up(&self, given: &[IpNet]) -> Vec<Overlap> {
        let pairs = self.nets.iter().flat_map(|one| {
            let gone = given.iter().filter(|net| is_given(net, one));
            gone.map(|net| overlap(net, one))
        });
        let mut all: Vec<_> = pairs.collect();
        all.sort();
        all.dedup();
        all
    }
}

/// Only a route that was there before, and only one that is wider: of two that are alike nobody can
/// say which a packet takes.
fn is_given(net: &IpNet, one: &TakenNet) -> bool {
    one.why == Why::Route && one.net.overlaps(net) && one.net.prefix() < net.prefix()
}
