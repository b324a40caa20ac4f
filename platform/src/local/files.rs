//! The session's files, worked on where that may block: the journal and the hosts file.

use std::fmt;
use std::sync::Arc;

use super::LocalHost;
use crate::host::HostError;
use crate::hosts::file::{HostsFile, Written};
use crate::intent::HostsLine;
use crate::journal::{Change, Journal};

/// What is worked on by blocking calls, on a thread of its own.
pub(super) struct Files {
    /// `None` after the end.
    journal: Option<Journal>,
    hosts: HostsFile,
}

impl Files {
    pub(super) fn new(journal: Journal, hosts: HostsFile) -> Self {
        Self {
            journal: Some(journal),
            hosts,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.journal.is_none()
    }

    /// Takes the lines out and, if nothing else is left to undo, ends the journal.
    ///
    /// In one go, so that a write still on its way cannot slip in between.
    pub(super) fn end(&mut self, nothing_left: bool) -> Result<Option<String>, HostError> {
        let Some(journal) = self.journal.as_mut() else {
            return Ok(None);
        };
        let cleared = self.hosts.clear(journal).map_err(HostError::Hosts)?;
        if nothing_left && let Some(journal) = self.journal.take() {
            journal.close().map_err(HostError::Journal)?;
        }
        Ok(cleared
            .changed
            .then(|| "lines removed from the hosts file".to_owned()))
    }
}

impl LocalHost {
    pub(super) async fn write_hosts(
        &self,
        lines: Arc<Vec<HostsLine>>,
    ) -> Result<Written, HostError> {
        self.blocking(move |files| {
            let journal = files.journal.as_mut().ok_or(HostError::Ended)?;
            if lines.is_empty() {
                files.hosts.clear(journal)
            } else {
                files.hosts.write(&lines, journal)
            }
            .map_err(HostError::Hosts)
        })
        .await
    }

    /// Journals a change to come.
    pub(super) async fn intend(&self, change: Change) -> Result<u64, HostError> {
        self.blocking(|files| {
            let journal = files.journal.as_mut().ok_or(HostError::Ended)?;
            journal.intend(change).map_err(HostError::Journal)
        })
        .await
    }

    pub(super) async fn journalled(
        &self,
        work: impl FnOnce(&mut Journal) + Send + 'static,
    ) -> Result<(), HostError> {
        self.blocking(|files| {
            work(files.journal.as_mut().ok_or(HostError::Ended)?);
            Ok(())
        })
        .await
    }

    /// Runs file work where it may block.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Files) -> Result<T, HostError> + Send + 'static,
    ) -> Result<T, HostError> {
        let files = Arc::clone(&self.files);
        let done = tokio::task::spawn_blocking(move || work(&mut files.lock())).await;
        done.unwrap_or(Err(HostError::Worker))
    }
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("journal", &self.journal)
            .finish_non_exhaustive()
    }
}
