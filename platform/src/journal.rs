//! The journal of a session: what can go wrong with it.

use crate::fs::FsError;

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
