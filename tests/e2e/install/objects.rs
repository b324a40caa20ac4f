//! What a real API server says of the manifests: it takes every object of every variant, and lets
//! the pod into a namespace where only pods without privileges are let in.

use anyhow::{Result, ensure};
use kubebridge_tests::{checks::Checks, lab::Lab, parts::TESTS};
use serde_json::{Value, json};

use super::{IMAGE, manifest};

/// Namespaces that manifests speak of.
const NAMESPACES: &str = "apiVersion: v1
kind: Namespace
metadata: {name: kubebridge}
---
apiVersion: v1
kind: Namespace
metadata: {name: '7'}
";

/// All there is at once.
const EVERYTHING: [&str; 13] = [
    "-n",
    "default",
    "-n",
    "shop",
    "-n",
    "7",
    "--replicas=5",
    "--dns-service",
    "--tls-secret=tls",
    "--image-pull-secret=pull",
    "--allow-user=dev",
    "--allow-group=team",
    "--image",
];

#[test]
fn install_the_api_server_takes_every_object_and_lets_the_pod_in() -> Result<()> {
    let lab = Lab::start()?;
    lab.api.apply(&lab.node, NAMESPACES)?;
    let mut checks = Checks::new();
    for file in ["namespaced", "cluster-wide"] {
        let text = std::fs::read_to_string(format!("{TESTS}/../deploy/{file}.yaml"))?;
        checks.that(file, lab.api.would_apply(&lab.node, &text).map(drop));
    }
    for scope in ["--all-namespaces=false", "--all-namespaces=true"] {
        let flags = [&EVERYTHING[..], &[IMAGE, scope]].concat();
        let objects = manifest(&flags)?;
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        let said = lab.api.would_apply(&lab.node, &list);
        let count = said.map(|said| said.lines().count().to_string());
        checks.equal(scope, count, &objects.len().to_string());
    }

    let objects = manifest(&["--image", IMAGE])?;
    let home = &objects[0];
    ensure!(home["kind"] == "Namespace", "{home}");
    lab.api.apply(&lab.node, &home.to_string())?;
    for flags in [
        &["--image", IMAGE][..],
        &[&EVERYTHING[..], &[IMAGE]].concat(),
    ] {
        let pod = pod(&manifest(flags)?);
        checks.that(format!("the pod of {flags:?}"), admitted(&lab, &pod));
    }
    // That it is looked at at all.
    let mut pod = pod(&objects);
    pod["spec"]["containers"][0]["securityContext"]["capabilities"] = json!({});
    let refusal = match admitted(&lab, &pod) {
        Ok(()) => Err(anyhow::anyhow!("it was let in")),
        Err(error) => crate::reach::contains(&format!("{error:#}"), "violates PodSecurity"),
    };
    checks.that("a pod with capabilities", refusal);
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// The Pod that a controller makes of the Deployment.
fn pod(objects: &[Value]) -> Value {
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment");
    let template = deployment.map(|deployment| deployment["spec"]["template"].clone());
    let mut pod = template.unwrap_or_default();
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod["metadata"]["name"] = "traffic-manager-0".into();
    pod["metadata"]["namespace"] = "kubebridge".into();
    pod
}

fn admitted(lab: &Lab, pod: &Value) -> Result<()> {
    let words = ["create", "--dry-run=server", "--validate=strict", "-f", "-"];
    let said = lab.api.kubectl_with(&lab.node, &words, &pod.to_string())?;
    ensure!(said.contains("created (server dry run)"), "{said}");
    Ok(())
}
