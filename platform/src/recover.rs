//! Undoing what dead sessions left behind.
//!
//! A session is dead when nobody holds its journal and its process (id, start time and boot) is
//! gone. Its changes are undone newest first; links died with it, and after a reboot so did DNS
//! settings. A journal is only removed when everything in it is undone.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::claims::registry;
use crate::dns::resolved;
use crate::fs::FsError;
use crate::host::HostError;
use crate::hosts::file::{HostsError, HostsFile};
use crate::journal::{Change, Journal, JournalError};
use crate::process::Owner;
use crate::routes::remove_leftover;
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovered {
    /// The session.
    pub session: SessionId,
    /// What was taken back, one readable phrase each; empty if nothing was left.
    pub changes: Vec<String>,
}

/// A dead session's journal, held by us.
struct Dead {
    session: SessionId,
    /// The process it had; `None` if the journal lost that.
    owner: Option<Owner>,
    journal: Journal,
}

/// What was found in the folder of journals.
#[derive(Default)]
struct Found {
    dead: Vec<Dead>,
    /// The first journal that could not be read.
    failure: Option<HostError>,
}

/// Lists the dead sessions without changing anything.
pub async fn leftovers(sys: &Sys) -> Result<Vec<Leftover>, HostError> {
    let found = blocking(sys, |sys| find(&sys)).await?;
    let describe = |dead: Dead| {
        let pending = dead.journal.history().pending.iter();
        Leftover {
            session: dead.session,
            pid: dead.owner.map_or(0, |owner| owner.pid),
            changes: pending.map(|pending| phrase(&pending.change)).collect(),
        }
    };
    match found.failure {
        Some(failure) => Err(failure),
        None => Ok(found.dead.into_iter().map(describe).collect()),
    }
}

/// Undoes every dead session.
///
/// All are tried; the first failure is returned at the end, its journal kept for the next time.
pub async fn recover(sys: &Sys) -> Result<Vec<Recovered>, HostError> {
    let (_machine, Found { dead, mut failure }) = blocking(sys, |sys| {
        // Two who repair at once would be in each other's way.
        let machine = registry::lock_machine(&sys)?;
        registry::remove_dead(&sys).map_err(HostError::Files)?;
        remove_unfinished(&sys);
        Ok((machine, find(&sys)?))
    })
    .await?;
    let mut recovered = Vec::with_capacity(dead.len());
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

/// Undoes one session: its DNS and routes, its files even if that failed, and the journal if nothing
/// did.
async fn undo(sys: &Sys, dead: Dead) -> Result<Vec<String>, HostError> {
    let Dead {
        session,
        owner,
        mut journal,
    } = dead;
    // After a reboot no link has settings of ours; a journal without owner says nothing of that.
    let this_boot = owner.is_none_or(|owner| owner.is_this_boot());
    let dns = if this_boot {
        undo_dns(sys, &journal).await
    } else {
        Ok(Vec::new())
    };
    let routes = if this_boot {
        undo_routes(&journal).await
    } else {
        Ok(Vec::new())
    };
    let nothing_left = dns.is_ok() && routes.is_ok();
    let files = blocking(sys, move |sys| {
        let changes = undo_files(&sys, session, &mut journal).map_err(HostError::Hosts)?;
        if nothing_left {
            journal.close().map_err(HostError::Journal)?;
        }
        Ok(changes)
    });
    let files = files.await;
    let mut changes = dns?;
    changes.extend(routes?);
    changes.extend(files?);
    Ok(changes)
}

async fn undo_dns(sys: &Sys, journal: &Journal) -> Result<Vec<String>, HostError> {
    let mut changes = Vec::new();
    for pending in journal.history().pending.iter().rev() {
        if let Change::LinkDns { name, index } = &pending.change {
            let reverted = resolved::revert_leftover(sys, name, *index);
            if reverted.await.map_err(HostError::Dns)? {
                changes.push(phrase(&pending.change));
            }
        }
    }
    Ok(changes)
}

/// Routes died with their link, unless somebody still holds its device.
async fn undo_routes(journal: &Journal) -> Result<Vec<String>, HostError> {
    let mut changes = Vec::new();
    for pending in journal.history().pending.iter().rev() {
        if let Change::Routes { name, index, .. } = &pending.change {
            let removed = remove_leftover(name, *index).await;
            if removed.map_err(HostError::Routes)? > 0 {
                changes.push(phrase(&pending.change));
            }
        }
    }
    Ok(changes)
}

fn undo_files(
    sys: &Sys,
    session: SessionId,
    journal: &mut Journal,
) -> Result<Vec<String>, HostsError> {
    let known = &journal.history().pending;
    let touched = known.iter().any(|pending| match &pending.change {
        Change::Hosts { .. } | Change::HostsInPlace { .. } => true,
        Change::Link { .. } | Change::LinkDns { .. } | Change::Routes { .. } => false,
    });
    if !touched && journal.history().opened.is_some() {
        return Ok(Vec::new());
    }
    let mut file = HostsFile::new(sys, session, Some(journal));
    file.remove_stale_temporary()?;
    let removed = file.write(&[], journal)?.changed;
    Ok(removed
        .then(|| "lines removed from the hosts file".to_owned())
        .into_iter()
        .collect())
}

/// Takes hold of the journals of dead sessions.
fn find(sys: &Sys) -> Result<Found, HostError> {
    let mut found = Found::default();
    for path in files(&sys.journals(), "journal").map_err(HostError::Files)? {
        let journal = match Journal::adopt(&path, &sys.faults) {
            Ok(Some(journal)) => journal,
            Ok(None) => continue,
            // It ended in order while we were looking.
            Err(JournalError::File(FsError::Io { source, .. }))
                if source.kind() == io::ErrorKind::NotFound =>
            {
                continue;
            }
            Err(error) => {
                found.failure = found.failure.or(Some(HostError::Journal(error)));
                continue;
            }
        };
        let owner = journal.history().opened.clone().map(|(_, owner)| owner);
        // Whoever has our own id and start time is us, and we do not hold this one any more.
        let alive = |owner: &Owner| owner.is_alive() && *owner != Owner::current();
        if let Some(session) = journal.session()
            && !owner.as_ref().is_some_and(alive)
        {
            found.dead.push(Dead {
                session,
                owner,
                journal,
            });
        }
    }
    Ok(found)
}

/// Removes journals that were never begun in full; whoever writes one holds its lock.
fn remove_unfinished(sys: &Sys) {
    for path in files(&sys.journals(), "new").unwrap_or_default() {
        if Journal::adopt(&path, &sys.faults).is_ok_and(|journal| journal.is_some()) {
            drop(std::fs::remove_file(&path));
        }
    }
}

fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, FsError> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FsError::io("reading", folder)(error)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|end| end == extension))
        .collect();
    paths.sort();
    Ok(paths)
}

fn phrase(change: &Change) -> String {
    match change {
        Change::Link { name } => format!("link {name}"),
        Change::LinkDns { name, .. } => format!("DNS settings of link {name}"),
        Change::Routes { name, routes, .. } => {
            format!("{} routes into link {name}", routes.len())
        }
        Change::Hosts { .. } => "lines in the hosts file".to_owned(),
        Change::HostsInPlace { .. } => "a write of the hosts file, maybe interrupted".to_owned(),
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
