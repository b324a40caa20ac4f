//! What opening sessions takes: an account in each namespace, and a Role to make tokens of it and
//! to reach the manager.
//!
//! The Roles are bound to nobody but the users and groups that were named.

use serde_json::{Value, json};

use super::{ACCESS, HOME, USER, metadata};
use crate::install::settings::Settings;

pub(super) fn of_users(settings: &Settings) -> Vec<Value> {
    let subjects = subjects(settings);
    let mut bodies = in_place(HOME, reach(), &subjects);
    for namespace in &settings.namespaces {
        bodies.push(account(namespace));
        bodies.extend(in_place(namespace, tokens(), &subjects));
    }
    bodies
}

/// The account whose tokens open a namespace; no pod runs as it, and it has no rights.
fn account(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(ACCESS, namespace),
        "automountServiceAccountToken": false,
    })
}

/// Reaching the manager: of `get` and `create` on port-forwards Kubernetes checks one, the other or
/// both, by its version.
fn reach() -> Value {
    json!([
        { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"] },
        { "apiGroups": [""], "resources": ["pods/portforward"], "verbs": ["get", "create"] },
    ])
}

fn tokens() -> Value {
    json!([{
        "apiGroups": [""],
        "resources": ["serviceaccounts/token"],
        "resourceNames": [ACCESS],
        "verbs": ["create"],
    }])
}

fn in_place(namespace: &str, rules: Value, subjects: &[Value]) -> Vec<Value> {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata(USER, namespace),
        "rules": rules,
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata(USER, namespace),
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": USER,
        },
        "subjects": subjects,
    });
    if subjects.is_empty() {
        vec![role]
    } else {
        vec![role, binding]
    }
}

fn subjects(settings: &Settings) -> Vec<Value> {
    let of = |kind: &'static str, names: &[String]| {
        let subject = |name: &String| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name });
        names.iter().map(subject).collect::<Vec<_>>()
    };
    [of("User", &settings.users), of("Group", &settings.groups)].concat()
}
