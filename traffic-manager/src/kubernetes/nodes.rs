//! The addresses and pod ranges of the nodes, where the manager may list them.
//!
//! Without that right both stay unknown; that is no error. Nodes are what nobody may dial, and
//! pod ranges what the laptop routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::{Api, ResourceExt};
use kubebridge_proto::cidr::Cidr;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::follow::{Need, Seen, follow};

/// What is known of the nodes; empty when nothing is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Their addresses, inner and outer.
    pub addresses: BTreeSet<IpAddr>,
    /// The ranges their pods have addresses of.
    pub pod_ranges: BTreeSet<Cidr>,
}

/// Follows the nodes until shutdown.
pub async fn nodes(
    cluster: Cluster,
    nodes: watch::Sender<Arc<Nodes>>,
    shutdown: CancellationToken,
) {
    let mut known = BTreeMap::new();
    let api: fn(_) -> Api<Node> = Api::all;
    follow(cluster, api, Need::Optional("nodes"), shutdown, |seen| {
        see(seen, &mut known, &nodes);
    })
    .await;
}

fn see(seen: Seen<Node>, known: &mut BTreeMap<String, Nodes>, nodes: &watch::Sender<Arc<Nodes>>) {
    match seen {
        Seen::Restart => return known.clear(),
        Seen::Listed(object) => {
            known.insert(object.name_any(), reduced(&object));
            return;
        }
        Seen::Changed(object) => drop(known.insert(object.name_any(), reduced(&object))),
        Seen::Removed(object) => drop(known.remove(&object.name_any())),
        Seen::Synced => {}
        // What was known stays.
        Seen::Forbidden { .. } | Seen::Away { .. } | Seen::Recovered => return,
    }
    let mut all = Nodes::default();
    for node in known.values() {
        all.addresses.extend(&node.addresses);
        all.pod_ranges.extend(&node.pod_ranges);
    }
    nodes.send_if_modified(|before| {
        let changed = **before != all;
        if changed {
            *before = Arc::new(all);
        }
        changed
    });
}

fn reduced(node: &Node) -> Nodes {
    let status = node.status.as_ref();
    let addresses = status.and_then(|status| status.addresses.as_ref());
    let spec = node.spec.as_ref();
    let one = spec.and_then(|spec| spec.pod_cidr.as_ref());
    let several = spec.and_then(|spec| spec.pod_cidrs.as_ref());
    Nodes {
        // Host names are among them.
        addresses: addresses
            .into_iter()
            .flatten()
            .filter_map(|address| address.address.parse::<IpAddr>().ok())
            .map(|address| address.to_canonical())
            .collect(),
        pod_ranges: several
            .into_iter()
            .flatten()
            .chain(one)
            .filter_map(|text| text.parse().ok())
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, address: &str, range: &str) -> Node {
        let yaml = format!(
            "metadata: {{name: {name}}}\nspec: {{podCIDR: {range}, podCIDRs: [{range}]}}\n\
             status: {{addresses: [{{type: InternalIP, address: {address}}}, \
             {{type: Hostname, address: {name}}}]}}\n"
        );
        serde_saphyr::from_str(&yaml).unwrap()
    }

    #[test]
    fn addresses_and_ranges_follow_the_nodes_and_stay_when_the_server_is_away() {
        let nodes = watch::Sender::new(Arc::default());
        let mut known = BTreeMap::new();
        let mut see = |seen| see(seen, &mut known, &nodes);
        see(Seen::Restart);
        see(Seen::Listed(node("a", "192.0.2.1", "10.244.0.0/24")));
        assert!(nodes.borrow().addresses.is_empty());
        see(Seen::Synced);
        see(Seen::Changed(node("b", "192.0.2.2", "10.244.1.0/24")));
        see(Seen::Away {
            cause: String::new(),
        });
        see(Seen::Forbidden { verb: "watch" });
        let texts = |nodes: &Nodes| {
            let addresses: Vec<_> = nodes.addresses.iter().map(ToString::to_string).collect();
            let ranges: Vec<_> = nodes.pod_ranges.iter().map(ToString::to_string).collect();
            (addresses.join(" "), ranges.join(" "))
        };
        let both = (
            "192.0.2.1 192.0.2.2".to_owned(),
            "10.244.0.0/24 10.244.1.0/24".to_owned(),
        );
        assert_eq!(texts(&nodes.borrow()), both);
        see(Seen::Removed(node("a", "192.0.2.1", "10.244.0.0/24")));
        assert_eq!(texts(&nodes.borrow()).0, "192.0.2.2");
    }
}
