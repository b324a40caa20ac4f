//! The addresses behind Services, from the EndpointSlices of the namespaces served. Pure: no IO.
//!
//! Kept is what an egress decision and `trace` need: addresses, ports, readiness. A namespace whose
//! slices may not be listed has a state that says so; its Services are then known by `ClusterIP` alone.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use kubebridge_proto::routes::{NamespaceState, PortProtocol};
use parking_lot::RwLock;

use super::index::{Scope, ServiceKey};

/// One slice, reduced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The Service it belongs to, in the same namespace.
    pub service: String,
    /// The addresses, and whether each is ready.
    pub addresses: Vec<(IpAddr, bool)>,
    /// The ports of every address.
    pub ports: Vec<Port>,
}

/// A port of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// The protocol.
    pub protocol: PortProtocol,
    /// The number; `None` for all.
    pub number: Option<u16>,
}

/// A Service that has an address among its endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct At {
    /// The Service.
    pub service: ServiceKey,
    /// The ports it has there.
    pub ports: Vec<Port>,
}

/// An endpoint of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Whether it takes connections.
    pub ready: bool,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// The endpoints of every namespace served.
#[derive(Debug)]
pub struct Endpoints {
    inner: RwLock<Inner>,
}

type SliceKey = (String, String);

#[derive(Debug)]
struct Inner {
    slices: BTreeMap<SliceKey, Slice>,
    by_address: BTreeMap<IpAddr, BTreeSet<SliceKey>>,
    by_service: BTreeMap<ServiceKey, BTreeSet<SliceKey>>,
    states: BTreeMap<String, NamespaceState>,
    elsewhere: NamespaceState,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self {
            inner: RwLock::new(Inner {
                slices: BTreeMap::new(),
                by_address: BTreeMap::new(),
                by_service: BTreeMap::new(),
                states: BTreeMap::new(),
                elsewhere: NamespaceState::NoSource,
            }),
        }
    }
}

impl Endpoints {
    /// Adds or replaces a slice.
    pub fn apply(&self, slice: Slice) {
        self.inner.write().put(slice);
    }

    /// Removes a slice.
    pub fn delete(&self, namespace: &str, name: &str) {
        let key = (namespace.to_owned(), name.to_owned());
        self.inner.write().remove(&key);
    }

    /// Replaces the slices of a scope in one step.
    pub fn reset(&self, scope: &Scope, slices: Vec<Slice>) {
        let mut inner = self.inner.write();
        let covered = |key: &&SliceKey| match scope {
            Scope::Namespace(namespace) => key.0 == *namespace,
            Scope::All => true,
        };
        let before: Vec<_> = inner.slices.keys().filter(covered).cloned().collect();
        before.iter().for_each(|key| inner.remove(key));
        slices.into_iter().for_each(|slice| inner.put(slice));
        inner.set_state(scope, NamespaceState::Synced);
    }

    /// Says where the namespaces of a scope stand; what is known stays.
    pub fn set_state(&self, scope: &Scope, state: NamespaceState) {
        self.inner.write().set_state(scope, state);
    }

    /// Returns where a namespace stands.
    #[must_use]
    pub fn state(&self, namespace: &str) -> NamespaceState {
        let inner = self.inner.read();
        let state = inner.states.get(namespace);
        state.unwrap_or(&inner.elsewhere).clone()
    }

    /// Returns the Services that have an address among their endpoints.
    #[must_use]
    pub fn at(&self, address: IpAddr) -> Vec<At> {
        let inner = self.inner.read();
        let keys = inner.by_address.get(&address).into_iter().flatten();
        let slices = keys.filter_map(|key| inner.slices.get(key));
        slices
            .map(|slice| At {
                service: slice.service(),
                ports: slice.ports.clone(),
            })
            .collect()
    }

    /// Returns the endpoints of a Service.
    #[must_use]
    pub fn of(&self, service: &ServiceKey) -> Vec<Endpoint> {
        let inner = self.inner.read();
        let keys = inner.by_service.get(service).into_iter().flatten();
        let slices = keys.filter_map(|key| inner.slices.get(key));
        let endpoints = slices.flat_map(|slice| {
            slice.addresses.iter().map(|(address, ready)| Endpoint {
                address: *address,
                ready: *ready,
                ports: slice.ports.clone(),
            })
        });
        endpoints.collect()
    }

    /// Counts the slices.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.read().slices.len()
    }

    /// Tells whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl At {
    /// Says whether a port is one of these; without a port any is.
    #[must_use]
    pub fn takes(&self, protocol: Option<PortProtocol>, number: Option<u16>) -> bool {
        let (Some(protocol), Some(number)) = (protocol, number) else {
            return true;
        };
        let mut ports = self.ports.iter();
        ports.any(|port| {
            port.protocol == protocol && port.number.is_none_or(|of_port| of_port == number)
        })
    }
}

impl Slice {
    fn key(&self) -> SliceKey {
        (self.namespace.clone(), self.name.clone())
    }

    fn service(&self) -> ServiceKey {
        ServiceKey {
            namespace: self.namespace.clone(),
            name: self.service.clone(),
        }
    }
}

impl Inner {
    fn put(&mut self, slice: Slice) {
        let key = slice.key();
        self.remove(&key);
        for (address, _) in &slice.addresses {
            let keys = self.by_address.entry(*address).or_default();
            keys.insert(key.clone());
        }
        let keys = self.by_service.entry(slice.service()).or_default();
        keys.insert(key.clone());
        self.slices.insert(key, slice);
    }

    fn remove(&mut self, key: &SliceKey) {
        let Some(slice) = self.slices.remove(key) else {
            return;
        };
        for (address, _) in &slice.addresses {
            forget(&mut self.by_address, address, key);
        }
        forget(&mut self.by_service, &slice.service(), key);
    }

    fn set_state(&mut self, scope: &Scope, state: NamespaceState) {
        match scope {
            Scope::Namespace(namespace) => drop(self.states.insert(namespace.clone(), state)),
            Scope::All => self.elsewhere = state,
        }
    }
}

fn forget<K: Ord>(map: &mut BTreeMap<K, BTreeSet<SliceKey>>, at: &K, key: &SliceKey) {
    if let Some(keys) = map.get_mut(at) {
        keys.remove(key);
        if keys.is_empty() {
            map.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(namespace: &str, name: &str, service: &str, addresses: &[&str]) -> Slice {
        Slice {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            service: service.to_owned(),
            addresses: addresses
                .iter()
                .map(|text| (text.parse().unwrap(), true))
                .collect(),
            ports: vec![Port {
                protocol: PortProtocol::Tcp,
                number: Some(8080),
            }],
        }
    }

    fn services(endpoints: &Endpoints, address: &str) -> Vec<String> {
        let at = endpoints.at(address.parse().unwrap());
        at.into_iter().map(|at| at.service.name).collect()
    }

    #[test]
    fn an_address_is_found_in_every_slice_that_has_it_and_in_no_other() {
        let endpoints = Endpoints::default();
        endpoints.apply(slice("shop", "a-1", "a", &["10.1.0.1", "10.1.0.2"]));
        endpoints.apply(slice("shop", "b-1", "b", &["10.1.0.2"]));
        assert_eq!(services(&endpoints, "10.1.0.2"), ["a", "b"]);
        endpoints.apply(slice("shop", "a-1", "a", &["10.1.0.3"]));
        assert_eq!(services(&endpoints, "10.1.0.2"), ["b"]);
        assert_eq!(services(&endpoints, "10.1.0.1"), [""; 0]);
        endpoints.delete("shop", "b-1");
        assert_eq!(services(&endpoints, "10.1.0.2"), [""; 0]);
        assert_eq!(endpoints.len(), 1);
        assert_eq!(endpoints.inner.read().by_address.len(), 1);
        assert_eq!(endpoints.inner.read().by_service.len(), 1);
    }

    #[test]
    fn a_list_replaces_its_own_scope_alone_and_makes_it_synced() {
        let endpoints = Endpoints::default();
        let shop = Scope::Namespace("shop".to_owned());
        endpoints.apply(slice("shop", "a-1", "a", &["10.1.0.1"]));
        endpoints.apply(slice("prod", "p-1", "p", &["10.1.0.9"]));
        assert_eq!(endpoints.state("shop"), NamespaceState::NoSource);
        endpoints.reset(&shop, vec![slice("shop", "b-1", "b", &["10.1.0.2"])]);
        assert_eq!(services(&endpoints, "10.1.0.1"), [""; 0]);
        assert_eq!(services(&endpoints, "10.1.0.2"), ["b"]);
        assert_eq!(services(&endpoints, "10.1.0.9"), ["p"]);
        assert_eq!(endpoints.state("shop"), NamespaceState::Synced);
        assert_eq!(endpoints.state("prod"), NamespaceState::NoSource);
    }

    #[test]
    fn a_slice_without_a_number_takes_every_port_of_its_protocol() {
        let mut open = slice("shop", "a-1", "a", &["10.1.0.1"]);
        open.ports[0].number = None;
        let endpoints = Endpoints::default();
        endpoints.apply(open);
        let at = endpoints.at("10.1.0.1".parse().unwrap());
        assert!(at[0].takes(Some(PortProtocol::Tcp), Some(1)));
        assert!(!at[0].takes(Some(PortProtocol::Udp), Some(1)));
        assert!(at[0].takes(None, None));
    }
}
