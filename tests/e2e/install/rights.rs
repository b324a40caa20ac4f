//! What installing takes of the user: exactly what docs/rbac.md says, and each right that is missing
//! is named before anything is written.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use kubebridge_tests::{checks::Checks, lab::Lab};
use serde_json::{Value, json};

use super::{IMAGE, done_as, manifest, objects, refused_as};

/// The exit code where a right is missing.
const PRIVILEGE: i32 = 77;

const FLAGS: [&str; 5] = ["-n", "default", "-n", "shop", "--dns-service"];

/// The rules of a Role for each namespace.
type Rules = BTreeMap<String, Vec<Value>>;

/// Kinds as rights name them.
fn resource(kind: &str) -> Result<&'static str> {
    Ok(match kind {
        "ServiceAccount" => "serviceaccounts",
        "Role" => "roles",
        "RoleBinding" => "rolebindings",
        "NetworkPolicy" => "networkpolicies",
        "Service" => "services",
        "Deployment" => "deployments",
        "ConfigMap" => "configmaps",
        other => anyhow::bail!("nobody said what {other} takes"),
    })
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

/// What the manifests take: the objects, and what their Roles give.
fn needed() -> Result<Rules> {
    let mut rules = Rules::new();
    let record = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "kubebridge"},
    });
    let objects = manifest(&[&FLAGS[..], &["--image", IMAGE]].concat())?;
    for object in objects.iter().chain([&record]) {
        let Some(namespace) = object["metadata"]["namespace"].as_str() else {
            continue;
        };
        let of_it = rules.entry(namespace.to_owned()).or_default();
        let api = object["apiVersion"].as_str().context("no version")?;
        let group = api.split_once('/').map_or("", |(group, _)| group);
        let kind = object["kind"].as_str().context("no kind")?;
        let verbs = ["get", "create", "patch", "delete"];
        let one = rule(group, resource(kind)?, &verbs);
        if !of_it.contains(&one) {
            of_it.push(one);
        }
        of_it.extend(object["rules"].as_array().into_iter().flatten().cloned());
    }
    Ok(rules)
}

/// Gives the user `dev` these rights and no others.
fn grant(lab: &Lab, rules: &Rules) -> Result<()> {
    let name = "installer";
    let mut items = Vec::new();
    for (namespace, rules) in rules {
        let metadata = json!({"name": name, "namespace": namespace});
        let group = "rbac.authorization.k8s.io";
        items.push(json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata,
            "rules": rules,
        }));
        items.push(json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": name},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "dev"}],
        }));
    }
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    lab.api.apply(&lab.node, &list.to_string())
}

/// The rights without one verb of one rule, and what is then said.
fn without(rules: &Rules, namespace: &str, resource: &str, verb: &str) -> Result<(Rules, String)> {
    let mut fewer = rules.clone();
    let of_it = fewer.get_mut(namespace).context("no such namespace")?;
    let is_it = |rule: &&mut Value| {
        rule["resources"][0] == resource
            && rule["verbs"].as_array().is_some_and(|all| all.len() == 4)
    };
    let rule = of_it.iter_mut().find(is_it).context("no such rule")?;
    let verbs = rule["verbs"].as_array_mut().context("no verbs")?;
    verbs.retain(|one| one != verb);
    let group = rule["apiGroups"][0].as_str().unwrap_or_default();
    let target = match group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    };
    let words =
        format!("user dev of context lab may not: {verb} {target} in namespace {namespace}\n");
    Ok((fewer, words))
}

#[test]
fn install_takes_the_rights_that_are_documented_and_names_each_that_is_missing() -> Result<()> {
    let lab = Lab::start()?;
    // Somebody else has made the namespace: no right to the whole cluster is needed.
    lab.kubectl(&["create", "namespace", "kubebridge"])?;
    let rules = needed()?;
    let words = [&["install", "--image", IMAGE, "--wait", "0s"][..], &FLAGS].concat();
    let mut checks = Checks::new();
    grant(&lab, &rules)?;
    let before = objects(&lab)?;

    for (namespace, resource, verb) in [
        ("kubebridge", "configmaps", "get"),
        ("kubebridge", "serviceaccounts", "create"),
        ("kubebridge", "deployments", "patch"),
        ("kubebridge", "networkpolicies", "create"),
        ("kubebridge", "services", "get"),
        ("shop", "roles", "get"),
        ("shop", "rolebindings", "patch"),
        ("default", "serviceaccounts", "create"),
    ] {
        let (fewer, said) = without(&rules, namespace, resource, verb)?;
        grant(&lab, &fewer)?;
        let refusal = refused_as(&lab, "dev", &words, PRIVILEGE, &[&said]);
        checks.that(format!("without {verb} {resource} in {namespace}"), refusal);
    }

    // Who does not have a right cannot give it.
    let mut fewer = rules.clone();
    let shop = fewer.get_mut("shop").context("no shop")?;
    shop.retain(|rule| rule["resources"][0] != "endpointslices");
    grant(&lab, &fewer)?;
    let said = [
        "apply Role shop/kubebridge-traffic-manager: ",
        "not currently held",
        "endpointslices",
        "hint: nobody may give rights that they do not have",
    ];
    let refusal = refused_as(&lab, "dev", &words, PRIVILEGE, &said);
    checks.that("a right that is not held", refusal);
    let after = objects(&lab)?.join("\n");
    checks.equal("nothing was written", Ok(after), &before.join("\n"));

    grant(&lab, &rules)?;
    checks.that("with all", done_as(&lab, "dev", &words).map(drop));
    checks.that(
        "removed",
        done_as(&lab, "dev", &["uninstall", "--wait", "0s"]).map(drop),
    );
    checks.finish()?;
    lab.finish();
    Ok(())
}
