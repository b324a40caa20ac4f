//! The hosts file on disk: one careful write at a time.
//!
//! Writers of ours exclude each other by a lock file; others do not know it, so the file is read
//! again and compared right before it is replaced, and the edit is made anew if it changed.

use std::cmp::Ordering;
use std::path::Path;

use crate::fs::{FsError, Lock, Replaced, RootFs};
use crate::host::HostsConflict;
use crate::hosts::{self, Edit, Note};
use crate::intent::HostsLine;
use crate::journal::{Change, Journal, JournalError};
use crate::sys::{SessionId, Sys};

/// The file.
const HOSTS: &str = "/etc/hosts";

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
    /// The journalled state: its number, whether we created the file, and the note.
    recorded: Option<(u64, bool, Note)>,
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
                Change::Hosts { created, note } => Some((pending.seq, *created, note.clone())),
                Change::Link { .. } | Change::LinkDns { .. } | Change::HostsInPlace { .. } => None,
            })
            .next_back();
        let host_name = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        Self {
            fs: RootFs::new(&sys.root),
            sys: sys.clone(),
            session,
            host_name,
            recorded,
        }
    }

    /// Makes `wanted` the session's lines. Blocking.
    pub fn write(
        &mut self,
        wanted: &[HostsLine],
        journal: &mut Journal,
    ) -> Result<Written, HostsError> {
        let _lock = Lock::acquire(&self.sys.hosts_lock(), LOCK_ATTEMPTS)?;
        for _ in 0..MAX_TRIES {
            let now = self.fs.read(Path::new(HOSTS))?;
            let edit = self.edit(now.as_deref().unwrap_or_default(), wanted)?;
            if edit.bytes == now.as_deref().unwrap_or_default() {
                self.settle(&edit, journal)?;
                return Ok(written(false, edit));
            }
            if self.store(now.as_deref(), &edit, journal)? {
                self.settle(&edit, journal)?;
                return Ok(written(true, edit));
            }
        }
        Err(FsError::Contended(HOSTS.into()).into())
    }

    fn edit(&self, now: &[u8], wanted: &[HostsLine]) -> Result<Edit, FsError> {
        let nothing = Note::default();
        let note = self.recorded.as_ref().map_or(&nothing, |(_, _, note)| note);
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
        let created = now.is_none()
            || self
                .recorded
                .as_ref()
                .is_some_and(|(_, created, _)| *created);
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
        let replaced = self.fs.replace(path, now, &edit.bytes, &mut save)?;
        if let Some(seq) = in_place {
            journal.undone(seq)?;
        }
        match replaced {
            Replaced::Renamed | Replaced::InPlace => Ok(true),
            Replaced::Changed => Ok(false),
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
        if edit.lines == 0
            || self
                .recorded
                .as_ref()
                .is_some_and(|(_, _, note)| *note == edit.note)
        {
            return Ok(());
        }
        let seq = journal.intend(Change::Hosts {
            created,
            note: edit.note.clone(),
        })?;
        let older = self.recorded.replace((seq, created, edit.note.clone()));
        match older {
            Some((older, _, _)) => journal.undone(older),
            None => Ok(()),
        }
    }

    /// Notes the end of a write: the lines are there, or nothing of ours is.
    fn settle(&mut self, edit: &Edit, journal: &mut Journal) -> Result<(), JournalError> {
        match &self.recorded {
            Some((seq, _, _)) if edit.lines == 0 => {
                journal.undone(*seq)?;
                self.recorded = None;
                Ok(())
            }
            Some((seq, _, _)) => journal.done(*seq),
            None => Ok(()),
        }
    }

    /// Puts right a write in place that a crash interrupted. Blocking.
    pub fn repair(&self, before: &[u8], after: &[u8]) -> Result<bool, FsError> {
        let _lock = Lock::acquire(&self.sys.hosts_lock(), LOCK_ATTEMPTS)?;
        let path = Path::new(HOSTS);
        let Some(now) = self.fs.read(path)? else {
            return Ok(false);
        };
        if now == before || now == after || !is_torn(&now, before, after) {
            return Ok(false);
        }
        let replaced = self.fs.replace(path, Some(&now), before, &mut |_| Ok(()))?;
        Ok(replaced != Replaced::Changed)
    }

    /// Removes the half-written copy that a crash may have left beside the file. Blocking.
    pub fn remove_stale_temporary(&self) -> Result<(), FsError> {
        let _lock = Lock::acquire(&self.sys.hosts_lock(), LOCK_ATTEMPTS)?;
        self.fs.remove_stale_temporary(Path::new(HOSTS))
    }
}

fn written(changed: bool, edit: Edit) -> Written {
    Written {
        changed,
        lines: edit.lines,
        conflicts: edit.conflicts,
    }
}

/// Tells whether `now` is what an interrupted overwrite of `before` by `after` leaves: a beginning
/// of the one, followed by the rest of the other, if there is any.
fn is_torn(now: &[u8], before: &[u8], after: &[u8]) -> bool {
    let equal = |(a, b): &(&u8, &u8)| a == b;
    let written = now.iter().zip(after).take_while(equal).count();
    let kept = now
        .iter()
        .rev()
        .zip(before.iter().rev())
        .take_while(equal)
        .count();
    match now.len().cmp(&before.len()) {
        Ordering::Less => false,
        Ordering::Equal => written + kept >= now.len(),
        Ordering::Greater => written == now.len(),
    }
}

#[cfg(test)]
mod tests;
