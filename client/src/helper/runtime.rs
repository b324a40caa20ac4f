//! Where the sessions of a user have their sockets: a folder of theirs that nobody else may enter.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use kubebridge_platform::Sys;
use rustix::process::{Uid, geteuid};

use crate::failure::{Exit, Failure};

/// The name of our folder below a folder of the user's.
const NAME: &str = "kubebridge";

/// Where users have a folder each until they log out.
const USERS: &str = "/run/user";

/// Where sessions of one user are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// The folder.
    pub path: PathBuf,
    /// Whose sessions these are: nobody else's are spoken to there.
    pub owner: Uid,
}

/// Returns the folder of this user's sessions; it may not be there yet.
#[must_use]
pub fn own_runtime() -> PathBuf {
    let variable = |name: &str| env::var_os(name).map(PathBuf::from);
    folder(geteuid(), variable, owner_of)
}

/// Returns where this user may find sessions: its own, and for root everybody's.
#[must_use]
pub fn runtimes() -> Vec<Runtime> {
    let own = Runtime {
        path: own_runtime(),
        owner: geteuid(),
    };
    let mut all = vec![own];
    if geteuid().is_root() {
        all.extend(of_users(Path::new(USERS)));
    }
    all
}

/// Makes the folder of this user's sessions, and makes sure that it is nobody else's.
///
/// # Errors
///
/// It cannot be made, or others can enter it.
pub(crate) fn prepare(path: &Path) -> Result<(), Failure> {
    let failed = |error: io::Error| {
        Failure::new(Exit::HostOs, error).context(format!("folder for sockets {}", path.display()))
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(failed)?;
    let metadata = fs::symlink_metadata(path).map_err(failed)?;
    if metadata.is_dir() && metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0 {
        return Ok(());
    }
    Err(Failure::message(
        Exit::HostOs,
        format!("{} is not a folder of this user alone", path.display()),
    )
    .with_hint("remove it, or set XDG_RUNTIME_DIR to a folder of yours"))
}

/// The folder of a user. What the environment names has to be the user's own: after `su` it is
/// another's.
fn folder(
    user: Uid,
    variable: impl Fn(&str) -> Option<PathBuf>,
    owner: impl Fn(&Path) -> Option<Uid>,
) -> PathBuf {
    if user.is_root() {
        return Sys::default().runtime_dir;
    }
    let usual = Path::new(USERS).join(user.as_raw().to_string());
    let named = variable("XDG_RUNTIME_DIR").filter(|path| path.is_absolute());
    let of_user = |path: &PathBuf| owner(path) == Some(user);
    match named.into_iter().chain([usual.clone()]).find(of_user) {
        Some(folder) => folder.join(NAME),
        None => match variable("HOME").filter(|path| path.is_absolute()) {
            Some(home) => home.join(".cache").join(NAME).join("run"),
            None => usual.join(NAME),
        },
    }
}

fn of_users(users: &Path) -> Vec<Runtime> {
    let entries = fs::read_dir(users).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .filter_map(|entry| {
            let owner = Uid::from_raw(entry.file_name().to_str()?.parse().ok()?);
            let path = entry.path().join(NAME);
            // Root's are not there, and what is not the user's is nobody's session.
            let is_theirs = !owner.is_root() && owner_of(&path) == Some(owner);
            is_theirs.then_some(Runtime { path, owner })
        })
        .collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    found
}

/// Whose folder that is; `None` for anything else, a symbolic link too.
fn owner_of(path: &Path) -> Option<Uid> {
    let metadata = fs::symlink_metadata(path).ok()?;
    metadata.is_dir().then(|| Uid::from_raw(metadata.uid()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn chosen(user: u32, variables: &[(&str, &str)], owners: &[(&str, u32)]) -> String {
        let variable = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| PathBuf::from(value))
        };
        let owner = |path: &Path| {
            let found = owners.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, user)| Uid::from_raw(*user))
        };
        let path = folder(Uid::from_raw(user), variable, owner);
        path.display().to_string()
    }

    #[test]
    fn a_user_has_its_own_folder_and_never_another_users() {
        let set = &[("XDG_RUNTIME_DIR", "/x"), ("HOME", "/home/u")][..];
        let home = &set[1..];
        let usual = ("/run/user/1000", 1000);
        for (user, variables, owners, expected) in [
            (0, set, &[("/x", 0)][..], "/run/kubebridge"),
            (1000, set, &[("/x", 1000), usual], "/x/kubebridge"),
            // Left over from before `su`.
            (
                1000,
                set,
                &[("/x", 1001), usual],
                "/run/user/1000/kubebridge",
            ),
            (1000, home, &[usual], "/run/user/1000/kubebridge"),
            (1000, home, &[], "/home/u/.cache/kubebridge/run"),
            (
                1000,
                &[("XDG_RUNTIME_DIR", "x"), ("HOME", "/h")],
                &[("x", 1000)],
                "/h/.cache/kubebridge/run",
            ),
            (1000, &[], &[], "/run/user/1000/kubebridge"),
        ] {
            assert_eq!(chosen(user, variables, owners), expected);
        }
    }

    #[test]
    fn a_folder_that_others_may_write_or_that_is_a_link_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kubebridge");
        prepare(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o700);
        prepare(&path).unwrap();

        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(prepare(&path).is_err());
        let link = folder.path().join("link");
        symlink(folder.path(), &link).unwrap();
        assert!(prepare(&link).is_err());
        assert_eq!(owner_of(&link), None);
    }
}
