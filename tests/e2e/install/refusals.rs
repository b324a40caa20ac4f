//! What belongs to somebody else is not touched: real Helm, and what Argo CD and Flux put on their
//! objects.

use anyhow::{Result, ensure};
use kubebridge_tests::{checks::Checks, lab::Lab};

use super::chart::{chart, helm, image};
use super::{IMAGE, done_as, objects, refused_as};

/// The exit code where somebody else holds something.
const BUSY: i32 = 73;

const INSTALL: [&str; 5] = ["install", "--image", IMAGE, "--wait", "0s"];
const UPGRADE: [&str; 5] = ["upgrade", "--image", IMAGE, "--wait", "0s"];

#[test]
fn lifecycle_20_what_somebody_else_keeps_is_refused_by_name_and_taken_by_force_alone() -> Result<()>
{
    let lab = Lab::start()?;
    let mut checks = Checks::new();

    install_by_helm(&lab)?;
    let before = objects(&lab)?;
    let owner = "Deployment kubebridge/traffic-manager belongs to Helm (release kb in namespace kubebridge)";
    let words = [owner, "hint: have its owner install kubebridge"];
    checks.that("Helm's", refused_as(&lab, "admin", &INSTALL, BUSY, &words));
    let dry = [&INSTALL[..], &["--dry-run"]].concat();
    checks.that(
        "Helm's, tried",
        refused_as(&lab, "admin", &dry, BUSY, &words),
    );
    let words = ["Deployment kubebridge/traffic-manager belongs to Helm"];
    checks.that(
        "to remove",
        refused_as(&lab, "admin", &["uninstall"], BUSY, &words),
    );
    checks.equal("untouched", objects(&lab).map(joined), &before.join("\n"));

    let forced = [&INSTALL[..], &["--force"]].concat();
    let taken = done_as(&lab, "admin", &forced).and_then(|(said, _)| {
        let changed = "Deployment kubebridge/traffic-manager: changed";
        crate::reach::contains(&said, changed)
    });
    checks.that("taken by force", taken);
    remove_all_of_helm(&lab)?;
    checks.that("then ours", done_as(&lab, "admin", &UPGRADE).map(drop));

    marked_by_a_tool(&lab, &mut checks)?;
    scaled(&lab, &mut checks)?;
    made_by_hand(&lab, &mut checks)?;
    checks.finish()?;
    lab.finish();
    Ok(())
}

/// What Argo CD and Flux put on the objects they keep.
fn marked_by_a_tool(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let deployment = ["deployment/traffic-manager", "-n", "kubebridge"];
    for (tool, verb, marks, owner) in [
        (
            "Argo CD",
            "annotate",
            vec![
                "argocd.argoproj.io/tracking-id=bridge:apps/Deployment:kubebridge/traffic-manager",
            ],
            "Deployment kubebridge/traffic-manager belongs to Argo CD (application bridge)",
        ),
        (
            "Flux",
            "label",
            vec![
                "kustomize.toolkit.fluxcd.io/name=apps",
                "kustomize.toolkit.fluxcd.io/namespace=flux-system",
            ],
            "Deployment kubebridge/traffic-manager belongs to Flux (Kustomization flux-system/apps)",
        ),
    ] {
        lab.kubectl(&[&[verb][..], &deployment, &marks].concat())?;
        let refusal = refused_as(lab, "admin", &UPGRADE, BUSY, &[owner]);
        checks.that(tool, refusal);
        let off: Vec<_> = marks.iter().map(|mark| key(mark)).collect();
        let off: Vec<&str> = off.iter().map(String::as_str).collect();
        lab.kubectl(&[&[verb][..], &deployment, &off].concat())?;
    }
    Ok(())
}

/// Somebody has set one field.
fn scaled(lab: &Lab, checks: &mut Checks) -> Result<()> {
    lab.kubectl(&[
        "scale",
        "deployment/traffic-manager",
        "-n",
        "kubebridge",
        "--replicas=3",
    ])?;
    let words = [
        "conflict with \"kubectl\"",
        ".spec.replicas",
        "hint: have its owner",
    ];
    checks.that("scaled", refused_as(lab, "admin", &UPGRADE, BUSY, &words));
    let forced = [&UPGRADE[..], &["--force"]].concat();
    checks.that(
        "scaled back by force",
        done_as(lab, "admin", &forced).map(drop),
    );
    Ok(())
}

/// Somebody has made what is to be made.
fn made_by_hand(lab: &Lab, checks: &mut Checks) -> Result<()> {
    // An object without any field has no field manager either.
    let made = [
        "create",
        "serviceaccount",
        "kubebridge-access",
        "-n",
        "shop",
    ];
    lab.kubectl(&made)?;
    let role = ["create", "role", "kubebridge-user", "-n", "shop"];
    let role = [&role[..], &["--verb=get", "--resource=pods"]].concat();
    lab.kubectl(&role)?;
    let words = [&INSTALL[..], &["-n", "shop"]].concat();
    let owners = [
        "ServiceAccount shop/kubebridge-access belongs to an unknown field manager",
        "Role shop/kubebridge-user belongs to field manager kubectl-create",
    ];
    checks.that(
        "made by hand",
        refused_as(lab, "admin", &words, BUSY, &owners),
    );
    Ok(())
}

fn joined(lines: Vec<String>) -> String {
    lines.join("\n")
}

/// `KEY-`, which takes a label or annotation away.
fn key(mark: &str) -> String {
    let key = mark.split('=').next().unwrap_or_default();
    format!("{key}-")
}

/// Runs helm on the node as the administrator.
fn install_by_helm(lab: &Lab) -> Result<()> {
    let values = lab.logs().join("values.json");
    std::fs::write(&values, serde_json::json!({"image": image()}).to_string())?;
    let helm = helm(&lab.logs())?;
    let mut command = lab.node.command(helm.get_program());
    for (name, value) in helm.get_envs() {
        if let Some(value) = value {
            command.env(name, value);
        }
    }
    let said = command
        .env("KUBECONFIG", lab.api.kubeconfig("admin"))
        .args([
            "install",
            "kb",
            &chart(),
            "-n",
            "kubebridge",
            "--create-namespace",
            "-f",
        ])
        .arg(&values)
        .output()?;
    let err = String::from_utf8_lossy(&said.stderr);
    ensure!(said.status.success(), "helm install: {err}");
    Ok(())
}

/// What Helm has written on the objects goes, as when its release is given up.
fn remove_all_of_helm(lab: &Lab) -> Result<()> {
    let marks = [
        "meta.helm.sh/release-name-",
        "meta.helm.sh/release-namespace-",
    ];
    for (namespace, kinds) in [
        (
            "kubebridge",
            "deployment,networkpolicy,role,rolebinding,serviceaccount",
        ),
        ("default", "role,rolebinding,serviceaccount"),
    ] {
        let words = ["annotate", kinds, "-n", namespace, "--all"];
        lab.kubectl(&[&words[..], &marks].concat())?;
    }
    Ok(())
}
