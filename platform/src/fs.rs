//! Files of the host under a root: exact reading, exact replacing.
//!
//! A replaced file keeps its mode, owner and extended attributes, and a symbolic link keeps being
//! one: its target is edited. How the bytes get there is `fs/replace.rs`; what to write is decided
//! elsewhere.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

pub use error::FsError;
pub(crate) use lock::try_lock;
pub use lock::{Lock, make_dir};
use replace::Place;
pub use replace::{BeforeInPlace, Replaced};
pub use snapshot::{Kind, Snapshot};

use crate::fault::Faults;
use crate::sys::Sys;

mod attributes;
mod error;
mod lock;
mod replace;
mod snapshot;

/// As many as the kernel follows in one path.
const MAX_LINKS: usize = 40;

/// The files below one folder, `/` except in tests.
#[derive(Debug, Clone)]
pub struct RootFs {
    root: PathBuf,
    faults: Faults,
}

impl RootFs {
    /// Makes the file system of a machine.
    pub fn new(sys: &Sys) -> Self {
        Self {
            root: sys.root.clone(),
            faults: sys.faults.clone(),
        }
    }

    /// Follows every symbolic link of an absolute path, inside the root; the end may be missing.
    pub fn resolve(&self, path: &Path) -> Result<PathBuf, FsError> {
        let mut waiting: Vec<PathBuf> = vec![path.to_owned()];
        let mut done = PathBuf::new();
        let mut links = 0;
        while let Some(part) = waiting.pop() {
            let mut components = part.components();
            match components.next() {
                None => continue,
                Some(Component::RootDir) => done.clear(),
                Some(Component::ParentDir) => drop(done.pop()),
                Some(Component::Normal(name)) => done.push(name),
                Some(Component::CurDir | Component::Prefix(_)) => {}
            }
            waiting.push(components.as_path().to_owned());
            let Ok(target) = fs::read_link(self.root.join(&done)) else {
                continue;
            };
            links += 1;
            if links > MAX_LINKS {
                return Err(FsError::TooManyLinks(path.to_owned()));
            }
            done.pop();
            waiting.push(target);
        }
        Ok(self.root.join(done))
    }

    /// Reads a regular file through symbolic links; `None` if there is none.
    pub fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, FsError> {
        let place = self.resolve(path)?;
        self.place(&place).read()
    }

    /// Takes an exact picture of what stands at `path`, without following a link there.
    pub fn snapshot(&self, path: &Path) -> Result<Snapshot, FsError> {
        let folder = self.resolve(path.parent().unwrap_or(path))?;
        Snapshot::take(&folder.join(path.file_name().unwrap_or_default()))
    }

    /// Replaces the content of `path`, provided it still is `expected` (`None`: no such file).
    pub fn replace(
        &self,
        path: &Path,
        expected: Option<&[u8]>,
        new: &[u8],
        before_in_place: BeforeInPlace<'_>,
    ) -> Result<Replaced, FsError> {
        let place = self.resolve(path)?;
        match expected {
            Some(old) => self.place(&place).replace(old, new, before_in_place),
            None => self.place(&place).create(new),
        }
    }

    /// Removes a file that still is `expected`; tells whether it did.
    pub fn remove(&self, path: &Path, expected: &[u8]) -> Result<bool, FsError> {
        let place = self.resolve(path)?;
        self.place(&place).remove(expected)
    }

    /// Removes the half-written file that a crash during [`RootFs::replace`] may have left.
    pub fn remove_stale_temporary(&self, path: &Path) -> Result<(), FsError> {
        let place = self.resolve(path)?;
        match self.place(&place).remove_temporary() {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(FsError::io(
                "removing the half-written copy of",
                &place,
            )(error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn place<'a>(&'a self, path: &'a Path) -> Place<'a> {
        Place {
            path,
            faults: &self.faults,
        }
    }
}

#[cfg(test)]
mod tests;
