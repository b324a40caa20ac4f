//! The claims of the sessions of this machine, one file each in the runtime folder.
//!
//! A file is locked as long as its session lives; that of a dead one counts for nothing. Changes
//! are made under the machine's lock, so that two sessions cannot claim the same at once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::{Claimant, Claims, Clash};
use crate::fault::Faults;
use crate::fs::{FsError, Lock, make_dir, try_lock};
use crate::host::HostError;
use crate::sys::{SessionId, Sys};

/// Lock attempts of 20 ms: ten seconds, longer than repairing after a crash takes.
const LOCK_ATTEMPTS: u32 = 500;
/// The end of a file's name.
pub(crate) const EXTENSION: &str = "json";

/// Keeps all other sessions from claiming, making links and repairing. Blocking.
pub(crate) fn lock_machine(sys: &Sys) -> Result<Lock, HostError> {
    make_dir(&sys.runtime_dir, 0o755, &sys.faults).map_err(HostError::Files)?;
    let path = sys.machine_lock();
    match Lock::acquire(&path, LOCK_ATTEMPTS, &sys.faults) {
        Ok(mut lock) => {
            // Only for the words of whoever waits in vain.
            let _ = lock.sign(&format!("{}\n", std::process::id()));
            Ok(lock)
        }
        Err(FsError::Locked(_)) => Err(HostError::Busy {
            pid: Lock::signature(&path).and_then(|text| text.trim().parse().ok()),
        }),
        Err(error) => Err(HostError::Files(error)),
    }
}

/// The claims of one session, in force until this is dropped or removed.
#[derive(Debug)]
pub(crate) struct Entry {
    claimant: Claimant,
    path: PathBuf,
    /// Locked.
    _file: File,
}

impl Entry {
    /// Claims, in place of what `former` claimed, unless another session has any of it. Blocking.
    ///
    /// To be called under the machine's lock.
    pub(crate) fn claim(
        sys: &Sys,
        session: &SessionId,
        claims: Claims,
        former: Option<&Self>,
    ) -> Result<Self, HostError> {
        let others = others(sys, session).map_err(HostError::Files)?;
        let last = others.iter().map(|other| other.number).max();
        let number = former.map(|former| former.claimant.number);
        let claimant = Claimant {
            session: session.clone(),
            pid: std::process::id(),
            number: number.unwrap_or_else(|| last.map_or(0, |last| last + 1)),
            claims,
        };
        if let Some(clash) = claimant.clash(&others) {
            return Err(clash.into());
        }
        Self::write(sys, claimant).map_err(HostError::Files)
    }

    fn write(sys: &Sys, claimant: Claimant) -> Result<Self, FsError> {
        let folder = sys.claims();
        make_dir(&folder, 0o755, &sys.faults)?;
        let path = folder.join(format!("{}.{EXTENSION}", claimant.session));
        let new = path.with_extension("new");
        let file = write_new(&new, &path, &claimant, &sys.faults);
        let file = file.map_err(FsError::io("writing", &path))?;
        Ok(Self {
            claimant,
            path,
            _file: file,
        })
    }

    /// What is claimed.
    pub(crate) fn claims(&self) -> &Claims {
        &self.claimant.claims
    }

    /// Gives everything up.
    pub(crate) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "claims stay behind, and count for nothing");
        }
    }

    /// Keeps those that came before this one, which claimed or did not yet.
    pub(crate) fn earlier(entry: Option<&Self>, mut others: Vec<Claimant>) -> Vec<Claimant> {
        let before = |other: &Claimant| match entry {
            Some(own) => other.number < own.claimant.number,
            None => true,
        };
        others.retain(before);
        others
    }
}

/// Lists the claims of the other living sessions, in the order in which they came. Blocking.
pub(crate) fn others(sys: &Sys, session: &SessionId) -> Result<Vec<Claimant>, FsError> {
    let mut others: Vec<_> = files(sys)?
        .iter()
        .filter_map(|path| read_living(path))
        .filter(|claimant| claimant.session != *session)
        .collect();
    others.sort_by_key(|claimant| claimant.number);
    Ok(others)
}

/// Removes the claims of dead sessions. Blocking; to be called under the machine's lock.
pub(crate) fn remove_dead(sys: &Sys) -> Result<(), FsError> {
    for path in files(sys)? {
        let is_dead = || try_lock(&File::open(&path).ok()?, &path).ok();
        if is_dead() == Some(true) {
            drop(fs::remove_file(&path));
        }
    }
    Ok(())
}

fn files(sys: &Sys) -> Result<Vec<PathBuf>, FsError> {
    let folder = sys.claims();
    match fs::read_dir(&folder) {
        Ok(entries) => Ok(entries.flatten().map(|entry| entry.path()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(FsError::io("reading", &folder)(error)),
    }
}

/// Reads the claims of a session that lives.
fn read_living(path: &Path) -> Option<Claimant> {
    if path.extension()? != EXTENSION {
        return None;
    }
    let mut file = File::open(path).ok()?;
    // Shared, so that two who look do not take each other for the session.
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Writes a file that is locked when it appears under its name.
fn write_new(new: &Path, path: &Path, claimant: &Claimant, faults: &Faults) -> io::Result<File> {
    drop(fs::remove_file(new));
    faults.step("write the claims")?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(new)?;
    let written = (|| {
        if !try_lock(&file, new).map_err(io::Error::other)? {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        file.write_all(&serde_json::to_vec(claimant)?)?;
        faults.step("name the claims")?;
        fs::rename(new, path)
    })();
    match written {
        Ok(()) => Ok(file),
        Err(error) => {
            drop(fs::remove_file(new));
            Err(error)
        }
    }
}

impl From<Clash> for HostError {
    fn from(clash: Clash) -> Self {
        Self::Clash(Box::new(clash))
    }
}
