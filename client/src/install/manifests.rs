//! The manifests of an installation: the one source that the commands, `deploy/`, the Helm chart
//! and `docs/rbac.md` are made from or compared with.
//!
//! Pure: the same settings give the same objects in the same order, which is the order to apply
//! them in. Names no Kubernetes type; asks no cluster.

mod access;
mod network;
mod pod;
mod rights;

use serde_json::{Value, json};

use super::object::Object;
use super::settings::{HOME, Settings};

/// What the manager and all that belongs to it alone is called.
pub const MANAGER: &str = "traffic-manager";

/// Our part of names of objects that stand beside other people's.
pub const READER: &str = "kubebridge-traffic-manager";

/// The Role of users.
pub const USER: &str = "kubebridge-user";

/// The account that stands for the access to its namespace.
pub const ACCESS: &str = "kubebridge-access";

/// The label that says who made an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// Renders an installation.
///
/// # Errors
///
/// The settings cannot be installed.
pub fn render(settings: &Settings) -> Result<Vec<Object>, String> {
    let mut bodies = vec![namespace(), account()];
    bodies.extend(rights::of_manager(settings));
    bodies.extend(access::of_users(settings));
    bodies.extend(network::all(settings));
    bodies.push(pod::deployment(settings)?);
    let objects = bodies.into_iter().map(Object::read);
    Ok(objects
        .map(|object| object.expect("every body has kind and name"))
        .collect())
}

/// The manifests as YAML documents.
///
/// # Errors
///
/// They cannot be written.
pub fn yaml(objects: &[Object]) -> anyhow::Result<String> {
    let mut text = String::new();
    for object in objects {
        let document = serde_saphyr::to_string(&object.body)?;
        text.push_str("---\n");
        text.push_str(&document);
    }
    Ok(text)
}

/// The namespace of the manager, where only pods without privileges are let in.
fn namespace() -> Value {
    let level = "restricted";
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": HOME,
            "labels": {
                "app.kubernetes.io/part-of": "kubebridge",
                "pod-security.kubernetes.io/enforce": level,
                "pod-security.kubernetes.io/audit": level,
                "pod-security.kubernetes.io/warn": level,
            },
        },
    })
}

fn account() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(MANAGER, HOME),
        // The pod says itself that it wants the token.
        "automountServiceAccountToken": false,
    })
}

/// The metadata of an object of a namespace.
fn metadata(name: &str, namespace: &str) -> Value {
    json!({ "name": name, "namespace": namespace, "labels": labels() })
}

/// The labels that every object has.
pub(super) fn labels() -> Value {
    json!({ "app.kubernetes.io/name": MANAGER, "app.kubernetes.io/part-of": "kubebridge" })
}

/// Which pods are the manager's.
fn selector() -> Value {
    json!({ "app.kubernetes.io/name": MANAGER })
}

#[cfg(test)]
mod tests;
