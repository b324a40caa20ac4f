//! EndpointSlices of the API server → [`Endpoints`]. One task per namespace, or one for all.
//!
//! Without the right to list them Services are reached by their `ClusterIPs` alone, which is no error.

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Api, ResourceExt};
use kubebridge_proto::routes::{NamespaceState, PortProtocol};
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::endpoints::{Endpoints, Port, Slice};
use super::follow::{Need, Seen, follow};
use super::index::Scope;

/// The resource whose rights are needed.
const RESOURCE: &str = "endpointslices";

/// The label that names the Service of a slice.
const SERVICE: &str = "kubernetes.io/service-name";

/// Feeds the slices of a scope until shutdown.
pub async fn slices(
    cluster: Cluster,
    scope: Scope,
    endpoints: Arc<Endpoints>,
    shutdown: CancellationToken,
) {
    let namespaces = scope.clone();
    let api = move |client| -> Api<EndpointSlice> {
        match &namespaces {
            Scope::Namespace(namespace) => Api::namespaced(client, namespace),
            Scope::All => Api::all(client),
        }
    };
    endpoints.set_state(&scope, NamespaceState::Waiting);
    let mut feeder = Feeder {
        scope,
        endpoints,
        listed: Vec::new(),
        complete: false,
    };
    follow(cluster, api, Need::Optional(RESOURCE), shutdown, |seen| {
        feeder.see(seen);
    })
    .await;
}

struct Feeder {
    scope: Scope,
    endpoints: Arc<Endpoints>,
    listed: Vec<Slice>,
    /// Whether there has been a complete list.
    complete: bool,
}

impl Feeder {
    fn see(&mut self, seen: Seen<EndpointSlice>) {
        match seen {
            Seen::Restart => self.listed.clear(),
            Seen::Listed(object) => self.listed.extend(reduced(object)),
            Seen::Synced => {
                self.complete = true;
                let listed = std::mem::take(&mut self.listed);
                self.endpoints.reset(&self.scope, listed);
            }
            Seen::Changed(object) => {
                let (namespace, name) = (object.namespace(), object.name_any());
                match reduced(object) {
                    Some(slice) => self.endpoints.apply(slice),
                    None => self.endpoints.delete(&namespace.unwrap_or_default(), &name),
                }
            }
            Seen::Removed(object) => {
                let namespace = object.namespace().unwrap_or_default();
                self.endpoints.delete(&namespace, &object.name_any());
            }
            Seen::Forbidden { verb } => {
                // What was known may be somebody else's by now, and nobody tells.
                self.endpoints.reset(&self.scope, Vec::new());
                self.complete = false;
                let state = NamespaceState::Forbidden {
                    verb: verb.to_owned(),
                    resource: RESOURCE.to_owned(),
                };
                self.endpoints.set_state(&self.scope, state);
            }
            // What was known stays.
            Seen::Away { .. } => {}
            Seen::Recovered => {
                let state = match self.complete {
                    true => NamespaceState::Synced,
                    false => NamespaceState::Waiting,
                };
                self.endpoints.set_state(&self.scope, state);
            }
        }
    }
}

/// Reduces a slice; one without a Service, or of names instead of addresses, is left out.
fn reduced(object: EndpointSlice) -> Option<Slice> {
    let service = object.labels().get(SERVICE)?.clone();
    let (namespace, name) = (object.namespace()?, object.name_any());
    if object.address_type == "FQDN" {
        return None;
    }
    let mut addresses = Vec::new();
    for endpoint in object.endpoints.unwrap_or_default() {
        let conditions = endpoint.conditions;
        // Unknown counts as ready, as the API says.
        let ready = conditions.and_then(|known| known.ready).unwrap_or(true);
        let parsed = endpoint
            .addresses
            .iter()
            .filter_map(|text| text.parse::<IpAddr>().ok());
        addresses.extend(parsed.map(|address| (address.to_canonical(), ready)));
    }
    let ports = object.ports.unwrap_or_default();
    let ports = ports.into_iter().filter_map(|port| {
        let protocol = match port.protocol.as_deref() {
            None | Some("TCP") => PortProtocol::Tcp,
            Some("UDP") => PortProtocol::Udp,
            Some("SCTP") => PortProtocol::Sctp,
            Some(_) => return None,
        };
        let number = match port.port {
            None => None,
            Some(number) => Some(u16::try_from(number).ok()?),
        };
        Some(Port { protocol, number })
    });
    Some(Slice {
        ports: ports.collect(),
        namespace,
        name,
        service,
        addresses,
    })
}

#[cfg(test)]
mod tests {
    use super::super::index::ServiceKey;
    use super::*;

    fn object(text: &str) -> EndpointSlice {
        serde_saphyr::from_str(text).unwrap()
    }

    fn feeder() -> (Feeder, Arc<Endpoints>) {
        let endpoints = Arc::new(Endpoints::default());
        let feeder = Feeder {
            scope: Scope::Namespace("shop".to_owned()),
            endpoints: Arc::clone(&endpoints),
            listed: Vec::new(),
            complete: false,
        };
        (feeder, endpoints)
    }

    const AUTHORS: &str = "\
metadata: {name: authors-x7, namespace: shop, labels: {kubernetes.io/service-name: authors}}
addressType: IPv4
endpoints:
- {addresses: [10.244.1.5], conditions: {ready: true}}
- {addresses: [10.244.2.6], conditions: {ready: false}}
- {addresses: [10.244.2.7]}
ports:
- {name: http, port: 8080, protocol: TCP}
- {port: 53, protocol: UDP}
- {name: odd, port: 1, protocol: QUIC}
";

    #[test]
    fn a_slice_is_reduced_to_addresses_ports_and_readiness() {
        let slice = reduced(object(AUTHORS)).unwrap();
        assert_eq!(slice.service, "authors");
        let ready: Vec<_> = slice.addresses.iter().map(|(_, ready)| *ready).collect();
        assert_eq!(ready, [true, false, true]);
        let numbers: Vec<_> = slice.ports.iter().map(|port| port.number).collect();
        assert_eq!(numbers, [Some(8080), Some(53)]);
        let orphan = "metadata: {name: x, namespace: shop}\naddressType: IPv4\nendpoints: []\n";
        assert_eq!(reduced(object(orphan)), None);
        let names = AUTHORS.replace("IPv4", "FQDN");
        assert_eq!(reduced(object(&names)), None);
    }

    #[test]
    fn a_namespace_without_the_right_says_so_and_forgets_what_it_knew() {
        let (mut feeder, endpoints) = feeder();
        feeder.see(Seen::Listed(object(AUTHORS)));
        let key = ServiceKey {
            namespace: "shop".to_owned(),
            name: "authors".to_owned(),
        };
        assert!(endpoints.of(&key).is_empty());
        feeder.see(Seen::Synced);
        assert_eq!(endpoints.of(&key).len(), 3);
        assert_eq!(endpoints.state("shop"), NamespaceState::Synced);
        feeder.see(Seen::Away {
            cause: String::new(),
        });
        assert_eq!(endpoints.of(&key).len(), 3);
        feeder.see(Seen::Forbidden { verb: "list" });
        assert!(endpoints.of(&key).is_empty());
        let forbidden = NamespaceState::Forbidden {
            verb: "list".to_owned(),
            resource: "endpointslices".to_owned(),
        };
        assert_eq!(endpoints.state("shop"), forbidden);
        feeder.see(Seen::Recovered);
        assert_eq!(endpoints.state("shop"), NamespaceState::Waiting);
    }
}
