//! Lock files and folders of our own.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::FsError;
use crate::fault::Faults;

/// How long one attempt waits for the next.
const PAUSE: Duration = Duration::from_millis(20);

/// A held lock file; released on drop, also by the kernel when the process dies.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    /// Takes the lock, waiting at most `attempts` short pauses (blocking); fails closed.
    pub fn acquire(path: &Path, attempts: u32, faults: &Faults) -> Result<Self, FsError> {
        for attempt in 0.. {
            if let Some(lock) = Self::try_acquire(path, faults)? {
                return Ok(lock);
            }
            if attempt >= attempts {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Err(FsError::Locked(path.to_owned()))
    }

    /// Takes the lock if it is free.
    pub fn try_acquire(path: &Path, faults: &Faults) -> Result<Option<Self>, FsError> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600);
        let file = faults
            .step_without_space("lock")
            .and_then(|()| options.open(path))
            .map_err(FsError::io("opening", path))?;
        Ok(try_lock(&file, path)?.then_some(Self { file }))
    }

    /// Writes who holds the lock into it.
    pub fn sign(&mut self, text: &str) -> std::io::Result<()> {
        self.file.set_len(0)?;
        self.file.write_all(text.as_bytes())
    }

    /// Reads who signed the lock at `path`.
    pub fn signature(path: &Path) -> Option<String> {
        let mut text = String::new();
        File::open(path).ok()?.read_to_string(&mut text).ok()?;
        Some(text)
    }
}

/// Locks an open file if nobody else has; tells whether it did.
pub(crate) fn try_lock(file: &File, path: &Path) -> Result<bool, FsError> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(FsError::io("locking", path)(errno.into())),
    }
}

/// Makes a folder of ours, with its parents, if it is missing.
pub fn make_dir(path: &Path, mode: u32, faults: &Faults) -> Result<(), FsError> {
    if path.is_dir() {
        return Ok(());
    }
    faults
        .step("make a folder")
        .and_then(|()| DirBuilder::new().recursive(true).mode(mode).create(path))
        .map_err(FsError::io("creating", path))
}
