//! Which service mesh a namespace says it is in, for people whose connections are reset.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::core::PartialObjectMeta;

use super::{Cluster, LIST, Problem};

/// A service mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Istio.
    Istio,
    /// Linkerd.
    Linkerd,
    /// Kuma.
    Kuma,
}

/// What a namespace says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mesh {
    /// The mesh.
    pub kind: Kind,
    /// The label or annotation that says so.
    pub evidence: String,
}

/// Labels and annotations.
type Words = BTreeMap<String, String>;

impl Cluster {
    /// Reads which mesh a namespace is in; `None` if it says nothing of one.
    ///
    /// # Errors
    ///
    /// The user may not look, or the API server does not answer.
    pub async fn mesh_of(&self, namespace: &str) -> Result<Option<Mesh>, Problem> {
        let reading = self.ask("reading a namespace", LIST, |client| {
            let namespace = namespace.to_owned();
            async move {
                let all: Api<Namespace> = Api::all(client);
                all.get_metadata(&namespace).await
            }
        });
        let found: PartialObjectMeta<Namespace> = reading.await?;
        let metadata = found.metadata;
        Ok(mesh(
            &metadata.labels.unwrap_or_default(),
            &metadata.annotations.unwrap_or_default(),
        ))
    }
}

/// Reads labels and annotations. Pods may say otherwise for themselves.
fn mesh(labels: &Words, annotations: &Words) -> Option<Mesh> {
    let said = |words: &Words, key: &str, kind| {
        let value = words.get(key)?;
        let is_out = ["disabled", "false", "none", ""].contains(&value.as_str());
        (!is_out).then(|| Mesh {
            kind,
            evidence: format!("{key}={value}"),
        })
    };
    said(labels, "istio-injection", Kind::Istio)
        .or_else(|| said(labels, "istio.io/rev", Kind::Istio))
        .or_else(|| said(labels, "istio.io/dataplane-mode", Kind::Istio))
        .or_else(|| said(annotations, "linkerd.io/inject", Kind::Linkerd))
        .or_else(|| said(labels, "kuma.io/sidecar-injection", Kind::Kuma))
        .or_else(|| said(annotations, "kuma.io/sidecar-injection", Kind::Kuma))
}

impl Kind {
    /// The mesh as it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Istio => "Istio",
            Self::Linkerd => "Linkerd",
            Self::Kuma => "Kuma",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(some: &[(&str, &str)]) -> Words {
        let some = some.iter();
        some.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_namespace_says_by_labels_or_annotations_which_mesh_it_is_in() {
        for (labels, annotations, expected) in [
            (&[][..], &[][..], None),
            (&[("app", "shop")], &[], None),
            (&[("istio-injection", "enabled")], &[], Some(Kind::Istio)),
            (&[("istio-injection", "disabled")], &[], None),
            (&[("istio.io/rev", "1-24")], &[], Some(Kind::Istio)),
            (
                &[("istio.io/dataplane-mode", "ambient")],
                &[],
                Some(Kind::Istio),
            ),
            (
                &[],
                &[("linkerd.io/inject", "enabled")],
                Some(Kind::Linkerd),
            ),
            (
                &[("kuma.io/sidecar-injection", "enabled")],
                &[],
                Some(Kind::Kuma),
            ),
        ] {
            let found = mesh(&words(labels), &words(annotations));
            assert_eq!(found.map(|mesh| mesh.kind), expected, "{labels:?}");
        }
    }
}
