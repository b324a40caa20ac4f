//! Which file is run as root: this program, unless somebody else could have put it there.
//!
//! The user says yes to root for this path. What another user can change must not be there when
//! sudo runs it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::{getgid, getuid};

use crate::failure::{Exit, Failure};

/// What one file or folder on the way says about who can change it.
#[derive(Clone, Copy, Debug)]
struct Held {
    owner: u32,
    group: u32,
    mode: u32,
}

/// Returns the path of this program.
///
/// # Errors
///
/// It is gone, or somebody else can change it; exit code 77.
pub(crate) fn own() -> Result<PathBuf, Failure> {
    let refused = |words: String| {
        Failure::message(Exit::Privilege, words)
            .with_hint("install kubebridge where only you or root can write, or run it with sudo")
    };
    let path = std::env::current_exe()
        .and_then(fs::canonicalize)
        .map_err(|error| {
            refused(format!(
                "this program's file is not there any more: {error}"
            ))
        })?;
    match changeable(&path, getuid().as_raw(), getgid().as_raw())? {
        None => Ok(path),
        Some(part) => Err(refused(format!(
            "{} could be changed by others: it is not run as root",
            part.display()
        ))),
    }
}

/// Returns the part of a path that somebody else than `user` and root can change, if any.
fn changeable(path: &Path, user: u32, group: u32) -> io::Result<Option<PathBuf>> {
    for part in path.ancestors() {
        let metadata = fs::symlink_metadata(part)?;
        let held = Held {
            owner: metadata.uid(),
            group: metadata.gid(),
            mode: metadata.mode(),
        };
        if !is_safe(held, user, group) {
            return Ok(Some(part.to_owned()));
        }
    }
    Ok(None)
}

/// Whether only root and `user` can change it: `group` is the user's own.
fn is_safe(held: Held, user: u32, group: u32) -> bool {
    const STICKY_FOLDER: u32 = 0o041_000;
    const KIND: u32 = 0o170_000;
    if ![0, user].contains(&held.owner) {
        return false;
    }
    // In a sticky folder, as /tmp, an entry is its owner's and the folder's owner's to change.
    if held.mode & (KIND | 0o1000) == STICKY_FOLDER {
        return true;
    }
    let by_group = held.mode & 0o020 != 0 && ![0, group].contains(&held.group);
    let by_others = held.mode & 0o002 != 0;
    !(by_group || by_others)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u32 = 0o100_000;
    const FOLDER: u32 = 0o040_000;

    #[test]
    fn only_what_root_and_the_user_alone_can_change_is_run_as_root() {
        for (owner, group, mode, safe) in [
            (0, 0, FILE | 0o755, true),
            (1000, 1000, FILE | 0o775, true),
            (1000, 0, FILE | 0o775, true),
            (1000, 100, FILE | 0o755, true),
            (1000, 100, FILE | 0o775, false),
            (1000, 1000, FILE | 0o757, false),
            (1001, 1000, FILE | 0o700, false),
            (0, 0, FOLDER | 0o1777, true),
            (0, 0, FOLDER | 0o777, false),
            (1001, 0, FOLDER | 0o1755, false),
            // Sticky means nothing on a file.
            (1000, 1000, FILE | 0o1757, false),
        ] {
            let held = Held { owner, group, mode };
            assert_eq!(is_safe(held, 1000, 1000), safe, "{held:?} {mode:o}");
        }
    }

    #[test]
    fn every_folder_on_the_way_counts() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (user, group) = (getuid().as_raw(), getgid().as_raw());
        let inner = folder.path().join("bin");
        let file = inner.join("kubebridge");
        fs::create_dir(&inner).unwrap();
        fs::write(&file, "").unwrap();
        for path in [&inner, &file] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        assert_eq!(changeable(&file, user, group).unwrap(), None);

        fs::set_permissions(&inner, fs::Permissions::from_mode(0o777)).unwrap();

        assert_eq!(changeable(&file, user, group).unwrap(), Some(inner));
    }
}
