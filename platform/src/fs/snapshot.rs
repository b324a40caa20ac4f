//! An exact picture of one path, to compare and to restore by.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::FsError;

/// What stood at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// What it is, with its content.
    pub kind: Kind,
    /// Permission bits; 0 if absent.
    pub mode: u32,
    /// Owner; 0 if absent.
    pub uid: u32,
    /// Group; 0 if absent.
    pub gid: u32,
}

/// What kind of thing stood there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Nothing.
    Absent,
    /// A regular file with these bytes.
    File(#[serde(with = "crate::hex")] Vec<u8>),
    /// A symbolic link with this text.
    Symlink(#[serde(with = "crate::hex")] Vec<u8>),
    /// Anything else.
    Other,
}

impl Snapshot {
    /// Takes the picture of a real path, not following a link at its end.
    pub(super) fn take(place: &Path) -> Result<Self, FsError> {
        let metadata = match fs::symlink_metadata(place) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self {
                    kind: Kind::Absent,
                    mode: 0,
                    uid: 0,
                    gid: 0,
                });
            }
            Err(error) => return Err(FsError::io("reading", place)(error)),
        };
        let kind = if metadata.is_symlink() {
            let target = fs::read_link(place).map_err(FsError::io("reading", place))?;
            Kind::Symlink(target.into_os_string().into_vec())
        } else if metadata.is_file() {
            Kind::File(fs::read(place).map_err(FsError::io("reading", place))?)
        } else {
            Kind::Other
        };
        Ok(Self {
            kind,
            mode: metadata.mode() & 0o7777,
            uid: metadata.uid(),
            gid: metadata.gid(),
        })
    }
}
