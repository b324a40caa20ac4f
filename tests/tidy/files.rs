//! The shape of files: length, headers, layers seen from the source text, the architecture map.

use crate::tree::{CRATES, files, root, rust_sources};

/// A file this long holds more than one idea (house style, rule 1).
const MOST_LINES: usize = 500;

/// The architecture map must stay readable in one sitting.
const MOST_ARCHITECTURE_LINES: usize = 150;

/// Which paths alone may name an external crate: everything else goes through their types.
const MAY_NAME: [(&str, &[&str]); 10] = [
    ("hickory_proto::", &["dns/src/"]),
    ("prost::", &["proto/"]),
    (
        "kube::",
        &["traffic-manager/src/kubernetes", "client/src/cluster"],
    ),
    (
        "k8s_openapi::",
        &["traffic-manager/src/kubernetes", "client/src/cluster"],
    ),
    (
        "h2::",
        &[
            "dns/src/",
            "proto/src/flow",
            "client/src/flows",
            "traffic-manager/src/data",
        ],
    ),
    ("zbus::", &["platform/"]),
    ("tun::", &["platform/"]),
    ("smoltcp::", &["client/src/netstack"]),
    ("rtnetlink::", &["platform/"]),
    (
        "traffic_manager::",
        &["traffic-manager/", "client/src/demo", "tests/"],
    ),
];

/// The lines of a source before its inline tests.
fn lines_without_tests(text: &str) -> usize {
    text.lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]"))
        .count()
}

#[test]
fn no_source_file_is_longer_than_the_house_allows() {
    let long: Vec<String> = rust_sources()
        .iter()
        .filter(|(path, _)| !is_tests_of_a_module(path))
        .map(|(path, text)| (path, lines_without_tests(text)))
        .filter(|(_, lines)| *lines > MOST_LINES)
        .map(|(path, lines)| format!("{path}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "split these by idea: {long:#?}");
}

#[test]
fn every_source_file_says_what_it_is_for() {
    let bare: Vec<String> = rust_sources()
        .into_iter()
        .filter(|(path, text)| !text.starts_with("//!") && !is_tests_of_a_module(path))
        .map(|(path, _)| path)
        .collect();
    assert!(bare.is_empty(), "no `//!` header: {bare:#?}");
}

/// Whether a file holds the tests of a module or a crate, and nothing else.
fn is_tests_of_a_module(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

#[test]
fn modules_are_named_by_their_file() {
    let found: Vec<String> = files()
        .into_iter()
        .filter(|path| path.ends_with("/mod.rs"))
        .collect();
    assert!(found.is_empty(), "foo.rs beside foo/, not {found:?}");
}

#[test]
fn external_crates_are_named_only_where_their_types_belong() {
    let mut strays = Vec::new();
    for (path, text) in rust_sources() {
        for (name, allowed) in MAY_NAME {
            if path.starts_with("tests/tidy/") || allowed.iter().any(|at| path.starts_with(at)) {
                continue;
            }
            for (number, line) in text.lines().enumerate() {
                if names(line, name) {
                    strays.push(format!("{path}:{}: {name}", number + 1));
                }
            }
        }
    }
    assert!(strays.is_empty(), "these break the layers: {strays:#?}");
}

/// Whether code (not a comment) on this line names the crate `name`, not an item that ends alike.
fn names(line: &str, name: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    code.match_indices(name).any(|(at, _)| {
        !code[..at].ends_with(|before: char| before.is_alphanumeric() || "_:".contains(before))
    })
}

#[test]
fn a_crate_is_found_by_its_whole_name() {
    assert!(names("use kube::Client;", "kube::"));
    assert!(!names("use mykube::Client;", "kube::"));
    assert!(!names("// see kube::Client", "kube::"));
    assert!(!names("use crate::tun::Device;", "tun::"));
}

#[test]
fn the_architecture_map_is_short_and_names_every_module() {
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    assert!(
        map.lines().count() <= MOST_ARCHITECTURE_LINES,
        "ARCHITECTURE.md is longer than {MOST_ARCHITECTURE_LINES} lines"
    );
    let missing: Vec<String> = files()
        .into_iter()
        .filter(|path| !map.contains(&format!("`{}`", module(path).unwrap_or_default())))
        .filter(|path| module(path).is_some())
        .collect();
    assert!(missing.is_empty(), "not in ARCHITECTURE.md: {missing:#?}");
}

/// The name under which a top-level module of a crate stands in the map.
fn module(path: &str) -> Option<&str> {
    let (krate, rest) = path.split_once("/src/")?;
    let name = rest.strip_suffix(".rs")?;
    let shown = CRATES.contains(&krate) && !["lib", "main"].contains(&name);
    (shown && !name.contains('/')).then_some(name)
}

#[test]
fn nothing_names_a_registry_host() {
    let words = ["static.crates.io", "index.crates.io", "proxy.golang.org"];
    let strays: Vec<String> = files()
        .into_iter()
        .filter(|path| !path.starts_with("tests/tidy/") && path != "Cargo.lock")
        .filter(|path| {
            let bytes = std::fs::read(root().join(path)).unwrap();
            let text = String::from_utf8_lossy(&bytes);
            words.iter().any(|word| text.contains(word))
        })
        .collect();
    assert!(strays.is_empty(), "registry hosts in {strays:?}");
}
