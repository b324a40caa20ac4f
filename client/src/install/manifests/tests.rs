//! What every variant of the manifests has to be, and that the files made from them are up to date.

mod reference;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::install::settings::{Lists, Scope, Wishes};

/// Stands in `deploy/` for the image, which everybody has elsewhere.
const IMAGE: &str = "registry.invalid/kubebridge/traffic-manager:0.1.0";

/// Says that files are to be written instead of compared.
const WRITE: &str = "KUBEBRIDGE_WRITE";

fn settings(wishes: Wishes) -> Settings {
    let wishes = Wishes {
        image: Some(IMAGE.parse().unwrap()),
        ..wishes
    };
    wishes.complete(None, Lists::Add, "default", None).unwrap()
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

/// All there is at once.
fn everything(scope: Scope) -> Settings {
    settings(Wishes {
        namespaces: names(&["default", "shop", "7"]),
        scope: Some(scope),
        replicas: Some(3),
        image_pull_secrets: names(&["pull"]),
        dns_service: Some(true),
        tls_secret: Some("tls".to_owned()),
        users: names(&["dev"]),
        groups: names(&["team"]),
        ..Wishes::default()
    })
}

fn variants() -> Vec<Settings> {
    let plain = |scope| {
        settings(Wishes {
            scope: Some(scope),
            ..Wishes::default()
        })
    };
    vec![
        plain(Scope::Namespaced),
        plain(Scope::ClusterWide),
        everything(Scope::Namespaced),
        everything(Scope::ClusterWide),
    ]
}

/// The objects of a kind.
fn of_kind(objects: &[Object], kind: &str) -> Vec<Value> {
    let is_it = |object: &&Object| object.identity.kind == kind;
    objects
        .iter()
        .filter(is_it)
        .map(|object| object.body.clone())
        .collect()
}

fn pod_of(objects: &[Object]) -> Value {
    of_kind(objects, "Deployment")[0]["spec"]["template"]["spec"].clone()
}

fn tree(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Fails unless a file of the tree is what would be made; writes it where that was asked for.
fn must_be(path: &str, made: &str) {
    if std::env::var_os(WRITE).is_some() {
        fs::write(tree(path), made).unwrap();
    }
    let there = fs::read_to_string(tree(path)).unwrap_or_default();
    assert!(
        there == made,
        "{path} is not what the manifests make: {WRITE}=1 cargo test -p kubebridge install_ writes it"
    );
}

#[test]
fn install_two_renders_are_the_same_bytes() {
    for settings in variants() {
        let render = || yaml(&render(&settings).unwrap()).unwrap();
        assert_eq!(render(), render());
    }
}

#[test]
fn install_yaml_reads_back_as_the_same_objects() {
    for settings in variants() {
        let objects = render(&settings).unwrap();
        let text = yaml(&objects).unwrap();
        let read: Vec<Value> = text
            .split("---\n")
            .filter(|document| !document.is_empty())
            .map(|document| serde_saphyr::from_str(document).unwrap())
            .collect();
        let bodies: Vec<_> = objects.into_iter().map(|object| object.body).collect();
        assert_eq!(read, bodies);
    }
}

#[test]
fn install_the_plain_files_are_what_the_command_prints() {
    for (file, scope, flag) in [
        ("deploy/namespaced.yaml", Scope::Namespaced, ""),
        (
            "deploy/cluster-wide.yaml",
            Scope::ClusterWide,
            " --all-namespaces",
        ),
    ] {
        let wishes = Wishes {
            scope: Some(scope),
            ..Wishes::default()
        };
        let objects = render(&settings(wishes)).unwrap();
        let made = format!(
            "# kubebridge manifest{flag} --image {IMAGE}\n\
             # Name your own image, by digest; this registry is nowhere.\n{}",
            yaml(&objects).unwrap()
        );
        must_be(file, &made);
    }
}

#[test]
fn install_every_object_has_its_own_place_and_our_labels() {
    for settings in variants() {
        let objects = render(&settings).unwrap();
        let places: BTreeSet<_> = objects.iter().map(|object| &object.identity).collect();
        assert_eq!(places.len(), objects.len());
        for object in &objects {
            let part = &object.body["metadata"]["labels"]["app.kubernetes.io/part-of"];
            assert_eq!(part, "kubebridge", "{}", object.identity);
        }
        let kind = |place: usize| objects[place].identity.kind.as_str();
        assert_eq!(
            (kind(0), kind(objects.len() - 1)),
            ("Namespace", "Deployment")
        );
    }
}

#[test]
fn install_rights_have_no_wildcards_and_the_manager_only_reads() {
    for settings in variants() {
        let objects = render(&settings).unwrap();
        let roles = [of_kind(&objects, "Role"), of_kind(&objects, "ClusterRole")].concat();
        for role in roles {
            let name = role["metadata"]["name"].as_str().unwrap();
            for rule in role["rules"].as_array().unwrap() {
                let text = rule.to_string();
                assert!(!text.contains('*') && !text.contains("secrets"), "{text}");
                let verbs: Vec<_> = rule["verbs"].as_array().unwrap().iter().collect();
                if name == READER && rule["nonResourceURLs"].is_null() {
                    assert_eq!(verbs, ["list", "watch"], "{text}");
                }
            }
        }
    }
}

#[test]
fn install_the_namespaced_variant_has_nothing_of_the_whole_cluster_but_the_namespace() {
    let objects = render(&everything(Scope::Namespaced)).unwrap();
    let wide: Vec<_> = objects
        .iter()
        .filter(|object| object.identity.namespace.is_none())
        .map(|object| object.identity.kind.as_str())
        .collect();
    assert_eq!(wide, ["Namespace"]);
}

#[test]
fn install_the_pod_has_no_privileges_and_is_bounded() {
    for settings in variants() {
        let objects = render(&settings).unwrap();
        let pod = pod_of(&objects);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(
            pod["securityContext"]["seccompProfile"]["type"],
            "RuntimeDefault"
        );
        assert_eq!(pod["enableServiceLinks"], false);
        assert!(pod["hostNetwork"].is_null() && pod["hostPID"].is_null());
        let container = &pod["containers"][0];
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["capabilities"], json!({"drop": ["ALL"]}));
        for bound in ["requests", "limits"] {
            for of in ["cpu", "memory"] {
                assert!(
                    container["resources"][bound][of].is_string(),
                    "{bound} {of}"
                );
            }
        }
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
        assert_eq!(container["readinessProbe"]["httpGet"]["port"], "admin");
        let admin = &container["ports"][0];
        assert_eq!(
            (&admin["name"], &admin["containerPort"]),
            (&"admin".into(), &7081.into())
        );
    }
}

#[test]
fn install_only_the_admin_port_is_open_unless_more_was_asked_for() {
    let open = |dns: bool, tls: bool| {
        let settings = settings(Wishes {
            dns_service: Some(dns),
            tls_secret: tls.then(|| "tls".to_owned()),
            ..Wishes::default()
        });
        let policies = of_kind(&render(&settings).unwrap(), "NetworkPolicy");
        let spec = &policies[0]["spec"];
        assert_eq!(spec["policyTypes"], json!(["Ingress"]));
        assert_eq!(spec["ingress"].as_array().unwrap().len(), 1);
        let ports = spec["ingress"][0]["ports"].as_array().unwrap().clone();
        let word =
            |port: &Value| format!("{}/{}", port["port"], port["protocol"].as_str().unwrap());
        ports.iter().map(word).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(open(false, false), "7081/TCP");
    assert_eq!(open(true, false), "7081/TCP 1053/UDP 1053/TCP");
    assert_eq!(open(false, true), "7081/TCP 7080/TCP");
}

#[test]
fn install_a_dns_service_and_a_budget_are_there_when_asked_for() {
    let kinds = |dns: bool, replicas: u8| {
        let settings = settings(Wishes {
            dns_service: Some(dns),
            replicas: Some(replicas),
            ..Wishes::default()
        });
        let objects = render(&settings).unwrap();
        let (services, budgets) = (
            of_kind(&objects, "Service").len(),
            of_kind(&objects, "PodDisruptionBudget").len(),
        );
        let listens = pod_of(&objects)["containers"][0]["args"].to_string();
        // Without the Service nobody but the pod itself asks it.
        assert_eq!(listens.contains("--dns-listen=127.0.0.1:1053"), !dns);
        (services, budgets)
    };
    assert_eq!(kinds(false, 1), (0, 0));
    assert_eq!(kinds(true, 1), (1, 0));
    assert_eq!(kinds(false, 2), (0, 1));
}

#[test]
fn install_the_image_is_the_one_of_the_registry_that_was_named() {
    let digest = "a".repeat(64);
    let settings = Wishes {
        image: Some(format!("r.example/m@sha256:{digest}").parse().unwrap()),
        registry: Some("mirror.corp/hub".to_owned()),
        image_pull_secrets: names(&["pull"]),
        ..Wishes::default()
    }
    .complete(None, Lists::Add, "default", None)
    .unwrap();
    let pod = pod_of(&render(&settings).unwrap());
    let image = &pod["containers"][0]["image"];
    assert_eq!(*image, format!("mirror.corp/hub/m@sha256:{digest}"));
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "pull"}]));
}

#[test]
fn install_docs_of_rights_are_made_from_the_manifests() {
    must_be("docs/rbac.md", &reference::text());
}
