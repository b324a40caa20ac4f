//! What a session changed on the host, on disk before it is done, for undo after a crash.
//!
//! A file of lines (`journal/entry.rs`), only ever appended to and flushed before each change. The
//! journal records; how a change is taken back is decided by whoever made it (`recover.rs`).
//!
//! The three-way rule of undo: as we left it ⇒ put back what was; as it was ⇒ nothing; anything
//! else ⇒ take out what is recognisably ours and leave the rest. Undoing something twice does no
//! harm, so only a change to come must be on disk; that one was taken back may be lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::RenameFlags;

use crate::fault::Faults;
use crate::fs::{FsError, make_dir, try_lock};
use crate::process::Owner;
use crate::sys::{SessionId, Sys};

pub use entry::{Change, History, Pending};
use entry::{Entry, encode};

mod entry;

/// A journal above this size is rewritten with what still matters: in-place writes of the hosts
/// file keep two copies of it each.
const COMPACT_BYTES: u64 = 1024 * 1024;

/// How often a new journal is begun anew when a cleaner takes it for a leftover.
const CREATE_TRIES: u32 = 3;

/// Why a journal could not be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file could not be read or written.
    #[error("using the journal file")]
    File(#[from] FsError),
    /// An entry could not be encoded.
    #[error("encoding a journal entry")]
    Encode(#[from] serde_json::Error),
}

/// An open journal; locked, so that nobody else takes its session for dead.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    faults: Faults,
    history: History,
    size: u64,
    /// Whether the file may end in the middle of a line.
    torn: bool,
}

impl Journal {
    /// Starts the journal of a session of this process.
    ///
    /// It appears under its name only when it is locked and says whose it is: nobody can take it
    /// for the journal of a dead session.
    pub fn create(sys: &Sys, session: &SessionId) -> Result<Self, JournalError> {
        let path = sys.journal(session);
        make_dir(&sys.journals(), 0o700, &sys.faults)?;
        let opened = Entry::Open {
            session: session.clone(),
            owner: Owner::current(),
        };
        let bytes = encode(&opened)?;
        let mut written = write_new(&path, &bytes, RenameFlags::NOREPLACE, &sys.faults);
        for _ in 1..CREATE_TRIES {
            if written.as_ref().is_err_and(is_missing) {
                written = write_new(&path, &bytes, RenameFlags::NOREPLACE, &sys.faults);
            }
        }
        let mut history = History::default();
        history.apply(opened);
        Ok(Self {
            file: written?,
            path,
            faults: sys.faults.clone(),
            history,
            size: bytes.len() as u64,
            torn: false,
        })
    }

    /// Opens a journal that somebody left; `None` if its owner still holds it.
    pub fn adopt(path: &Path, faults: &Faults) -> Result<Option<Self>, JournalError> {
        let mut file = faults
            .step_without_space("open a journal")
            .and_then(|()| OpenOptions::new().read(true).append(true).open(path))
            .map_err(FsError::io("opening", path))?;
        if !try_lock(&file, path)? {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(FsError::io("reading", path))?;
        let torn = !bytes.is_empty() && !bytes.ends_with(b"\n");
        Ok(Some(Self {
            file,
            path: path.to_owned(),
            faults: faults.clone(),
            history: History::read(&bytes),
            size: bytes.len() as u64,
            torn,
        }))
    }

    /// Returns what the journal says.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns whose journal it is: by its first line, or by its name if that line is lost.
    pub fn session(&self) -> Option<SessionId> {
        match &self.history.opened {
            Some((session, _)) => Some(session.clone()),
            None => self.path.file_stem()?.to_str()?.parse().ok(),
        }
    }

    /// Records, durably, that a change is about to be made; returns its number.
    pub fn intend(&mut self, change: Change) -> Result<u64, JournalError> {
        let seq = self.history.take_number();
        self.append(Entry::Intend { seq, change })?;
        Ok(seq)
    }

    /// Records that a change was made, if that is news.
    pub fn done(&mut self, seq: u64) {
        let mut pending = self.history.pending.iter();
        if pending.any(|pending| pending.seq == seq && !pending.done) {
            self.note(Entry::Done { seq });
        }
    }

    /// Records that a change was taken back, or replaced by a later one.
    pub fn undone(&mut self, seq: u64) {
        self.note(Entry::Undone { seq });
        if self.size > COMPACT_BYTES
            && let Err(error) = self.compact()
        {
            tracing::debug!(%error, "a long journal stays as it is");
        }
    }

    /// Ends the journal: nothing is left to undo, and the file goes.
    pub fn close(self) -> Result<(), JournalError> {
        let removed = self
            .faults
            .step_without_space("remove the journal")
            .and_then(|()| fs::remove_file(&self.path));
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(FsError::io("removing", &self.path)(error).into());
            }
            Ok(()) | Err(_) => {}
        }
        if let Err(error) = sync_folder(&self.path, &self.faults) {
            tracing::debug!(%error, "the journal may come back after a power failure");
        }
        Ok(())
    }

    /// Appends an entry that may be lost.
    fn note(&mut self, entry: Entry) {
        if let Err(error) = self.append(entry.clone()) {
            tracing::debug!(%error, "a note in the journal is lost");
            self.history.apply(entry);
        }
    }

    fn append(&mut self, entry: Entry) -> Result<(), JournalError> {
        let mut line = encode(&entry)?;
        if self.torn {
            line.insert(0, b'\n');
        }
        self.torn = true;
        self.faults
            .write("write the journal", &mut self.file, &line)
            .and_then(|()| self.faults.step("flush the journal"))
            .and_then(|()| self.file.sync_data())
            .map_err(FsError::io("writing", &self.path))?;
        self.torn = false;
        self.size += line.len() as u64;
        self.history.apply(entry);
        Ok(())
    }

    /// Replaces the file by one with only what is still pending.
    fn compact(&mut self) -> Result<(), JournalError> {
        let mut bytes = Vec::new();
        for entry in self.history.entries() {
            bytes.extend(encode(&entry)?);
        }
        self.file = write_new(&self.path, &bytes, RenameFlags::empty(), &self.faults)?;
        self.size = bytes.len() as u64;
        self.torn = false;
        Ok(())
    }
}

/// Writes a journal beside its place, locks it and renames it there.
fn write_new(
    path: &Path,
    bytes: &[u8],
    how: RenameFlags,
    faults: &Faults,
) -> Result<File, FsError> {
    let new = path.with_extension("new");
    let made = (|| {
        drop(fs::remove_file(&new));
        faults.step("create the journal")?;
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        if !try_lock(&file, &new).map_err(io::Error::other)? {
            return Err(io::ErrorKind::NotFound.into());
        }
        faults.write("write a new journal", &mut file, bytes)?;
        faults.step("flush a new journal")?;
        file.sync_all()?;
        faults.step("name the journal")?;
        let here = rustix::fs::CWD;
        rustix::fs::renameat_with(here, &new, here, path, how)?;
        Ok(file)
    })();
    match made {
        Ok(file) => sync_folder(path, faults).map(|()| file),
        Err(error) => {
            if faults.step_without_space("remove a new journal").is_ok() {
                drop(fs::remove_file(&new));
            }
            Err(FsError::io("creating", path)(error))
        }
    }
}

fn is_missing(error: &FsError) -> bool {
    matches!(error, FsError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

fn sync_folder(path: &Path, faults: &Faults) -> Result<(), FsError> {
    let folder = path.parent().unwrap_or(path);
    faults
        .step_without_space("flush the journals' folder")
        .and_then(|()| File::open(folder)?.sync_all())
        .map_err(FsError::io("flushing", folder))
}

#[cfg(test)]
mod tests;
