//! Which files, contexts and settings make a target, and what is said of those that do not.

use std::fs;

use tempfile::TempDir;

use super::*;

const ONE: &str = "
apiVersion: v1
kind: Config
current-context: one
clusters: [{name: a, cluster: {server: 'https://a.example:6443/'}}]
users: [{name: ann, user: {token: t}}]
contexts: [{name: one, context: {cluster: a, user: ann, namespace: shop}}]
";

const TWO: &str = "
apiVersion: v1
kind: Config
current-context: two
clusters:
- {name: a, cluster: {server: 'https://not-this.example'}}
- {name: b, cluster: {server: 'https://b.example', certificate-authority: ca.crt, proxy-url: 'http://10.0.0.1:3128'}}
users: [{name: bob, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, interactiveMode: Never}}}]
contexts: [{name: two, context: {cluster: b, user: bob}}]
";

fn folder(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn by_variable(folder: &TempDir, names: &[&str]) -> Source {
    let paths = names.iter().map(|name| folder.path().join(name));
    Source {
        environment: Environment {
            kubeconfig: Some(std::env::join_paths(paths).unwrap()),
            ..Environment::default()
        },
        ..Source::default()
    }
}

fn certificate() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.self_signed(&key).unwrap().pem()
}

#[tokio::test]
async fn of_several_files_the_first_to_say_something_wins_and_absent_ones_are_passed_over() {
    let folder = folder(&[("one", ONE), ("two", TWO), ("ca.crt", &certificate())]);
    let source = by_variable(&folder, &["absent", "one", "two"]);

    let target = source.load().await.unwrap();
    assert_eq!(
        (target.context.as_str(), target.user.as_str()),
        ("one", "ann")
    );
    assert_eq!(target.place().server, "https://a.example:6443");
    assert_eq!(target.place().proxy, None);

    let other = Source {
        context: Some("two".to_owned()),
        ..source
    };
    let target = other.load().await.unwrap();
    assert_eq!(target.place().server, "https://b.example");
    assert_eq!(target.place().proxy.unwrap(), "http://10.0.0.1:3128");
    assert_eq!(target.user, "bob");
    let authority = target.config.root_cert.unwrap();
    assert_eq!(authority.len(), 1, "found beside its file");
    // Nothing was run for it.
    assert!(target.config.auth_info.exec.is_some());
}

#[tokio::test]
async fn the_context_of_the_start_stays_and_gives_the_namespace() {
    let folder = folder(&[("one", ONE)]);
    let (source, namespace) = by_variable(&folder, &["one"]).settle().await.unwrap();
    assert_eq!(source.context.as_deref(), Some("one"));
    assert_eq!(namespace, "shop");
}

#[tokio::test]
async fn a_file_named_by_flag_stands_for_all_others() {
    let folder = folder(&[("one", ONE), ("two", TWO), ("ca.crt", &certificate())]);
    let source = Source {
        file: Some(folder.path().join("two")),
        ..by_variable(&folder, &["one"])
    };
    assert_eq!(source.load().await.unwrap().context, "two");
}

#[tokio::test]
async fn what_is_wrong_with_a_kubeconfig_is_said_with_its_exit_code_and_a_hint() {
    let folder = folder(&[
        ("one", ONE),
        ("broken", "clusters: [\nusers: {"),
        (
            "dangling",
            "current-context: gone\ncontexts: [{name: here, context: {cluster: c}}]",
        ),
        ("none", "contexts: [{name: here, context: {cluster: c}}]"),
        (
            "no-cluster",
            "current-context: here\ncontexts: [{name: here, context: {cluster: c}}]",
        ),
        (
            "old",
            "current-context: here\n\
             clusters: [{name: c, cluster: {server: 'https://a.example'}}]\n\
             users: [{name: u, user: {auth-provider: {name: gcp}}}]\n\
             contexts: [{name: here, context: {cluster: c, user: u}}]",
        ),
    ]);
    let table = [
        ("broken", None, Exit::File, "broken"),
        (
            "absent",
            None,
            Exit::File,
            "there is no kubeconfig (looked at",
        ),
        (
            "dangling",
            None,
            Exit::File,
            "the current context gone is not among",
        ),
        ("none", None, Exit::File, "names no current context"),
        ("no-cluster", None, Exit::File, "context here"),
        ("old", None, Exit::File, "auth-provider gcp"),
        ("one", Some("nope"), Exit::Usage, "--context nope"),
    ];
    for (file, context, exit, words) in table {
        let source = Source {
            context: context.map(str::to_owned),
            ..by_variable(&folder, &[file])
        };
        let failure = source.load().await.unwrap_err();
        assert_eq!(failure.exit, exit, "{file}: {failure}");
        let text = failure.error.to_string();
        assert!(
            text.contains(words) && !text.contains('\n'),
            "{file}: {text}"
        );
        assert!(failure.hint.is_some(), "{file}");
    }
}

#[tokio::test]
async fn under_sudo_the_users_own_kubeconfig_is_hinted_at() {
    let home = tempfile::tempdir().unwrap();
    let source = Source {
        environment: Environment {
            home: Some(home.path().to_owned()),
            by_sudo: true,
            ..Environment::default()
        },
        ..Source::default()
    };
    let failure = source.load().await.unwrap_err();
    assert!(failure.hint.unwrap().contains("--preserve-env=KUBECONFIG"));
    fs::create_dir(home.path().join(".kube")).unwrap();
    fs::write(home.path().join(".kube/config"), ONE).unwrap();
    assert_eq!(source.load().await.unwrap().context, "one");
}
