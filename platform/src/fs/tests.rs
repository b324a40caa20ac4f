use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

struct Root {
    folder: tempfile::TempDir,
    fs: RootFs,
}

fn root() -> Root {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("etc")).unwrap();
    let fs = RootFs::new(&Sys {
        root: folder.path().to_owned(),
        ..Sys::default()
    });
    Root { folder, fs }
}

impl Root {
    fn place(&self, path: &str) -> PathBuf {
        self.folder.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, bytes: &[u8]) {
        fs::write(self.place(path), bytes).unwrap();
    }

    fn replace(&self, path: &str, expected: Option<&[u8]>, new: &[u8]) -> Replaced {
        self.fs
            .replace(Path::new(path), expected, new, &mut |_| {
                panic!("no in-place write expected")
            })
            .unwrap()
    }
}

const HOSTS: &str = "/etc/hosts";

#[test]
fn a_replaced_file_keeps_mode_and_extended_attributes() {
    let root = root();
    root.write(HOSTS, b"old");
    fs::set_permissions(root.place(HOSTS), fs::Permissions::from_mode(0o640)).unwrap();
    let attributes = xattr::set(root.place(HOSTS), "user.note", b"mine").is_ok();

    assert_eq!(root.replace(HOSTS, Some(b"old"), b"new"), Replaced::Renamed);

    let after = root.fs.snapshot(Path::new(HOSTS)).unwrap();
    assert_eq!(
        (after.kind, after.mode),
        (Kind::File(b"new".to_vec()), 0o640)
    );
    if attributes {
        assert_eq!(
            xattr::get(root.place(HOSTS), "user.note").unwrap().unwrap(),
            b"mine"
        );
    }
    assert_eq!(fs::read_dir(root.place("/etc")).unwrap().count(), 1);
}

#[test]
fn the_target_of_a_link_is_edited_and_the_link_stays() {
    let root = root();
    fs::create_dir(root.place("/data")).unwrap();
    root.write("/data/hosts", b"old");
    symlink("/data/hosts", root.place("/etc/middle")).unwrap();
    symlink("../etc/./middle", root.place(HOSTS)).unwrap();
    let before = root.fs.snapshot(Path::new(HOSTS)).unwrap();

    root.replace(HOSTS, Some(b"old"), b"new");

    assert_eq!(root.fs.snapshot(Path::new(HOSTS)).unwrap(), before);
    assert_eq!(before.kind, Kind::Symlink(b"../etc/./middle".to_vec()));
    assert_eq!(fs::read(root.place("/data/hosts")).unwrap(), b"new");
}

#[test]
fn links_never_lead_out_of_the_root() {
    let root = root();
    symlink("../../../../../../etc/passwd", root.place(HOSTS)).unwrap();
    assert_eq!(
        root.fs.resolve(Path::new(HOSTS)).unwrap(),
        root.place("/etc/passwd")
    );
    symlink("/loop", root.place("/loop")).unwrap();
    assert!(matches!(
        root.fs.read(Path::new("/loop")),
        Err(FsError::TooManyLinks(_))
    ));
}

#[test]
fn a_file_that_is_not_as_expected_is_left_alone() {
    let root = root();
    root.write(HOSTS, b"theirs");
    assert_eq!(root.replace(HOSTS, Some(b"old"), b"new"), Replaced::Changed);
    assert_eq!(root.replace(HOSTS, None, b"new"), Replaced::Changed);
    assert_eq!(fs::read(root.place(HOSTS)).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(root.place("/etc")).unwrap().count(), 1);
}

#[test]
fn a_missing_file_is_created_and_can_be_removed_again() {
    let root = root();
    assert_eq!(root.replace(HOSTS, None, b"new"), Replaced::Renamed);
    assert_eq!(root.fs.snapshot(Path::new(HOSTS)).unwrap().mode, 0o644);

    assert!(!root.fs.remove(Path::new(HOSTS), b"other").unwrap());
    assert!(root.fs.remove(Path::new(HOSTS), b"new").unwrap());

    assert_eq!(
        root.fs.snapshot(Path::new(HOSTS)).unwrap().kind,
        Kind::Absent
    );
}

#[test]
fn a_file_with_two_names_is_written_in_place_after_its_old_content_was_saved() {
    let root = root();
    root.write(HOSTS, b"old and long");
    fs::hard_link(root.place(HOSTS), root.place("/etc/second")).unwrap();
    let mut saved = Vec::new();
    let mut save = |old: &[u8]| {
        saved = old.to_vec();
        Ok(())
    };

    let replaced = root
        .fs
        .replace(Path::new(HOSTS), Some(b"old and long"), b"new", &mut save)
        .unwrap();

    assert_eq!(
        (replaced, saved.as_slice()),
        (Replaced::InPlace, b"old and long".as_slice())
    );
    assert_eq!(fs::read(root.place("/etc/second")).unwrap(), b"new");
}

#[test]
fn nothing_is_written_in_place_when_the_old_content_could_not_be_saved() {
    let root = root();
    root.write(HOSTS, b"old");
    fs::hard_link(root.place(HOSTS), root.place("/etc/second")).unwrap();
    let mut fail = |_: &[u8]| Err(io::Error::other("disk full"));

    let replaced = root
        .fs
        .replace(Path::new(HOSTS), Some(b"old"), b"new", &mut fail);

    assert!(matches!(replaced, Err(FsError::Journal { .. })));
    assert_eq!(fs::read(root.place(HOSTS)).unwrap(), b"old");
}

#[test]
fn a_half_written_copy_of_a_crash_is_in_nobodys_way() {
    let root = root();
    root.write(HOSTS, b"old");
    root.write("/etc/.hosts.kubebridge-new", b"ne");
    root.replace(HOSTS, Some(b"old"), b"new");
    root.write("/etc/.hosts.kubebridge-new", b"ne");
    root.fs.remove_stale_temporary(Path::new(HOSTS)).unwrap();
    root.fs.remove_stale_temporary(Path::new(HOSTS)).unwrap();
    assert_eq!(fs::read_dir(root.place("/etc")).unwrap().count(), 1);
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let root = root();
    fs::create_dir(root.place(HOSTS)).unwrap();
    assert!(matches!(
        root.fs.read(Path::new(HOSTS)),
        Err(FsError::NotRegular(_))
    ));
}

#[test]
fn a_lock_has_one_holder() {
    let root = root();
    let path = root.place("/etc/lock");
    let none = Faults::default();
    let mut held = Lock::try_acquire(&path, &none).unwrap().unwrap();
    held.sign("42").unwrap();
    assert!(matches!(
        Lock::acquire(&path, 1, &none),
        Err(FsError::Locked(_))
    ));
    assert_eq!(Lock::signature(&path).unwrap(), "42");
    drop(held);
    assert!(Lock::acquire(&path, 0, &none).is_ok());
}
