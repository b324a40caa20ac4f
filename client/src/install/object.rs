//! A Kubernetes object as plain data, and what it is called. Pure; knows only the kinds we make.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What an object is: enough to find it in a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// `v1`, `apps/v1`, …
    pub api_version: String,
    /// `Deployment`, …
    pub kind: String,
    /// Where it is; `None` for objects of the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

impl Identity {
    /// The group of its API; empty for the core.
    #[must_use]
    pub fn group(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or("", |(group, _)| group)
    }

    /// The version of its API.
    #[must_use]
    pub fn version(&self) -> &str {
        self.api_version
            .split_once('/')
            .map_or(self.api_version.as_str(), |(_, version)| version)
    }

    /// The name of the resource in URLs and in rights.
    #[must_use]
    pub fn resource(&self) -> String {
        let lower = self.kind.to_ascii_lowercase();
        match lower.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{lower}s"),
        }
    }

    /// `Role shop/kubebridge-user`, without what it is.
    #[must_use]
    pub fn place(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.clone(),
        }
    }
}

/// `Role shop/kubebridge-user`.
impl fmt::Display for Identity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind, self.place())
    }
}

/// An object with its name beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// What it is.
    pub identity: Identity,
    /// All of it.
    pub body: Value,
}

impl Object {
    /// Reads what an object says of itself; `None` for what is no object.
    #[must_use]
    pub fn read(body: Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let identity = Identity {
            api_version: text(&body["apiVersion"])?,
            kind: text(&body["kind"])?,
            namespace: text(&body["metadata"]["namespace"]),
            name: text(&body["metadata"]["name"])?,
        };
        Some(Self { identity, body })
    }

    /// The same with one more label.
    #[must_use]
    pub fn labelled(mut self, label: &str, value: &str) -> Self {
        self.body["metadata"]["labels"][label] = value.into();
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_is_known_by_what_it_says_of_itself() {
        let policy = Object::read(json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "traffic-manager", "namespace": "kubebridge"},
        }))
        .unwrap();
        let identity = policy.identity;
        assert_eq!(
            identity.to_string(),
            "NetworkPolicy kubebridge/traffic-manager"
        );
        assert_eq!(identity.group(), "networking.k8s.io");
        assert_eq!(identity.version(), "v1");
        assert_eq!(identity.resource(), "networkpolicies");

        let home = Object::read(json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubebridge"},
        }))
        .unwrap();
        let identity = home.identity;
        assert_eq!(identity.to_string(), "Namespace kubebridge");
        assert_eq!(identity.group(), "");
        assert_eq!(identity.resource(), "namespaces");

        assert_eq!(Object::read(json!({"kind": "Role"})), None);
    }
}
