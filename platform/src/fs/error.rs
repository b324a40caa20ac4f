//! What can go wrong with a file.

use std::io;
use std::path::{Path, PathBuf};

/// Why a file could not be handled.
#[derive(Debug, thiserror::Error)]
pub enum FsError {
    /// A system call failed.
    #[error("{action} {}", path.display())]
    Io {
        /// What was being done, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The path leads through too many symbolic links.
    #[error("too many symbolic links at {}", .0.display())]
    TooManyLinks(PathBuf),
    /// The path is something other than a regular file.
    #[error("{} is not a regular file", .0.display())]
    NotRegular(PathBuf),
    /// Another program changed the file each time we were about to.
    #[error("{} keeps being changed by another program", .0.display())]
    Contended(PathBuf),
    /// Another process of ours held the lock for too long.
    #[error("{} is locked by another kubebridge process", .0.display())]
    Locked(PathBuf),
    /// The file is too big to add lines to.
    #[error("{} is too big to add lines to ({size} bytes)", path.display())]
    TooBig {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: usize,
    },
    /// The old content could not be journalled before a write.
    #[error("journalling {} before changing it", path.display())]
    Journal {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: io::Error,
    },
}

impl FsError {
    /// Returns the wrapper for what the system says while doing `action` to `path`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
