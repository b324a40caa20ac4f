//! What a session changed on the host, on disk before it is done, for undo after a crash.
//!
//! A file of lines `LENGTH CRC JSON`, only ever appended to and flushed before each change. A line
//! that does not check (the torn end of a crash) is ignored. The journal records; how a change is
//! taken back is decided by whoever made it (`recover.rs`).
//!
//! The three-way rule of undo: as we left it ⇒ put back what was; as it was ⇒ nothing; anything
//! else ⇒ take out what is recognisably ours and leave the rest.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::fs::{FsError, make_dir, try_lock};
use crate::hosts;
use crate::process::Owner;
use crate::sys::SessionId;

/// A journal above this size is rewritten with what still matters: in-place writes of the hosts
/// file keep two copies of it each.
const COMPACT_BYTES: u64 = 1024 * 1024;

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

/// One change to the host, with what is needed to take it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "change")]
pub enum Change {
    /// A link of ours, gone with its process.
    Link {
        /// Its name.
        name: String,
    },
    /// DNS settings on a link, in systemd-resolved's memory.
    LinkDns {
        /// The link's name.
        name: String,
        /// The link's index.
        index: u32,
    },
    /// Lines of ours in the hosts file.
    Hosts {
        /// Whether the file did not exist before.
        created: bool,
        /// What removing the lines needs to know.
        note: hosts::Note,
    },
    /// A write into the hosts file itself, which a crash may leave half done.
    HostsInPlace {
        /// The content before.
        #[serde(with = "crate::hex")]
        before: Vec<u8>,
        /// The content to be written.
        #[serde(with = "crate::hex")]
        after: Vec<u8>,
    },
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "entry")]
enum Entry {
    /// The session and its process.
    Open { session: SessionId, owner: Owner },
    /// The change is about to be made.
    Intend { seq: u64, change: Change },
    /// The change was made.
    Done { seq: u64 },
    /// The change was taken back.
    Undone { seq: u64 },
    /// Nothing is left to undo.
    Close,
}

/// A change that was not taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Its number in the journal.
    pub seq: u64,
    /// The change.
    pub change: Change,
    /// Whether it is known to have been made in full.
    pub done: bool,
}

/// What a journal file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct History {
    /// Whose journal it is; `None` if even the first line is torn.
    pub opened: Option<(SessionId, Owner)>,
    /// The changes that were not taken back, oldest first.
    pub pending: Vec<Pending>,
    /// Whether the session ended in order.
    pub closed: bool,
    next: u64,
}

/// An open journal; locked, so that nobody else takes its session for dead.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    history: History,
    size: u64,
    torn: bool,
}

impl Journal {
    /// Starts the journal of a session of this process.
    pub fn create(path: &Path, session: &SessionId) -> Result<Self, JournalError> {
        if let Some(folder) = path.parent() {
            make_dir(folder, 0o700)?;
        }
        let file = open(path, true)?;
        try_lock(&file, path)?;
        let mut journal = Self {
            file,
            path: path.to_owned(),
            history: History::default(),
            size: 0,
            torn: false,
        };
        journal.append(Entry::Open {
            session: session.clone(),
            owner: Owner::current(),
        })?;
        sync_folder(path)?;
        Ok(journal)
    }

    /// Opens a journal that somebody left; `None` if its owner still holds it.
    pub fn adopt(path: &Path) -> Result<Option<Self>, JournalError> {
        let mut file = open(path, false)?;
        if !try_lock(&file, path)? {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .map_err(FsError::io("reading", path))?;
        let torn = !bytes.is_empty() && !bytes.ends_with(b"\n");
        let history = History::read(&bytes);
        Ok(Some(Self {
            file,
            path: path.to_owned(),
            history,
            size: bytes.len() as u64,
            torn,
        }))
    }

    /// Returns what the journal says.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Records, durably, that a change is about to be made; returns its number.
    pub fn intend(&mut self, change: Change) -> Result<u64, JournalError> {
        let seq = self.history.next;
        self.append(Entry::Intend { seq, change })?;
        Ok(seq)
    }

    /// Records that a change was made, if that is news.
    pub fn done(&mut self, seq: u64) -> Result<(), JournalError> {
        let news = self
            .history
            .pending
            .iter()
            .any(|pending| pending.seq == seq && !pending.done);
        if news {
            self.append(Entry::Done { seq })
        } else {
            Ok(())
        }
    }

    /// Records that a change was taken back, or replaced by a later one.
    pub fn undone(&mut self, seq: u64) -> Result<(), JournalError> {
        self.append(Entry::Undone { seq })?;
        if self.size > COMPACT_BYTES {
            self.compact()
        } else {
            Ok(())
        }
    }

    /// Ends the journal: nothing is left to undo, and the file goes.
    pub fn close(mut self) -> Result<(), JournalError> {
        self.append(Entry::Close)?;
        fs::remove_file(&self.path).map_err(FsError::io("removing", &self.path))?;
        Ok(sync_folder(&self.path)?)
    }

    fn append(&mut self, entry: Entry) -> Result<(), JournalError> {
        let mut line = encode(&entry)?;
        if self.torn {
            line.insert(0, b'\n');
        }
        self.torn = true;
        self.file
            .write_all(&line)
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
        if let Some((session, owner)) = self.history.opened.clone() {
            bytes.extend(encode(&Entry::Open { session, owner })?);
        }
        for Pending { seq, change, done } in self.history.pending.clone() {
            bytes.extend(encode(&Entry::Intend { seq, change })?);
            if done {
                bytes.extend(encode(&Entry::Done { seq })?);
            }
        }
        let new = self.path.with_extension("new");
        drop(fs::remove_file(&new));
        let mut file = open(&new, true)?;
        try_lock(&file, &new)?;
        file.write_all(&bytes)
            .and_then(|()| file.sync_all())
            .map_err(FsError::io("writing", &new))?;
        fs::rename(&new, &self.path).map_err(FsError::io("replacing", &self.path))?;
        sync_folder(&self.path)?;
        self.file = file;
        self.size = bytes.len() as u64;
        Ok(())
    }
}

impl History {
    /// Reads every line that checks.
    pub fn read(bytes: &[u8]) -> Self {
        let mut history = Self::default();
        for entry in bytes.split(|&byte| byte == b'\n').filter_map(decode) {
            history.apply(entry);
        }
        history
    }

    fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Open { session, owner } => self.opened = Some((session, owner)),
            Entry::Intend { seq, change } => {
                self.next = self.next.max(seq + 1);
                self.pending.push(Pending {
                    seq,
                    change,
                    done: false,
                });
            }
            Entry::Done { seq } => {
                for pending in self.pending.iter_mut().filter(|pending| pending.seq == seq) {
                    pending.done = true;
                }
            }
            Entry::Undone { seq } => self.pending.retain(|pending| pending.seq != seq),
            Entry::Close => self.closed = true,
        }
    }
}

fn open(path: &Path, new: bool) -> Result<File, FsError> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create_new(new)
        .mode(0o600)
        .open(path)
        .map_err(FsError::io("opening", path))
}

fn sync_folder(path: &Path) -> Result<(), FsError> {
    let folder = path.parent().unwrap_or(path);
    let sync = || -> io::Result<()> { File::open(folder)?.sync_all() };
    sync().map_err(FsError::io("flushing", folder))
}

fn encode(entry: &Entry) -> Result<Vec<u8>, serde_json::Error> {
    let json = serde_json::to_string(entry)?;
    Ok(format!(
        "{:08x} {:08x} {json}\n",
        json.len(),
        crc32fast::hash(json.as_bytes())
    )
    .into_bytes())
}

fn decode(line: &[u8]) -> Option<Entry> {
    let (length, rest) = line.split_at_checked(9)?;
    let (crc, json) = rest.split_at_checked(9)?;
    let number =
        |field: &[u8]| u32::from_str_radix(str::from_utf8(field).ok()?.strip_suffix(' ')?, 16).ok();
    let whole = number(length)? as usize == json.len() && number(crc)? == crc32fast::hash(json);
    if whole {
        serde_json::from_slice(json).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
