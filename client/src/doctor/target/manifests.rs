//! What to apply in the cluster so that a way is open. Nothing is applied by us.

use std::fmt::Write;

use crate::install::settings::HOME;

/// The label of the manager's pods, as `install` makes them.
const MANAGER: &str = "app.kubernetes.io/name: traffic-manager";

/// A NetworkPolicy that admits the manager's pods to all pods of a namespace; where other policies
/// are, it adds to what they admit.
pub(super) fn network_policy(namespace: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: admit-kubebridge
  namespace: {namespace}
spec:
  podSelector: {{}}
  policyTypes: [Ingress]
  ingress:
  - from:
    - namespaceSelector:
        matchLabels: {{kubernetes.io/metadata.name: {HOME}}}
      podSelector:
        matchLabels: {{{MANAGER}}}
"
    )
}

/// A `PeerAuthentication` of Istio that lets clients without a certificate in.
pub(super) fn peer_authentication(namespace: &str, service: &str) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write!(
        text,
        "apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata:
  name: admit-kubebridge-{service}
  namespace: {namespace}
spec:
  selector:
    matchLabels: {{app: {service}}}  # the labels of the service's pods
  mtls: {{mode: PERMISSIVE}}
"
    );
    text
}
