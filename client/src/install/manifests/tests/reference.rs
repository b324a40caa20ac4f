//! Makes `docs/rbac.md`: every right that the manifests give, and what applying them takes.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::*;
use crate::install::object::Identity;
use crate::install::record::Record;

const HEAD: &str = "# Rights

Made from the manifests by `KUBEBRIDGE_WRITE=1 cargo test -p kubebridge install_`; a test fails when it is
not what they say. There is no wildcard, and nobody is given a right to Secrets. `SHOP` stands for each namespace that sessions may open.

";

/// What a right of the manager is for.
const FOR: [(&str, &str); 6] = [
    (
        "services",
        "names and addresses; the only one it cannot do without",
    ),
    ("endpointslices", "which addresses flows may go to"),
    ("namespaces", "names of namespaces without Services"),
    ("nodes", "ranges of the pods' addresses"),
    (
        "servicecidrs",
        "ranges of ClusterIPs, Kubernetes 1.33 and later",
    ),
    (
        "/.well-known/openid-configuration, /openid/v1/jwks",
        "keys that tokens are verified with; every ServiceAccount has it unless the cluster took it away",
    ),
];

pub(super) fn text() -> String {
    let mut text = HEAD.to_owned();
    let section = |scope| {
        settings(Wishes {
            namespaces: names(&["shop"]),
            scope: Some(scope),
            users: names(&["USER"]),
            ..Wishes::default()
        })
    };
    let (narrow, wide) = (section(Scope::Namespaced), section(Scope::ClusterWide));
    let (narrow, wide) = (render(&narrow).unwrap(), render(&wide).unwrap());

    text.push_str("## The manager, of some namespaces\n\nIts ServiceAccount `traffic-manager` in `kubebridge`, by a Role and a RoleBinding in each namespace.\n\n");
    roles(&mut text, &narrow, READER, true);
    text.push_str("\nNothing of the whole cluster. Ranges of addresses then come from what Services show.\n\n");
    text.push_str("## The manager, of all namespaces\n\nWith `--all-namespaces` (`allNamespaces: true`), by a ClusterRole and a ClusterRoleBinding in their place.\n\n");
    roles(&mut text, &wide, READER, true);

    text.push_str("\n## Who opens sessions\n\nBy Roles `kubebridge-user`, bound to the users and groups of `--allow-user` and `--allow-group`, or by you:\n`kubectl create rolebinding kubebridge-dev -n SHOP --role kubebridge-user --user DEV`, in `kubebridge` too.\n\n");
    roles(&mut text, &narrow, USER, false);
    text.push_str("\nWhoever may make tokens of `kubebridge-access` in a namespace may open that namespace, and no other\n([security.md](security.md)). The account itself has no rights, and no pod runs as it.\n\n");

    text.push_str("## Who installs\n\n");
    installing(&mut text, &narrow, &wide);
    text
}

fn roles(text: &mut String, objects: &[Object], name: &str, explained: bool) {
    let (head, line) = if explained {
        (" For |", "---|")
    } else {
        ("", "")
    };
    writeln!(
        text,
        "| Where | API group | What | Verbs |{head}\n|---|---|---|---|{line}"
    )
    .unwrap();
    let mine =
        |object: &&Object| object.identity.name == name && object.identity.kind.ends_with("Role");
    for object in objects.iter().filter(mine) {
        let place = place(&object.identity);
        for rule in object.body["rules"].as_array().unwrap() {
            let list = |field: &str| {
                let items = rule[field].as_array();
                let items = items.into_iter().flatten().filter_map(Value::as_str);
                items.collect::<Vec<_>>().join(", ")
            };
            let resource = [list("resources"), list("nonResourceURLs")].concat();
            let group = match list("apiGroups") {
                group if !group.is_empty() => format!("`{group}`"),
                _ if rule["nonResourceURLs"].is_null() => "core".to_owned(),
                _ => "–".to_owned(),
            };
            let only = match list("resourceNames") {
                name if name.is_empty() => String::new(),
                name => format!(" `{name}`"),
            };
            write!(
                text,
                "| {place} | {group} | `{resource}`{only} | {} |",
                list("verbs")
            )
            .unwrap();
            if explained {
                let (_, why) = FOR.iter().find(|(of, _)| *of == resource).unwrap();
                write!(text, " {why} |").unwrap();
            }
            text.push('\n');
        }
    }
}

fn installing(text: &mut String, narrow: &[Object], wide: &[Object]) {
    text.push_str("`get`, `create` and `patch` on each of these, and `delete` for what an upgrade or `uninstall` removes:\n\n| Where | API group | What | With `--all-namespaces` only |\n|---|---|---|---|\n");
    let with_options = render(&everything(Scope::Namespaced)).unwrap();
    let kinds = |objects: &[Object]| -> BTreeSet<Identity> {
        let all = objects.iter().map(|object| object.identity.clone());
        all.map(general).collect()
    };
    let mut narrow = kinds(narrow);
    let options: BTreeSet<_> = kinds(&with_options);
    narrow.insert(general(Record::identity()));
    narrow.extend(options);
    let wide = kinds(wide);
    for identity in narrow.union(&wide) {
        let only = if narrow.contains(identity) { "" } else { "yes" };
        let group = match identity.group() {
            "" => "core".to_owned(),
            group => format!("`{group}`"),
        };
        let (place, resource) = (place(identity), identity.resource());
        writeln!(text, "| {place} | {group} | `{resource}` | {only} |").unwrap();
    }
    text.push_str("
To wait for the managers it reads Deployments there, and says more where it may `list` `pods`. Where somebody else has
made the namespace `kubebridge`, the right to namespaces is not needed: it is used as it is.

Kubernetes lets nobody give rights they do not have: who installs needs the rights of the Roles above too, or the verb
`escalate` on `roles` and `bind` on the Roles, as `cluster-admin` has. What is missing is named before anything is written.
");
}

/// The same for every name.
fn general(identity: Identity) -> Identity {
    let namespace = identity
        .namespace
        .map(|namespace| match namespace.as_str() {
            HOME => namespace,
            _ => "shop".to_owned(),
        });
    Identity {
        namespace,
        name: String::new(),
        ..identity
    }
}

fn place(identity: &Identity) -> String {
    match identity.namespace.as_deref() {
        None => "whole cluster".to_owned(),
        Some(HOME) => format!("`{HOME}`"),
        Some(_) => "`SHOP`".to_owned(),
    }
}
