//! Who may connect to the manager, and how it is found and kept.

use serde_json::{Value, json};

use super::{HOME, MANAGER, metadata, selector};
use crate::install::settings::Settings;

pub(super) fn all(settings: &Settings) -> Vec<Value> {
    let mut bodies = vec![policy(settings)];
    if settings.dns_service {
        bodies.push(dns_service());
    }
    if settings.replicas >= 2 {
        bodies.push(budget());
    }
    bodies
}

/// Nothing may connect but the kubelet's probes and who scrapes metrics, and what was asked for.
/// A port-forward comes by the pod's loopback, which no policy is about.
fn policy(settings: &Settings) -> Value {
    // By number: not every network plugin knows ports by their names.
    let port = |protocol: &str, port: u16| json!({ "protocol": protocol, "port": port });
    let mut ports = vec![port("TCP", 7081)];
    if settings.dns_service {
        ports.extend([port("UDP", 1053), port("TCP", 1053)]);
    }
    if settings.tls_secret.is_some() {
        ports.push(port("TCP", 7080));
    }
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(MANAGER, HOME),
        "spec": {
            "podSelector": { "matchLabels": selector() },
            "policyTypes": ["Ingress"],
            "ingress": [{ "ports": ports }],
        },
    })
}

fn dns_service() -> Value {
    let port = |name: &str, protocol: &str| json!({ "name": name, "protocol": protocol, "port": 53, "targetPort": name });
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(MANAGER, HOME),
        "spec": {
            "selector": selector(),
            "ports": [port("dns", "UDP"), port("dns-tcp", "TCP")],
        },
    })
}

/// Of several managers one at a time is taken away.
fn budget() -> Value {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": metadata(MANAGER, HOME),
        "spec": {
            "maxUnavailable": 1,
            "selector": { "matchLabels": selector() },
        },
    })
}
