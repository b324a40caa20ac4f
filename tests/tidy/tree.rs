//! The files of this repository as git tracks them, and nothing a build left behind.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The crates of the workspace by folder, bottom first.
pub(crate) const CRATES: [&str; 6] = [
    "proto",
    "dns",
    "platform",
    "traffic-manager",
    "client",
    "tests",
];

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Paths, relative to the root, of all files that are tracked or could be added.
pub(crate) fn files() -> Vec<String> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "git ls-files failed");
    let mut files: Vec<String> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter(|path| root().join(path).is_file())
        .map(str::to_owned)
        .collect();
    files.sort();
    files.dedup();
    files
}

/// Rust sources with their text.
pub(crate) fn rust_sources() -> Vec<(String, String)> {
    files()
        .into_iter()
        .filter(|path| path.ends_with(".rs"))
        .map(|path| {
            let text = std::fs::read_to_string(root().join(&path)).unwrap();
            (path, text)
        })
        .collect()
}
