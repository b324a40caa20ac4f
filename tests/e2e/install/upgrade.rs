//! An installation changes, is tried, does not become ready, and is removed: what goes is what was
//! applied, and nothing else.

use anyhow::{Context, Result};
use kubebridge_tests::{checks::Checks, controllers::Controllers, lab::Lab, wait::until};
use serde_json::{Value, json};

use super::{IMAGE, START, done_as, objects, refused_as};
use crate::reach::contains;

/// The exit code where the manager cannot be reached.
const UNREACHABLE: i32 = 69;

/// The exit code where somebody else holds something.
const BUSY: i32 = 73;

const HOME: &str = "kubebridge";

/// Objects of an older version that this one does not make: two that it had applied, one of which
/// somebody has made anew since.
const OLDER: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: older, namespace: kubebridge, labels: {app.kubernetes.io/managed-by: kubebridge}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: remade, namespace: kubebridge, labels: {app.kubernetes.io/managed-by: kubebridge}}
";

const FOREIGN: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: foreign, namespace: kubebridge}
";

const NO_WAIT: [&str; 4] = ["--image", IMAGE, "--wait", "0s"];

#[test]
fn install_an_upgrade_removes_what_is_left_out_and_uninstall_what_was_applied() -> Result<()> {
    let lab = Lab::start()?;
    let _controllers = Controllers::start(&lab)?;
    let mut checks = Checks::new();
    let before = objects(&lab)?;

    let nothing = [&["upgrade"][..], &NO_WAIT].concat();
    let words = [
        "nothing is installed by kubebridge there",
        "hint: kubebridge install",
    ];
    let refusal = refused_as(&lab, "admin", &nothing, UNREACHABLE, &words);
    checks.that("too early", refusal);
    let nowhere = [&["install", "-n", "nowhere"][..], &NO_WAIT].concat();
    let words = [
        "there is no namespace nowhere",
        "hint: kubectl create namespace nowhere",
    ];
    let refusal = refused_as(&lab, "admin", &nowhere, UNREACHABLE, &words);
    checks.that("no such namespace", refusal);
    let wide = ["-n", "default", "-n", "shop", "--replicas=2"];
    let install = [&["install", "--dns-service"][..], &wide, &NO_WAIT].concat();
    let tried = [&install[..], &["--dry-run"]].concat();
    let (_, diff) = done_as(&lab, "admin", &tried)?;
    for line in [
        "+++ Deployment kubebridge/traffic-manager",
        "+++ Role shop/kubebridge-user",
    ] {
        checks.that(line, contains(&diff, line));
    }
    checks.equal("only tried", objects(&lab).map(joined), &before.join("\n"));

    done_as(&lab, "admin", &install)?;
    edit_record(&lab, |record| {
        record["version"] = "99.0.0".into();
        Ok(())
    })?;
    let words = ["kubebridge 99.0.0 has installed what is there"];
    let refusal = refused_as(&lab, "admin", &install, BUSY, &words);
    checks.that("an older program", refusal);
    make_older(&lab)?;
    upgrade(&lab, &mut checks)?;
    why_it_is_not_ready(&lab, &mut checks)?;
    uninstall(&lab, &mut checks, &before)?;
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// Goes back to one namespace and one manager without a Service.
fn upgrade(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let installed = objects(lab)?;
    let narrow = ["-n", "default", "--replicas=1", "--dns-service=false"];
    let words = [&["upgrade"][..], &narrow, &NO_WAIT].concat();
    let (_, diff) = done_as(lab, "admin", &[&words[..], &["--dry-run"]].concat())?;
    for part in [
        "--- Service kubebridge/traffic-manager\n+++ /dev/null",
        "--- PodDisruptionBudget kubebridge/traffic-manager\n+++ /dev/null",
        "--- Role shop/kubebridge-user\n+++ /dev/null",
        "--- ConfigMap kubebridge/older\n+++ /dev/null",
        "-  replicas: 2\n+  replicas: 1",
    ] {
        checks.that(part, contains(&diff, part));
    }
    checks.equal("only tried", objects(lab).map(names), &names(installed));

    let (said, out) = done_as(lab, "admin", &[&words[..], &["-o", "json"]].concat())?;
    let document: Value = serde_json::from_str(&out)?;
    let schema = Ok(document["schema"].to_string());
    checks.equal("the form", schema, "\"kubebridge.install/v1\"");
    for part in [
        "Service kubebridge/traffic-manager: removed",
        "ServiceAccount shop/kubebridge-access: removed",
        "ConfigMap kubebridge/older: removed",
        "Deployment kubebridge/traffic-manager: changed",
        "ServiceAccount default/kubebridge-access: unchanged",
    ] {
        checks.that(part, contains(&said, part));
    }
    let left = objects(lab)?.join("\n");
    for part in [
        "ConfigMap kubebridge remade",
        "ConfigMap kubebridge foreign",
    ] {
        checks.that(part, contains(&left, part));
    }
    Ok(())
}

/// Removes it, in two steps: somebody has put something into the namespace.
fn uninstall(lab: &Lab, checks: &mut Checks, before: &[String]) -> Result<()> {
    let (said, _) = done_as(lab, "admin", &["uninstall"])?;
    let stays = "Namespace kubebridge: left: it holds ConfigMap/foreign, ConfigMap/remade, ResourceQuota/none";
    checks.that(stays, contains(&said, stays));
    lab.kubectl(&["delete", "configmap", "foreign", "remade", "-n", HOME])?;
    lab.kubectl(&["delete", "quota", "none", "-n", HOME])?;
    let rest = done_as(lab, "admin", &["uninstall"]).map(drop);
    checks.that("the rest", rest);
    let after = objects(lab).map(joined);
    checks.equal("the cluster after it", after, &before.join("\n"));
    let again = done_as(lab, "admin", &["uninstall"])
        .and_then(|(said, _)| contains(&said, "nothing is installed"));
    checks.that("once more", again);
    Ok(())
}

fn joined(lines: Vec<String>) -> String {
    lines.join("\n")
}

/// Without what controllers number.
fn names(lines: Vec<String>) -> String {
    let lines = lines
        .iter()
        .filter(|line| !line.starts_with("Pod ") && !line.starts_with("EndpointSlice "));
    lines.cloned().collect::<Vec<_>>().join("\n")
}

/// Makes the installation one of an older version.
fn make_older(lab: &Lab) -> Result<()> {
    let ours = [
        "apply",
        "--server-side",
        "--field-manager=kubebridge",
        "-f",
        "-",
    ];
    lab.api.kubectl_with(&lab.node, &ours, OLDER)?;
    lab.api.apply(&lab.node, FOREIGN)?;
    let uid = |name: &str| {
        let words = ["get", "configmap", name, "-n", HOME];
        lab.kubectl(&[&words[..], &["-o", "jsonpath={.metadata.uid}"]].concat())
    };
    let uids = [
        ("older", uid("older")?),
        ("remade", "another".to_owned()),
        ("foreign", uid("foreign")?),
    ];
    edit_record(lab, |record| {
        record["version"] = "0.0.9".into();
        let entries = record["objects"].as_array_mut().context("no objects")?;
        entries.extend(uids.iter().map(|(name, uid)| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "namespace": HOME, "name": name,
                "uid": uid,
            })
        }));
        Ok(())
    })
}

/// Changes what is kept about the installation.
fn edit_record(lab: &Lab, edit: impl FnOnce(&mut Value) -> Result<()>) -> Result<()> {
    let words = ["get", "configmap", "kubebridge-install", "-n", HOME];
    let said = lab.kubectl(&[&words[..], &["-o", "json"]].concat())?;
    let mut config_map: Value = serde_json::from_str(&said)?;
    let text = config_map["data"]["record"].as_str().context("no record")?;
    let mut record = serde_json::from_str(text)?;
    edit(&mut record)?;
    config_map["data"]["record"] = record.to_string().into();
    let words = ["replace", "-f", "-"];
    let input = config_map.to_string();
    lab.api.kubectl_with(&lab.node, &words, &input).map(drop)
}

/// Nothing runs pods here: what a user is told then, and when the cluster refuses them.
fn why_it_is_not_ready(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let upgrade = |wait| ["upgrade", "--image", IMAGE, "--wait", wait];
    let words = [
        "the manager is not ready after 3s: pod traffic-manager-",
        ": Pending",
        "hint: kubectl describe pods -n kubebridge",
    ];
    checks.that(
        "no node",
        refused_as(lab, "admin", &upgrade("3s"), UNREACHABLE, &words),
    );
    lab.kubectl(&["create", "quota", "none", "-n", HOME, "--hard=pods=0"])?;
    until("the quota to be looked at", START, || {
        let status = [
            "get",
            "quota",
            "none",
            "-n",
            HOME,
            "-o",
            "jsonpath={.status.hard}",
        ];
        contains(&lab.kubectl(&status)?, "pods")
    })?;
    until("the pods to be refused", START, || {
        // Those that were made before the quota was known to all.
        let now = ["--all", "--grace-period=0", "--force"];
        lab.kubectl(&[&["delete", "pods", "-n", HOME][..], &now].concat())?;
        let deployment = ["get", "deployment", "traffic-manager", "-n", HOME];
        let status = lab.kubectl(&[&deployment[..], &["-o", "jsonpath={.status}"]].concat())?;
        contains(&status, "ReplicaFailure")
    })?;
    let words = ["pods are refused: ", "exceeded quota: none"];
    checks.that(
        "a quota",
        refused_as(lab, "admin", &upgrade("3s"), UNREACHABLE, &words),
    );
    Ok(())
}
