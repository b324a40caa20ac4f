//! What `certs` makes, and what it leaves alone.

use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;
use crate::control::secure::TlsFiles;

fn arguments(folder: &TempDir, hosts: &[&str], clients: &[&str]) -> CertsArgs {
    CertsArgs {
        out: folder.path().join("certs"),
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        clients: clients.iter().map(|name| name.parse().unwrap()).collect(),
        days: 30,
    }
}

fn names(made: &[String]) -> Vec<&str> {
    let name = |path: &String| path.rsplit('/').next().map(str::len).unwrap_or(0);
    made.iter()
        .map(|path| &path[path.len() - name(path)..])
        .collect()
}

#[test]
fn an_authority_a_server_and_clients_are_made_and_fit_together() {
    let folder = tempfile::tempdir().unwrap();
    let made = make(&arguments(
        &folder,
        &["manager.example", "192.0.2.7"],
        &["client"],
    ))
    .unwrap();
    let all = [
        "ca.key",
        "ca.crt",
        "server.key",
        "server.crt",
        "client.key",
        "client.crt",
    ];
    assert_eq!(names(&made), all);
    for path in &made {
        let mode = std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            mode,
            if path.ends_with(".key") { 0o600 } else { 0o644 },
            "{path}"
        );
    }
    for stem in ["client", "server"] {
        let at = |name: String| folder.path().join("certs").join(name);
        let files = TlsFiles {
            cert: at(format!("{stem}.crt")),
            key: at(format!("{stem}.key")),
            ca: at("ca.crt".to_owned()),
        };
        assert!(files.config().is_ok(), "{stem}");
    }
}

#[test]
fn another_client_is_added_with_the_same_authority() {
    let folder = tempfile::tempdir().unwrap();
    make(&arguments(&folder, &["manager.example"], &["client"])).unwrap();
    let made = make(&arguments(&folder, &[], &["ada", "grace"])).unwrap();
    assert_eq!(
        names(&made),
        ["ada.key", "ada.crt", "grace.key", "grace.crt"]
    );
}

#[test]
fn what_is_there_is_not_overwritten_and_nothing_is_made_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    make(&arguments(&folder, &["manager.example"], &["client"])).unwrap();
    let error = make(&arguments(&folder, &[], &["ada", "client"])).unwrap_err();
    assert!(
        format!("{error:#}").contains("client.crt is there already"),
        "{error:#}"
    );
    assert!(!folder.path().join("certs/ada.key").exists());
}

#[test]
fn half_an_authority_or_somebody_elses_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    make(&arguments(&folder, &[], &["client"])).unwrap();
    let certs = folder.path().join("certs");
    let other = tempfile::tempdir().unwrap();
    make(&arguments(&other, &[], &["client"])).unwrap();
    std::fs::copy(other.path().join("certs/ca.crt"), certs.join("ca.crt")).unwrap();
    let error = make(&arguments(&folder, &[], &["ada"])).unwrap_err();
    assert!(
        format!("{error:#}").contains("no authority of `kubebridge certs`"),
        "{error:#}"
    );
    assert!(!certs.join("ada.key").exists());
    std::fs::remove_file(certs.join("ca.key")).unwrap();
    let error = make(&arguments(&folder, &[], &["ada"])).unwrap_err();
    assert!(
        format!("{error:#}").contains("without the other"),
        "{error:#}"
    );
}
