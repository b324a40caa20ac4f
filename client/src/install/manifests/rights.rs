//! What the manager may do in the cluster: read, and nothing else.

use serde_json::{Value, json};

use super::{HOME, MANAGER, READER, labels, metadata};
use crate::install::settings::{Scope, Settings};

/// Every verb the manager has.
const READ: [&str; 2] = ["list", "watch"];

/// Roles and their bindings: in each namespace, or for the whole cluster.
pub(super) fn of_manager(settings: &Settings) -> Vec<Value> {
    match settings.scope {
        Scope::Namespaced => settings
            .namespaces
            .iter()
            .flat_map(|namespace| [role(namespace), binding(namespace)])
            .collect(),
        Scope::ClusterWide => vec![cluster_role(), cluster_binding()],
    }
}

fn role(namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(READER, namespace),
        "rules": in_namespaces(),
    })
}

fn binding(namespace: &str) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(READER, namespace),
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": READER,
        },
        "subjects": [subject()],
    })
}

fn cluster_role() -> Value {
    let mut rules = in_namespaces();
    rules.extend([
        rule("", "namespaces"),
        rule("", "nodes"),
        rule("networking.k8s.io", "servicecidrs"),
        json!({
            "nonResourceURLs": ["/.well-known/openid-configuration", "/openid/v1/jwks"],
            "verbs": ["get"],
        }),
    ]);
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": READER, "labels": labels() },
        "rules": rules,
    })
}

fn cluster_binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": READER, "labels": labels() },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER,
        },
        "subjects": [subject()],
    })
}

fn in_namespaces() -> Vec<Value> {
    vec![
        rule("", "services"),
        rule("discovery.k8s.io", "endpointslices"),
    ]
}

fn rule(group: &str, resource: &str) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": READ })
}

fn subject() -> Value {
    json!({ "kind": "ServiceAccount", "name": MANAGER, "namespace": HOME })
}
