//! Whose an object in the cluster is: ours, or somebody's who would undo what we write. Pure.

use serde_json::Value;

/// Our name among those who write fields.
pub const FIELD_MANAGER: &str = "kubebridge";

/// Names who else an object belongs to; `None` when it is ours.
///
/// The tools that apply a source of their own again and again are known by what they put on
/// objects; all others by being the only ones who have written it.
#[must_use]
pub fn foreign(live: &Value) -> Option<String> {
    by_helm(live)
        .or_else(|| by_argo(live))
        .or_else(|| by_flux(live))
        .or_else(|| by_field_manager(live))
}

/// Whether we have applied the object at some time.
#[must_use]
pub fn is_applied_by_us(live: &Value) -> bool {
    managers(live).any(|(name, operation)| name == FIELD_MANAGER && operation == "Apply")
}

fn by_helm(live: &Value) -> Option<String> {
    let release = annotation(live, "meta.helm.sh/release-name");
    if let Some(release) = release {
        let namespace = annotation(live, "meta.helm.sh/release-namespace").unwrap_or("?");
        return Some(format!("Helm (release {release} in namespace {namespace})"));
    }
    let is_helms = label(live, "app.kubernetes.io/managed-by") == Some("Helm");
    is_helms.then(|| "Helm".to_owned())
}

fn by_argo(live: &Value) -> Option<String> {
    let tracked = annotation(live, "argocd.argoproj.io/tracking-id")
        .map(|id| id.split(':').next().unwrap_or(id));
    let application = tracked.or_else(|| label(live, "argocd.argoproj.io/instance"))?;
    Some(format!("Argo CD (application {application})"))
}

fn by_flux(live: &Value) -> Option<String> {
    let by = |kind: &str, group: &str| {
        let name = label(live, &format!("{group}/name"))?;
        let namespace = label(live, &format!("{group}/namespace")).unwrap_or("?");
        Some(format!("Flux ({kind} {namespace}/{name})"))
    };
    by("Kustomization", "kustomize.toolkit.fluxcd.io")
        .or_else(|| by("HelmRelease", "helm.toolkit.fluxcd.io"))
}

fn by_field_manager(live: &Value) -> Option<String> {
    if is_applied_by_us(live) {
        return None;
    }
    let mut names: Vec<_> = managers(live).map(|(name, _)| name).collect();
    names.dedup();
    Some(match &names[..] {
        [] => "an unknown field manager".to_owned(),
        names => format!("field manager {}", names.join(", ")),
    })
}

/// Who has written the object itself, not its status.
fn managers(live: &Value) -> impl Iterator<Item = (&str, &str)> {
    let entries = live["metadata"]["managedFields"].as_array();
    entries.into_iter().flatten().filter_map(|entry| {
        let is_status = entry["subresource"].as_str() == Some("status");
        let name = entry["manager"].as_str().filter(|_| !is_status)?;
        Some((name, entry["operation"].as_str().unwrap_or_default()))
    })
}

fn label<'a>(live: &'a Value, name: &str) -> Option<&'a str> {
    live["metadata"]["labels"][name].as_str()
}

fn annotation<'a>(live: &'a Value, name: &str) -> Option<&'a str> {
    live["metadata"]["annotations"][name].as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ours() -> Value {
        json!({"metadata": {"managedFields": [
            {"manager": "kubebridge", "operation": "Apply"},
            {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"},
        ]}})
    }

    #[test]
    fn lifecycle_20_what_we_applied_is_ours_whoever_writes_its_status() {
        assert_eq!(foreign(&ours()), None);
        assert!(is_applied_by_us(&ours()));
    }

    #[test]
    fn lifecycle_20_the_tool_that_keeps_an_object_is_named() {
        let table = [
            (
                json!({"annotations": {
                    "meta.helm.sh/release-name": "kb", "meta.helm.sh/release-namespace": "tools",
                }}),
                "Helm (release kb in namespace tools)",
            ),
            (
                json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}}),
                "Helm",
            ),
            (
                json!({"annotations": {
                    "argocd.argoproj.io/tracking-id": "bridge:apps/Deployment:kubebridge/x",
                }}),
                "Argo CD (application bridge)",
            ),
            (
                json!({"labels": {"argocd.argoproj.io/instance": "bridge"}}),
                "Argo CD (application bridge)",
            ),
            (
                json!({"labels": {
                    "kustomize.toolkit.fluxcd.io/name": "apps",
                    "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
                }}),
                "Flux (Kustomization flux-system/apps)",
            ),
            (
                json!({"labels": {
                    "helm.toolkit.fluxcd.io/name": "kb",
                    "helm.toolkit.fluxcd.io/namespace": "flux-system",
                }}),
                "Flux (HelmRelease flux-system/kb)",
            ),
        ];
        for (metadata, owner) in table {
            let mut live = ours();
            for (key, value) in metadata.as_object().unwrap() {
                live["metadata"][key] = value.clone();
            }
            assert_eq!(foreign(&live).as_deref(), Some(owner));
        }
    }

    #[test]
    fn lifecycle_20_an_object_we_never_applied_is_its_field_managers() {
        let live = json!({"metadata": {"managedFields": [
            {"manager": "kubectl-create", "operation": "Update"},
            {"manager": "kubelet", "operation": "Update", "subresource": "status"},
        ]}});
        assert_eq!(foreign(&live).unwrap(), "field manager kubectl-create");
        assert_eq!(foreign(&json!({})).unwrap(), "an unknown field manager");
        // A name that anybody may take does not make it ours.
        let update = json!({"metadata": {"managedFields": [
            {"manager": "kubebridge", "operation": "Update"},
        ]}});
        assert!(foreign(&update).is_some());
    }
}
