//! Undoing what dead sessions left behind.
//!
//! A session is dead when nobody holds its journal and its process (id, start time and boot) is
//! gone. Its changes are undone newest first; links died with it, and after a reboot so did DNS
//! settings. A journal is only removed when everything in it is undone.

use std::io;
use std::path::{Path, PathBuf};

use crate::dns::resolved;
use crate::fs::{FsError, make_dir};
use crate::host::HostError;
use crate::hosts::file::{HostsError, HostsFile};
use crate::journal::{Change, Journal, JournalError};
use crate::process::Owner;
use crate::sys::{SessionId, Sys};

/// A dead session with changes that are still in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The session.
    pub session: SessionId,
    /// The process it had.
    pub pid: u32,
    /// Its changes, one readable phrase each.
    pub changes: Vec<String>,
}

/// A dead session that was undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// The session.
    pub session: SessionId,
    /// What was taken back, one readable phrase each; empty if nothing was left.
    pub changes: Vec<String>,
}

/// A dead session's journal, held by us.
struct Dead {
    session: SessionId,
    owner: Owner,
    journal: Journal,
}

/// Lists the dead sessions without changing anything.
pub async fn leftovers(sys: &Sys) -> Result<Vec<Leftover>, HostError> {
    let dead = blocking(sys, |sys| find(&sys)).await?;
    let describe = |Dead {
                        session,
                        owner,
                        journal,
                    }: Dead| {
        let changes = journal
            .history()
            .pending
            .iter()
            .map(|pending| phrase(&pending.change))
            .collect();
        Leftover {
            session,
            pid: owner.pid,
            changes,
        }
    };
    Ok(dead.into_iter().map(describe).collect())
}

/// Undoes every dead session.
///
/// All are tried; the first failure is returned at the end, its journal kept for the next time.
pub async fn recover(sys: &Sys) -> Result<Vec<Recovered>, HostError> {
    let dead = blocking(sys, |sys| {
        make_dir(&sys.runtime_dir, 0o755).map_err(HostError::Files)?;
        find(&sys)
    })
    .await?;
    let mut recovered = Vec::with_capacity(dead.len());
    let mut failure = None;
    for one in dead {
        let session = one.session.clone();
        match undo(sys, one).await {
            Ok(changes) => recovered.push(Recovered { session, changes }),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(recovered),
    }
}

async fn undo(sys: &Sys, dead: Dead) -> Result<Vec<String>, HostError> {
    let Dead {
        session,
        owner,
        mut journal,
    } = dead;
    let mut changes = Vec::new();
    for pending in journal.history().pending.clone().into_iter().rev() {
        if let Change::LinkDns { name, index } = &pending.change {
            let reverted = owner.is_this_boot()
                && resolved::revert_leftover(sys, name, *index)
                    .await
                    .map_err(HostError::Dns)?;
            if reverted {
                changes.push(phrase(&pending.change));
            }
        }
    }
    let in_files = blocking(sys, move |sys| {
        let changes = undo_files(&sys, session, &mut journal).map_err(HostError::Hosts)?;
        journal.close().map_err(HostError::Journal)?;
        Ok(changes)
    });
    changes.extend(in_files.await?);
    Ok(changes)
}

fn undo_files(
    sys: &Sys,
    session: SessionId,
    journal: &mut Journal,
) -> Result<Vec<String>, HostsError> {
    let mut file = HostsFile::new(sys, session, Some(journal));
    let mut changes = Vec::new();
    let mut touched = false;
    for pending in journal.history().pending.clone().into_iter().rev() {
        match &pending.change {
            Change::HostsInPlace { before, after } => {
                if file.repair(before, after)? {
                    changes.push(phrase(&pending.change));
                }
                journal.undone(pending.seq)?;
            }
            Change::Hosts { .. } => touched = true,
            Change::Link { .. } | Change::LinkDns { .. } => {}
        }
    }
    if touched {
        file.remove_stale_temporary()?;
        if file.write(&[], journal)?.changed {
            changes.push("lines removed from the hosts file".to_owned());
        }
    }
    Ok(changes)
}

/// Takes hold of the journals of dead sessions.
fn find(sys: &Sys) -> Result<Vec<Dead>, HostError> {
    let mut dead = Vec::new();
    for path in journals(&sys.journals()).map_err(HostError::Files)? {
        let journal = match Journal::adopt(&path) {
            Ok(Some(journal)) => journal,
            Ok(None) => continue,
            // It ended in order while we were looking.
            Err(JournalError::File(FsError::Io { source, .. }))
                if source.kind() == io::ErrorKind::NotFound =>
            {
                continue;
            }
            Err(error) => return Err(HostError::Journal(error)),
        };
        match journal.history().opened.clone() {
            // Whoever has our own id and start time is us, and we do not hold this one any more.
            Some((_, owner)) if owner.is_alive() && owner != Owner::current() => {}
            Some((session, owner)) => dead.push(Dead {
                session,
                owner,
                journal,
            }),
            None => journal.close().map_err(HostError::Journal)?,
        }
    }
    Ok(dead)
}

fn journals(folder: &Path) -> Result<Vec<PathBuf>, FsError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FsError::io("reading", folder)(error)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == "journal"))
        .collect();
    paths.sort();
    Ok(paths)
}

fn phrase(change: &Change) -> String {
    match change {
        Change::Link { name } => format!("link {name}"),
        Change::LinkDns { name, .. } => format!("DNS settings of link {name}"),
        Change::Hosts { .. } => "lines in the hosts file".to_owned(),
        Change::HostsInPlace { .. } => "an interrupted write of the hosts file".to_owned(),
    }
}

async fn blocking<T: Send + 'static>(
    sys: &Sys,
    work: impl FnOnce(Sys) -> Result<T, HostError> + Send + 'static,
) -> Result<T, HostError> {
    let sys = sys.clone();
    tokio::task::spawn_blocking(move || work(sys))
        .await
        .unwrap_or(Err(HostError::Worker))
}
