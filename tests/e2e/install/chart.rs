//! The Helm chart, rendered by helm itself, is the same objects as the command prints.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{
    checks::Checks,
    parts::{Parts, TESTS},
};
use serde_json::{Value, json};

use super::{IMAGE, manifest};

/// A command of helm that keeps nothing outside `folder`.
pub(super) fn helm(folder: &Path) -> Result<Command> {
    let mut command = Command::new(Parts::find()?.path("HELM")?);
    for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(name, folder.join("helm"));
    }
    Ok(command)
}

/// Where the chart is.
pub(super) fn chart() -> String {
    format!("{TESTS}/../deploy/chart")
}

/// The image of the tests in the chart's parts.
pub(super) fn image() -> Value {
    let (name, digest) = IMAGE.split_once('@').unwrap_or_default();
    let (registry, repository) = name.split_once('/').unwrap_or_default();
    json!({"registry": registry, "repository": repository, "digest": digest})
}

/// Flags of the command, and the same as values of the chart.
fn variants() -> Vec<(Vec<&'static str>, Value)> {
    vec![
        (vec![], json!({})),
        (
            vec!["-n", "shop", "-n", "7", "--replicas", "2"],
            json!({"namespaces": ["shop", "7"], "replicas": 2}),
        ),
        (
            vec!["--all-namespaces", "--allow-group", "team"],
            json!({"allNamespaces": true, "allow": {"groups": ["team"]}}),
        ),
        (
            [
                &["-n", "default", "-n", "shop", "--replicas", "5"][..],
                &["--dns-service", "--tls-secret", "tls"],
                &["--image-pull-secret", "one", "--image-pull-secret", "two"],
                &["--allow-user", "dev@example.com", "--allow-user", "7"],
                &["--allow-group", "team"],
            ]
            .concat(),
            json!({
                "namespaces": ["default", "shop"], "replicas": 5,
                "dnsService": true, "tlsSecret": "tls",
                "imagePullSecrets": [{"name": "one"}, {"name": "two"}],
                "allow": {"users": ["dev@example.com", "7"], "groups": ["team"]},
            }),
        ),
    ]
}

#[test]
fn install_the_chart_renders_the_objects_that_the_command_prints() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut checks = Checks::new();
    for (mut flags, mut values) in variants() {
        let what = format!("{flags:?}");
        flags.extend(["--image", IMAGE]);
        values["image"] = image();
        checks.that(what, same(folder.path(), &flags, &values));
    }
    checks.finish()
}

fn same(folder: &Path, flags: &[&str], values: &Value) -> Result<()> {
    let mut printed = by_place(manifest(flags)?)?;
    // Helm makes the namespace itself, and says on each object that it keeps it.
    ensure!(
        printed.remove("Namespace /kubebridge").is_some(),
        "no namespace"
    );
    for object in printed.values_mut() {
        object["metadata"]["labels"]["app.kubernetes.io/managed-by"] = "Helm".into();
    }
    let rendered = by_place(template(folder, values)?)?;
    for (place, object) in &printed {
        let other = rendered.get(place);
        ensure!(
            other == Some(object),
            "{place}: the command prints\n{object:#}\nand the chart renders\n{other:#?}"
        );
    }
    let more: Vec<_> = rendered
        .keys()
        .filter(|place| !printed.contains_key(*place))
        .collect();
    ensure!(more.is_empty(), "the chart renders also {more:?}");
    Ok(())
}

fn template(folder: &Path, values: &Value) -> Result<Vec<Value>> {
    let file = folder.join("values.json");
    fs::write(&file, values.to_string())?;
    let said = helm(folder)?
        .args(["template", "kb", &chart(), "-n", "kubebridge", "-f"])
        .arg(&file)
        .output()?;
    let err = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "helm template: {err}");
    let text = String::from_utf8(said.stdout)?;
    let documents = text.split("\n---\n").map(|document| {
        let document = document.trim_start_matches("---\n");
        serde_saphyr::from_str(document).with_context(|| document.to_owned())
    });
    documents.collect()
}

fn by_place(objects: Vec<Value>) -> Result<BTreeMap<String, Value>> {
    let place = |object: Value| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let name = text(&metadata["name"]);
        ensure!(!name.is_empty(), "no name: {object}");
        let place = format!(
            "{} {}/{name}",
            text(&object["kind"]),
            text(&metadata["namespace"])
        );
        Ok((place, object))
    };
    objects.into_iter().map(place).collect()
}

#[test]
fn install_the_chart_refuses_what_the_command_refuses() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut checks = Checks::new();
    let table = [
        (json!({"image": {}}), "image.registry says where"),
        (
            json!({"image": {"registry": "r.invalid"}}),
            "image.digest says which",
        ),
        (json!({"image": {"digest": "sha256:0"}}), "/image/digest"),
        (json!({"replicas": 6}), "/replicas"),
        (json!({"namespaces": ["kubebridge"]}), "/namespaces/0"),
        (json!({"namespaces": []}), "/namespaces"),
        (json!({"replica": 2}), "replica"),
    ];
    for (mut values, wanted) in table {
        if values["image"].is_null() {
            values["image"] = image();
        }
        let outcome = match template(folder.path(), &values) {
            Ok(_) => Err(anyhow::anyhow!("it was rendered")),
            Err(error) => crate::reach::contains(&format!("{error:#}"), wanted),
        };
        checks.that(&values, outcome);
    }
    let elsewhere = helm(folder.path())?
        .args(["template", "kb", &chart(), "-n", "tools", "--set"])
        .arg("image.registry=r.invalid,image.tag=v1")
        .output()?;
    let err = String::from_utf8_lossy(&elsewhere.stderr).into_owned();
    checks.that(
        "another namespace",
        crate::reach::contains(&err, "clients look in the namespace kubebridge"),
    );
    checks.finish()
}

#[test]
fn install_the_chart_is_of_the_version_of_the_program() -> Result<()> {
    let text = fs::read_to_string(format!("{}/Chart.yaml", chart()))?;
    let chart: Value = serde_saphyr::from_str(&text)?;
    for key in ["version", "appVersion"] {
        ensure!(
            chart[key] == env!("CARGO_PKG_VERSION"),
            "{key} is {}",
            chart[key]
        );
    }
    Ok(())
}
