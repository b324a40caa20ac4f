//! What is written, what is refused, and that removing leaves what was there before.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use super::*;

const PROGRAM: &str = "/usr/local/bin/kubebridge";

fn machine() -> (TempDir, Sys) {
    let root = tempfile::tempdir().unwrap();
    for folder in ["run/systemd/system", "etc/systemd/system"] {
        fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    fs::write(root.path().join("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    let sys = Sys {
        root: root.path().to_owned(),
        ..Sys::default()
    };
    (root, sys)
}

/// Everything below `/etc`, links as where they lead.
fn etc(root: &TempDir) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.path().join("etc")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let text = if metadata.is_symlink() {
                format!("-> {}", fs::read_link(&path).unwrap().display())
            } else if metadata.is_dir() {
                folders.push(path.clone());
                "folder".to_owned()
            } else {
                let mode = metadata.permissions().mode();
                format!("{mode:o} {}", fs::read_to_string(&path).unwrap())
            };
            found.insert(path, text);
        }
    }
    found
}

#[test]
fn recovery_is_installed_once_and_removed_without_a_trace() {
    let (root, sys) = machine();
    let before = etc(&root);
    let planned = plan(&sys, Path::new(PROGRAM)).unwrap();

    let written = install(&sys, &planned).unwrap();

    assert_eq!(written, [planned.unit.clone(), planned.link.clone()]);
    let unit = sys.path(&planned.unit);
    assert_eq!(fs::read_to_string(&unit).unwrap(), planned.content);
    assert_eq!(
        fs::metadata(&unit).unwrap().permissions().mode() & 0o777,
        0o644
    );
    let linked = fs::canonicalize(sys.path(&planned.link)).unwrap();
    assert_eq!(linked, fs::canonicalize(&unit).unwrap());
    assert_eq!(install(&sys, &planned).unwrap(), Vec::<PathBuf>::new());

    assert_eq!(remove(&sys).unwrap(), [planned.link, planned.unit]);
    assert_eq!(etc(&root), before);
    assert_eq!(remove(&sys).unwrap(), Vec::<PathBuf>::new());
}

#[test]
fn a_unit_of_before_is_brought_to_the_program_of_now_and_the_folder_of_others_stays() {
    let (root, sys) = machine();
    let wants = root.path().join("etc/systemd/system/sysinit.target.wants");
    fs::create_dir(&wants).unwrap();
    fs::write(wants.join("other.service"), "").unwrap();
    let before = etc(&root);
    install(&sys, &plan(&sys, Path::new("/opt/old")).unwrap()).unwrap();

    let planned = plan(&sys, Path::new(PROGRAM)).unwrap();
    assert_eq!(
        install(&sys, &planned).unwrap(),
        std::slice::from_ref(&planned.unit)
    );

    let now = fs::read_to_string(sys.path(&planned.unit)).unwrap();
    assert!(
        now.contains("ExecStart=/usr/local/bin/kubebridge recover"),
        "{now}"
    );
    remove(&sys).unwrap();
    assert_eq!(etc(&root), before);
}

#[test]
fn what_is_of_somebody_else_is_neither_replaced_nor_removed() {
    for (path, link) in [
        ("etc/systemd/system/kubebridge-recover.service", None),
        (
            "etc/systemd/system/kubebridge-recover.service",
            Some("/dev/null"),
        ),
        (
            "etc/systemd/system/sysinit.target.wants/kubebridge-recover.service",
            None,
        ),
        (
            "etc/systemd/system/sysinit.target.wants/kubebridge-recover.service",
            Some("/elsewhere"),
        ),
    ] {
        let (root, sys) = machine();
        let at = root.path().join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        match link {
            Some(to) => symlink(to, &at).unwrap(),
            None => fs::write(&at, "[Unit]\n").unwrap(),
        }
        let before = etc(&root);
        let planned = plan(&sys, Path::new(PROGRAM)).unwrap();

        let error = install(&sys, &planned).unwrap_err();

        assert!(matches!(error, BootError::Foreign(_)), "{path}: {error:?}");
        // Of a unit that is not ours nothing is removed either.
        drop(remove(&sys));
        assert_eq!(etc(&root), before, "{path} {link:?}");
    }
}

#[test]
fn a_machine_that_systemd_does_not_run_has_no_units() {
    let (root, sys) = machine();
    fs::remove_dir(root.path().join("run/systemd/system")).unwrap();
    let error = plan(&sys, Path::new(PROGRAM)).unwrap_err();
    assert!(matches!(error, BootError::NoSystemd), "{error:?}");
    let (_root, sys) = machine();
    let error = plan(&sys, Path::new("kubebridge")).unwrap_err();
    assert!(matches!(error, BootError::Program(_)), "{error:?}");
}
