//! The hosts file on disk: one careful write at a time.
//!
//! Writers of ours exclude each other by a lock file; others do not know it, so the file is read
//! again and compared right before it is replaced, and the edit is made anew if it changed. A
//! foreign writer may still win the last instant: whoever keeps lines calls [`HostsFile::write`]
//! again about a second later, which does nothing when they are there.

use std::path::Path;

use crate::fs::{FsError, Lock, Replaced, RootFs, make_dir};
use crate::host::HostsConflict;
use crate::hosts::{self, Edit, Note};
use crate::intent::HostsLine;
use crate::journal::{Change, Journal, JournalError};
use crate::sys::{SessionId, Sys};

mod torn;

/// The file.
pub(crate) const HOSTS: &str = "/etc/hosts";

/// How often an edit is made anew because another program wrote at the same moment.
const MAX_TRIES: u32 = 8;

/// Lock attempts of 20 ms: two seconds, longer than any write of ours takes.
const LOCK_ATTEMPTS: u32 = 100;

/// The hosts file as one session sees it.
#[derive(Debug)]
pub struct HostsFile {
    fs: RootFs,
    sys: Sys,
    session: SessionId,
    host_name: String,
    recorded: Option<Recorded>,
    last: Option<Last>,
}

/// What the last write left, to see at a glance that nothing has changed since.
#[derive(Debug)]
struct Last {
    wanted: Vec<HostsLine>,
    bytes: Vec<u8>,
    lines: usize,
    conflicts: Vec<HostsConflict>,
}

/// What the journal knows about our lines.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Recorded {
    seq: u64,
    /// Whether we made the file.
    created: bool,
    note: Note,
}

/// What a write did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Whether the file was written at all.
    pub changed: bool,
    /// How many lines of ours it has now.
    pub lines: usize,
    /// The names that were left out.
    pub conflicts: Vec<HostsConflict>,
}

/// Why the lines could not be brought into the file.
#[derive(Debug, thiserror::Error)]
pub enum HostsError {
    /// The file or its lock.
    #[error(transparent)]
    File(#[from] FsError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl HostsFile {
    /// Makes the view of a session; `journal` may hold what an earlier process of it recorded.
    pub fn new(sys: &Sys, session: SessionId, journal: Option<&Journal>) -> Self {
        let pending = journal
            .into_iter()
            .flat_map(|journal| &journal.history().pending);
        let recorded = pending
            .filter_map(|pending| match &pending.change {
                Change::Hosts { created, note } => Some(Recorded {
                    seq: pending.seq,
                    created: *created,
                    note: note.clone(),
                }),
                Change::Link { .. }
                | Change::LinkDns { .. }
                | Change::Routes { .. }
                | Change::HostsInPlace { .. } => None,
            })
            .next_back();
        Self {
            fs: RootFs::new(sys),
            sys: sys.clone(),
            session,
            host_name: host_name(),
            recorded,
            last: None,
        }
    }

    /// Makes `wanted` the session's lines. Blocking.
    pub fn write(
        &mut self,
        wanted: &[HostsLine],
        journal: &mut Journal,
    ) -> Result<Written, HostsError> {
        let _lock = self.lock()?;
        torn::repair(&self.fs, journal)?;
        for _ in 0..MAX_TRIES {
            let now = self.fs.read(Path::new(HOSTS))?;
            let bytes = now.as_deref().unwrap_or_default();
            if let Some(last) = &self.last
                && last.bytes == bytes
                && last.wanted == wanted
            {
                return Ok(last.written(false));
            }
            let edit = self.edit(bytes, wanted)?;
            let changed = edit.bytes != bytes;
            if !changed || self.store(now.as_deref(), &edit, journal)? {
                self.settle(&edit, journal);
                let last = Last {
                    wanted: wanted.to_vec(),
                    bytes: edit.bytes,
                    lines: edit.lines,
                    conflicts: edit.conflicts,
                };
                return Ok(self.last.insert(last).written(changed));
            }
        }
        Err(FsError::Contended(HOSTS.into()).into())
    }

    /// Takes every line of the session out again; nothing is even read if there can be none.
    /// Blocking.
    pub fn clear(&mut self, journal: &mut Journal) -> Result<Written, HostsError> {
        let mut pending = journal.history().pending.iter();
        let written = pending.any(|pending| matches!(pending.change, Change::HostsInPlace { .. }));
        if self.recorded.is_none() && !written {
            return Ok(Written::default());
        }
        self.write(&[], journal)
    }

    /// Removes the half-written copy that a crash may have left beside the file. Blocking.
    pub fn remove_stale_temporary(&self) -> Result<(), FsError> {
        let _lock = self.lock()?;
        self.fs.remove_stale_temporary(Path::new(HOSTS))
    }

    fn lock(&self) -> Result<Lock, FsError> {
        let Sys {
            runtime_dir,
            faults,
            ..
        } = &self.sys;
        make_dir(runtime_dir, 0o755, faults)?;
        Lock::acquire(&self.sys.hosts_lock(), LOCK_ATTEMPTS, faults)
    }

    fn edit(&self, now: &[u8], wanted: &[HostsLine]) -> Result<Edit, FsError> {
        let nothing = Note::default();
        let note = self.recorded.as_ref().map_or(&nothing, |known| &known.note);
        hosts::edit(now, &self.session, wanted, &self.host_name, note).map_err(
            |hosts::TooBig(size)| FsError::TooBig {
                path: HOSTS.into(),
                size,
            },
        )
    }

    /// Journals and writes one edit; false if the file changed under us.
    fn store(
        &mut self,
        now: Option<&[u8]>,
        edit: &Edit,
        journal: &mut Journal,
    ) -> Result<bool, HostsError> {
        let path = Path::new(HOSTS);
        let made = self.recorded.as_ref().is_some_and(|known| known.created);
        let created = now.is_none() || made;
        if created && edit.bytes.is_empty() {
            return Ok(self.fs.remove(path, now.unwrap_or_default())?);
        }
        self.record(created, edit, journal)?;
        let mut in_place = None;
        let mut save = |before: &[u8]| {
            let change = Change::HostsInPlace {
                before: before.to_vec(),
                after: edit.bytes.clone(),
            };
            in_place = Some(journal.intend(change).map_err(std::io::Error::other)?);
            Ok(())
        };
        // After a failure the old content stays journalled: the file may be in pieces.
        let replaced = self.fs.replace(path, now, &edit.bytes, &mut save)?;
        if let Some(seq) = in_place {
            journal.undone(seq);
        }
        match replaced {
            Replaced::Renamed | Replaced::InPlace => Ok(true),
            Replaced::Changed => {
                // If it was to be new, someone else made it.
                if let Some(known) = self.recorded.as_mut().filter(|_| now.is_none()) {
                    known.created = made;
                }
                Ok(false)
            }
        }
    }

    /// Journals what removing the lines will need, if that is news.
    ///
    /// While lines are being removed the older note is the one that matters, so it stays until
    /// [`Self::settle`].
    fn record(
        &mut self,
        created: bool,
        edit: &Edit,
        journal: &mut Journal,
    ) -> Result<(), JournalError> {
        let known = self.recorded.as_ref();
        if edit.lines == 0
            || known.is_some_and(|known| known.note == edit.note && known.created == created)
        {
            return Ok(());
        }
        let note = edit.note.clone();
        let seq = journal.intend(Change::Hosts { created, note })?;
        let note = edit.note.clone();
        let now = Recorded { seq, created, note };
        if let Some(older) = self.recorded.replace(now) {
            journal.undone(older.seq);
        }
        Ok(())
    }

    /// Notes the end of a write: the lines are there, or nothing of ours is.
    fn settle(&mut self, edit: &Edit, journal: &mut Journal) {
        let Some(known) = &self.recorded else {
            return;
        };
        if edit.lines == 0 {
            journal.undone(known.seq);
            self.recorded = None;
        } else {
            journal.done(known.seq);
        }
    }
}

/// Returns the machine's own name.
pub(super) fn host_name() -> String {
    let names = rustix::system::uname();
    names.nodename().to_string_lossy().into_owned()
}

impl Last {
    fn written(&self, changed: bool) -> Written {
        Written {
            changed,
            lines: self.lines,
            conflicts: self.conflicts.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
