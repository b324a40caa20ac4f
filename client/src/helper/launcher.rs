//! How a user becomes root here: sudo, else pkexec. Pure but for looking where the programs are.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use super::ARGUMENT;

/// What sudo asks with: whoever types a password should know what for.
const PROMPT: &str = "kubebridge changes this machine's DNS and hosts file; password for %p: ";

/// A program that runs another one as root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Launcher {
    /// sudo, which may ask where there is a terminal.
    Sudo {
        /// Where it is.
        path: PathBuf,
        /// Whether it may ask.
        may_ask: bool,
    },
    /// pkexec, which asks by the desktop's agent.
    Pkexec(PathBuf),
}

impl Launcher {
    /// Lists what there is, in the order to be tried.
    pub(super) fn all(search: Option<&OsStr>, has_terminal: bool) -> Vec<Self> {
        let found = |name: &str| {
            let folders = std::env::split_paths(search.unwrap_or_default());
            folders
                .filter(|folder| folder.is_absolute())
                .map(|folder| folder.join(name))
                .find(|path| is_program(path))
        };
        let sudo = found("sudo").map(|path| Self::Sudo {
            path,
            may_ask: has_terminal,
        });
        sudo.into_iter()
            .chain(found("pkexec").map(Self::Pkexec))
            .collect()
    }

    /// The launcher's own file.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Sudo { path, .. } | Self::Pkexec(path) => path,
        }
    }

    /// The arguments that make it run `program` as a helper.
    pub(super) fn arguments(&self, program: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = match self {
            Self::Sudo { may_ask: true, .. } => vec!["-p".into(), PROMPT.into(), "--".into()],
            Self::Sudo { may_ask: false, .. } => vec!["-n".into(), "--".into()],
            Self::Pkexec(_) => Vec::new(),
        };
        words.extend([program.into(), ARGUMENT.into()]);
        words
    }

    /// Whether it may take as long as a person takes to type a password.
    pub(super) fn may_ask(&self) -> bool {
        match self {
            Self::Sudo { may_ask, .. } => *may_ask,
            Self::Pkexec(_) => true,
        }
    }
}

fn is_program(path: &Path) -> bool {
    let rights = rustix::fs::Access::EXEC_OK;
    path.is_file() && rustix::fs::access(path, rights).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn words(launcher: &Launcher) -> Vec<String> {
        let words = launcher.arguments(Path::new("/opt/kubebridge"));
        words
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn arguments_are_a_closed_list() {
        let sudo = |may_ask| Launcher::Sudo {
            path: "/usr/bin/sudo".into(),
            may_ask,
        };
        assert_eq!(
            words(&sudo(false)),
            ["-n", "--", "/opt/kubebridge", "helper"]
        );
        assert_eq!(
            words(&sudo(true)),
            ["-p", PROMPT, "--", "/opt/kubebridge", "helper"]
        );
        let pkexec = Launcher::Pkexec("/usr/bin/pkexec".into());
        assert_eq!(words(&pkexec), ["/opt/kubebridge", "helper"]);
    }

    #[test]
    fn launchers_are_programs_in_absolute_folders_sudo_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("sudo"), "").unwrap();
        for name in ["sudo", "pkexec"] {
            std::fs::write(path(name), "").unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(path(name), mode).unwrap();
        }
        let search = std::env::join_paths([Path::new("."), folder.path()]).unwrap();

        let found = Launcher::all(Some(&search), false);

        let sudo = Launcher::Sudo {
            path: path("sudo"),
            may_ask: false,
        };
        assert_eq!(found, [sudo, Launcher::Pkexec(path("pkexec"))]);
        assert_eq!(Launcher::all(Some(OsStr::new(".")), true), []);
        assert_eq!(Launcher::all(None, true), []);
    }
}
