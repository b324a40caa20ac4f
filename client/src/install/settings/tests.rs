//! What flags, an installation and defaults make together.

use super::*;

fn image(text: &str) -> Image {
    text.parse().unwrap()
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

fn installed() -> Settings {
    let wishes = Wishes {
        namespaces: names(&["shop", "default"]),
        scope: Some(Scope::ClusterWide),
        replicas: Some(2),
        image: Some(image("registry.example/traffic-manager:1")),
        registry: Some("mirror.corp/hub".to_owned()),
        image_pull_secrets: names(&["pull"]),
        dns_service: Some(true),
        tls_secret: Some("tls".to_owned()),
        users: names(&["dev"]),
        groups: names(&["team"]),
    };
    wishes.complete(None, Lists::Add, "default", None).unwrap()
}

#[test]
fn without_flags_it_is_one_manager_of_the_contexts_namespace() {
    let settings = Wishes::default()
        .complete(None, Lists::Add, "shop", Some("registry.example/m:1"))
        .unwrap();
    assert_eq!(settings.namespaces, ["shop"]);
    assert_eq!(settings.scope, Scope::Namespaced);
    assert_eq!(settings.replicas, 1);
    assert!(!settings.dns_service && settings.tls_secret.is_none());
}

#[test]
fn an_upgrade_keeps_what_was_chosen_and_takes_the_new_image_from_the_same_registry() {
    let before = installed();
    let same = Wishes::default()
        .complete(Some(&before), Lists::Replace, "other", None)
        .unwrap();
    assert_eq!(same, before);

    let newer = Wishes::default()
        .complete(
            Some(&before),
            Lists::Replace,
            "other",
            Some("registry.example/traffic-manager:2"),
        )
        .unwrap();
    let pulled = newer.pulled().unwrap().to_string();
    assert_eq!(pulled, "mirror.corp/hub/traffic-manager:2");
}

#[test]
fn install_adds_namespaces_and_upgrade_replaces_them() {
    let before = installed();
    let wishes = Wishes {
        namespaces: names(&["web", "shop"]),
        ..Wishes::default()
    };
    let complete = |lists| wishes.complete(Some(&before), lists, "x", None).unwrap();
    assert_eq!(complete(Lists::Add).namespaces, ["shop", "default", "web"]);
    assert_eq!(complete(Lists::Replace).namespaces, ["web", "shop"]);
    assert_eq!(complete(Lists::Replace).users, ["dev"]);
}

#[test]
fn an_empty_name_takes_away_what_was_chosen() {
    let wishes = Wishes {
        tls_secret: Some(String::new()),
        registry: Some(String::new()),
        dns_service: Some(false),
        ..Wishes::default()
    };
    let settings = wishes
        .complete(Some(&installed()), Lists::Replace, "x", None)
        .unwrap();
    assert_eq!(settings.tls_secret, None);
    assert_eq!(settings.registry, None);
    assert!(!settings.dns_service);
}

#[test]
fn what_cannot_be_installed_is_refused() {
    let given = Wishes {
        image: Some(image("registry.example/m:1")),
        ..Wishes::default()
    };
    let why = |wishes: &Wishes| {
        wishes
            .complete(None, Lists::Add, "default", None)
            .unwrap_err()
    };
    assert!(why(&Wishes::default()).contains("--image"));
    let home = Wishes {
        namespaces: names(&[HOME]),
        ..given.clone()
    };
    assert!(why(&home).contains("namespace kubebridge"));
    let many = Wishes {
        replicas: Some(6),
        ..given.clone()
    };
    assert!(why(&many).contains("6 replicas"));
    let nowhere = Wishes {
        registry: Some("no registry".to_owned()),
        ..given
    };
    assert!(why(&nowhere).contains("no registry"));
}

#[test]
fn what_is_kept_in_the_cluster_is_read_back() {
    let before = installed();
    let text = serde_json::to_string(&before).unwrap();
    assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), before);
}
