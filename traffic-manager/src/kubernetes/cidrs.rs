//! The ranges of `ClusterIPs`, where the manager may list `ServiceCIDRs` (Kubernetes 1.33 and later).
//!
//! Without that right, or on an older cluster, they stay unknown; that is no error.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::networking::v1::ServiceCIDR;
use kube::{Api, ResourceExt};
use kubebridge_proto::cidr::Cidr;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::cluster::Cluster;
use super::follow::{Need, Seen, follow};

/// Ranges of `ClusterIPs`; empty when not known.
pub type Ranges = Arc<BTreeSet<Cidr>>;

/// Follows the ranges until shutdown.
pub async fn service_cidrs(
    cluster: Cluster,
    ranges: watch::Sender<Ranges>,
    shutdown: CancellationToken,
) {
    let mut objects = BTreeMap::new();
    let api: fn(_) -> Api<ServiceCIDR> = Api::all;
    follow(
        cluster,
        api,
        Need::Optional("servicecidrs"),
        shutdown,
        |seen| {
            see(seen, &mut objects, &ranges);
        },
    )
    .await;
}

fn see(
    seen: Seen<ServiceCIDR>,
    objects: &mut BTreeMap<String, Vec<Cidr>>,
    ranges: &watch::Sender<Ranges>,
) {
    match seen {
        Seen::Restart => return objects.clear(),
        Seen::Listed(object) => {
            objects.insert(object.name_any(), cidrs(object));
            return;
        }
        Seen::Changed(object) => drop(objects.insert(object.name_any(), cidrs(object))),
        Seen::Removed(object) => drop(objects.remove(&object.name_any())),
        Seen::Synced => {}
        // What was known stays.
        Seen::Forbidden { .. } | Seen::Away { .. } | Seen::Recovered => return,
    }
    ranges.send_replace(Arc::new(objects.values().flatten().copied().collect()));
}

/// Returns the ranges of an object; what is no range is left out.
fn cidrs(object: ServiceCIDR) -> Vec<Cidr> {
    let texts = object.spec.and_then(|spec| spec.cidrs).unwrap_or_default();
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str, cidrs: &str) -> ServiceCIDR {
        let yaml = format!("metadata: {{name: {name}}}\nspec: {{cidrs: {cidrs}}}\n");
        serde_saphyr::from_str(&yaml).unwrap()
    }

    fn texts(ranges: &watch::Sender<Ranges>) -> Vec<String> {
        ranges.borrow().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ranges_follow_the_objects_and_stay_when_the_server_is_away() {
        let ranges = watch::Sender::new(Ranges::default());
        let mut objects = BTreeMap::new();
        let mut see = |seen| see(seen, &mut objects, &ranges);
        see(Seen::Restart);
        see(Seen::Listed(object(
            "kubernetes",
            "[10.96.0.0/16, 'fd00:10::/112', nonsense]",
        )));
        assert_eq!(texts(&ranges), [""; 0]);
        see(Seen::Synced);
        assert_eq!(texts(&ranges), ["10.96.0.0/16", "fd00:10::/112"]);
        see(Seen::Changed(object("more", "[10.112.0.0/16]")));
        see(Seen::Away {
            cause: String::new(),
        });
        see(Seen::Forbidden { verb: "watch" });
        assert_eq!(
            texts(&ranges),
            ["10.96.0.0/16", "10.112.0.0/16", "fd00:10::/112"]
        );
        see(Seen::Removed(object("kubernetes", "[]")));
        assert_eq!(texts(&ranges), ["10.112.0.0/16"]);
    }
}
