//! Who may change a cluster: what installs, and nothing else (lifecycle 20).

use crate::tree::rust_sources;

/// What a request that changes objects takes in the Kubernetes client.
const WRITES: [&str; 6] = [
    "Patch::",
    "PatchParams",
    "DeleteParams",
    ".delete_collection(",
    ".patch(&",
    "Method::DELETE",
];

/// The one place with requests that change objects.
const APPLY: &str = "client/src/cluster/apply.rs";

/// Who may use that place.
const INSTALL: [&str; 2] = ["client/src/install", "client/src/cluster"];

#[test]
fn lifecycle_20_only_installing_writes_to_a_cluster() {
    let mut strays = Vec::new();
    for (path, text) in rust_sources() {
        let is_kubernetes = path.starts_with("client/src/cluster")
            || path.starts_with("traffic-manager/src/kubernetes");
        let is_elsewhere =
            path.starts_with("client/src") && !INSTALL.iter().any(|at| path.starts_with(at));
        for (number, line) in text.lines().enumerate() {
            let writes =
                is_kubernetes && path != APPLY && WRITES.iter().any(|word| line.contains(word));
            let uses = is_elsewhere && line.contains("cluster::apply");
            if writes || uses {
                strays.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(strays.is_empty(), "these write to a cluster: {strays:#?}");
    let apply = rust_sources().into_iter().find(|(path, _)| path == APPLY);
    let (_, text) = apply.unwrap();
    assert!(
        text.contains("Patch::Apply"),
        "{APPLY} is where objects are applied"
    );
}
