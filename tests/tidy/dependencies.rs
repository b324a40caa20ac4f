//! The dependency graph as cargo resolves it: layers between our crates, licences, banned crates.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::Value;

use crate::tree::root;

/// What each of our packages may use of our own: `proto`, `dns` and `platform` stand alone.
const MAY_USE: [(&str, &[&str]); 6] = [
    ("kubebridge-proto", &[]),
    ("kubebridge-dns", &[]),
    ("kubebridge-platform", &[]),
    ("traffic-manager", &["kubebridge-proto", "kubebridge-dns"]),
    (
        "kubebridge",
        &[
            "kubebridge-proto",
            "kubebridge-dns",
            "kubebridge-platform",
            "traffic-manager",
        ],
    ),
    (
        "kubebridge-tests",
        &[
            "kubebridge-proto",
            "kubebridge-dns",
            "kubebridge-platform",
            "traffic-manager",
            "kubebridge",
        ],
    ),
];

/// External crates that one of our packages alone may depend on.
const OWNED_BY: [(&str, &[&str]); 9] = [
    ("hickory-proto", &["kubebridge-dns"]),
    ("prost", &["kubebridge-proto"]),
    ("tonic-prost", &["kubebridge-proto"]),
    ("zbus", &["kubebridge-platform"]),
    ("smoltcp", &["kubebridge"]),
    ("tun", &["kubebridge-platform"]),
    ("rtnetlink", &["kubebridge-platform"]),
    ("kube", &["traffic-manager", "kubebridge"]),
    ("k8s-openapi", &["traffic-manager", "kubebridge"]),
];

/// Rival stacks, unmaintained crates and second crypto providers.
const BANNED: [&str; 11] = [
    "async-std",
    "aws-lc-rs",
    "aws-lc-sys",
    "chrono",
    "directories",
    "moka",
    "native-tls",
    "openssl",
    "openssl-sys",
    "rustls-pemfile",
    "serde_yaml",
];

/// Licences that Apache-2.0 code may be distributed with.
const LICENCES: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates under another licence, each with the reason why it stays.
const LICENCE_EXCEPTIONS: [(&str, &str, &str); 1] = [(
    "tun",
    "WTFPL",
    "the TUN crate the project chose; places no condition",
)];

/// `cargo metadata` of the workspace, without asking the network.
fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Packages that are really built (the resolved graph), by name.
fn resolved(metadata: &Value) -> Vec<&Value> {
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let packages: BTreeMap<&str, &Value> = metadata["packages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|package| (package["id"].as_str().unwrap(), package))
        .collect();
    nodes
        .iter()
        .map(|node| packages[node["id"].as_str().unwrap()])
        .collect()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

#[test]
fn our_crates_depend_downwards_only() {
    let metadata = metadata();
    let mut strays = Vec::new();
    for (name, allowed) in MAY_USE {
        let package = resolved(&metadata)
            .into_iter()
            .find(|package| text(package, "name") == name)
            .unwrap_or_else(|| panic!("package {name} is gone from the workspace"));
        for dependency in package["dependencies"].as_array().unwrap() {
            let used = text(dependency, "name");
            let ours = MAY_USE.iter().any(|(of_ours, _)| *of_ours == used);
            if ours && used != name && !allowed.contains(&used) {
                strays.push(format!("{name} -> {used}"));
            }
            let owner = OWNED_BY.iter().find(|(owned, _)| *owned == used);
            if owner.is_some_and(|(_, owners)| !owners.contains(&name)) {
                strays.push(format!("{name} -> {used}"));
            }
        }
    }
    assert!(strays.is_empty(), "these break the layers: {strays:#?}");
}

#[test]
fn no_banned_crate_is_built() {
    let metadata = metadata();
    let found: Vec<&str> = resolved(&metadata)
        .into_iter()
        .map(|package| text(package, "name"))
        .filter(|name| BANNED.contains(name))
        .collect();
    assert!(found.is_empty(), "banned crates: {found:?}");
}

#[test]
fn every_licence_is_one_we_may_ship() {
    let metadata = metadata();
    let strays: Vec<String> = resolved(&metadata)
        .into_iter()
        .filter(|package| !permitted(text(package, "name"), text(package, "license")))
        .map(|package| format!("{}: {}", text(package, "name"), text(package, "license")))
        .collect();
    assert!(strays.is_empty(), "licences to look at: {strays:#?}");
}

/// Whether an SPDX expression offers a choice made of permitted licences only.
fn permitted(name: &str, expression: &str) -> bool {
    let excepted = LICENCE_EXCEPTIONS
        .iter()
        .any(|(krate, licence, _)| *krate == name && *licence == expression);
    // Older crates write `MIT/Apache-2.0` for a choice.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    excepted || (any_of(&mut words) && words.next().is_none())
}

/// The words of an SPDX expression, read from the left.
type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

/// Reads `all OR all …`: one permitted arm is enough.
fn any_of(words: &mut Words<'_>) -> bool {
    let mut permitted = all_of(words);
    while words.next_if_eq(&"OR").is_some() {
        permitted |= all_of(words);
    }
    permitted
}

/// Reads `licence AND licence …`: all of them must be permitted.
fn all_of(words: &mut Words<'_>) -> bool {
    let mut permitted = licence(words);
    while words.next_if_eq(&"AND").is_some() {
        permitted &= licence(words);
    }
    permitted
}

/// Reads one licence, with its exception, or a group in parentheses.
fn licence(words: &mut Words<'_>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        let permitted = any_of(words);
        return words.next_if_eq(&")").is_some() && permitted;
    }
    let mut name = words.next().unwrap_or_default().to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        name = format!("{name} WITH {}", words.next().unwrap_or_default());
    }
    LICENCES.contains(&name.as_str())
}

#[test]
fn licence_expressions_are_read_as_choices() {
    assert!(permitted("x", "MIT OR GPL-3.0"));
    assert!(permitted("x", "MIT/Apache-2.0"));
    assert!(permitted("x", "(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(!permitted("x", "GPL-3.0"));
    assert!(!permitted("x", "MIT AND GPL-3.0"));
    assert!(!permitted("x", "GPL-3.0 AND (MIT OR ISC)"));
    assert!(!permitted("x", ""));
    assert!(permitted("tun", "WTFPL"));
    assert!(!permitted("other", "WTFPL"));
}

#[test]
fn versions_stand_in_the_workspace_alone() {
    for krate in crate::tree::CRATES {
        let manifest = std::fs::read_to_string(root().join(krate).join("Cargo.toml")).unwrap();
        let own: Vec<&str> = manifest
            .lines()
            .filter(|line| line.contains("version = \"") || line.contains("path = \"../"))
            .collect();
        assert!(own.is_empty(), "{krate}/Cargo.toml names versions: {own:?}");
    }
}
