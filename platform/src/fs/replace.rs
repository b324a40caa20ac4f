//! Getting new bytes into a file so that a crash leaves the old or the new file.
//!
//! Normally the new content is written beside the file, flushed and renamed over it. Where a rename
//! cannot work (a bind mount, a second hard link, a folder we may not write) the file is written in
//! place, after the caller has put the old content into safety. A file that only gets shorter is
//! cut, which is one step and needs no room on the disk.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::RenameFlags;

use super::FsError;
use super::attributes::{copy_attributes, is_about_renaming};
use crate::fault::Faults;

/// The permissions of a file we have to create: a hosts file is for everyone to read.
const NEW_FILE_MODE: u32 = 0o644;

/// How a replacement went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replaced {
    /// By renaming a new file over it.
    Renamed,
    /// By writing into the file.
    InPlace,
    /// Not at all: the file was no longer as expected.
    Changed,
}

/// Called with the old content right before a file is written in place.
pub type BeforeInPlace<'a> = &'a mut dyn FnMut(&[u8]) -> io::Result<()>;

/// A real path, with no symbolic link in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) path: &'a Path,
    pub(super) faults: &'a Faults,
}

impl Place<'_> {
    pub(super) fn read(&self) -> Result<Option<Vec<u8>>, FsError> {
        let failed = || FsError::io("reading", self.path);
        self.faults.step_without_space("read").map_err(failed())?;
        // A fifo or a device would block or never end: look before opening.
        match fs::metadata(self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed()(error)),
            Ok(metadata) if !metadata.is_file() => {
                return Err(FsError::NotRegular(self.path.to_owned()));
            }
            Ok(_) => {}
        }
        fs::read(self.path).map(Some).map_err(failed())
    }

    pub(super) fn remove(&self, expected: &[u8]) -> Result<bool, FsError> {
        if self.read()?.as_deref() != Some(expected) {
            return Ok(false);
        }
        self.faults
            .step_without_space("remove")
            .and_then(|()| fs::remove_file(self.path))
            .map_err(FsError::io("removing", self.path))?;
        self.sync_folder()
            .map_err(FsError::io("flushing the folder of", self.path))?;
        Ok(true)
    }

    /// Creates the file, which must not exist yet.
    pub(super) fn create(&self, new: &[u8]) -> Result<Replaced, FsError> {
        let temporary = self.temporary();
        let made = self
            .write_temporary(&temporary, new, |file| {
                file.set_permissions(fs::Permissions::from_mode(NEW_FILE_MODE))
            })
            .and_then(|()| {
                self.faults.step("rename")?;
                let here = rustix::fs::CWD;
                rustix::fs::renameat_with(
                    here,
                    &temporary,
                    here,
                    self.path,
                    RenameFlags::NOREPLACE,
                )?;
                self.sync_folder()
            });
        match made {
            Ok(()) => Ok(Replaced::Renamed),
            Err(error) => {
                drop(self.remove_temporary());
                if error.kind() == io::ErrorKind::AlreadyExists {
                    return Ok(Replaced::Changed);
                }
                Err(FsError::io("creating", self.path)(error))
            }
        }
    }

    pub(super) fn replace(
        &self,
        old: &[u8],
        new: &[u8],
        before_in_place: BeforeInPlace<'_>,
    ) -> Result<Replaced, FsError> {
        let metadata = self
            .faults
            .step_without_space("stat")
            .and_then(|()| fs::metadata(self.path))
            .map_err(FsError::io("reading", self.path))?;
        if metadata.nlink() == 1 {
            match self.replace_by_rename(&metadata, old, new) {
                Ok(replaced) => return Ok(replaced),
                Err(error) if old.starts_with(new) || is_about_renaming(&error) => {
                    let path = self.path.display();
                    tracing::debug!(%path, %error, "rename impossible, writing in place");
                }
                Err(error) => return Err(FsError::io("replacing", self.path)(error)),
            }
        }
        self.replace_in_place(old, new, before_in_place)
    }

    /// Writes the new content beside the file and renames it over; any error leaves the old or the
    /// new file.
    fn replace_by_rename(
        &self,
        metadata: &Metadata,
        old: &[u8],
        new: &[u8],
    ) -> io::Result<Replaced> {
        let temporary = self.temporary();
        let replaced = self
            .write_temporary(&temporary, new, |file| {
                copy_attributes(self.path, metadata, &temporary, file)
            })
            .and_then(|()| {
                self.faults.step_without_space("read")?;
                if fs::read(self.path)? != old {
                    self.remove_temporary()?;
                    return Ok(Replaced::Changed);
                }
                self.faults.step("rename")?;
                fs::rename(&temporary, self.path)?;
                self.sync_folder()?;
                Ok(Replaced::Renamed)
            });
        if replaced.is_err() {
            drop(self.remove_temporary());
        }
        replaced
    }

    /// Writes into the file itself; a failure half-way puts the old content back.
    fn replace_in_place(
        &self,
        old: &[u8],
        new: &[u8],
        before: BeforeInPlace<'_>,
    ) -> Result<Replaced, FsError> {
        let mut file = self
            .faults
            .step_without_space("open")
            .and_then(|()| OpenOptions::new().read(true).write(true).open(self.path))
            .map_err(FsError::io("opening", self.path))?;
        let mut now = Vec::new();
        file.read_to_end(&mut now)
            .map_err(FsError::io("reading", self.path))?;
        if now != old {
            return Ok(Replaced::Changed);
        }
        if !old.starts_with(new) {
            before(old).map_err(|source| FsError::Journal {
                path: self.path.to_owned(),
                source,
            })?;
        }
        self.overwrite(&mut file, old, new).map_err(|error| {
            drop(self.overwrite(&mut file, b"", old));
            FsError::io("writing", self.path)(error)
        })?;
        Ok(Replaced::InPlace)
    }

    /// Writes what differs from `old`, then cuts the file to size.
    fn overwrite(&self, file: &mut File, old: &[u8], new: &[u8]) -> io::Result<()> {
        let equal = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        if equal < new.len() {
            file.seek(SeekFrom::Start(equal as u64))?;
            self.faults.write("write in place", file, &new[equal..])?;
        }
        self.faults.step_without_space("cut")?;
        file.set_len(new.len() as u64)?;
        self.faults.step_without_space("flush")?;
        file.sync_all()
    }

    fn write_temporary(
        &self,
        temporary: &Path,
        new: &[u8],
        dress: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        // Only a crash of ours leaves this name behind: every writer holds our lock.
        drop(self.remove_temporary());
        self.faults.step("create the copy")?;
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(temporary)?;
        self.faults.write("write the copy", &mut file, new)?;
        self.faults.step("copy attributes")?;
        dress(&file)?;
        self.faults.step("flush the copy")?;
        file.sync_all()
    }

    pub(super) fn remove_temporary(&self) -> io::Result<()> {
        self.faults.step_without_space("remove the copy")?;
        fs::remove_file(self.temporary())
    }

    /// Returns the one name a half-written copy has.
    fn temporary(&self) -> PathBuf {
        let name = self
            .path
            .file_name()
            .unwrap_or_else(|| OsStr::new("file"))
            .to_string_lossy();
        self.path.with_file_name(format!(".{name}.kubebridge-new"))
    }

    fn sync_folder(&self) -> io::Result<()> {
        self.faults.step_without_space("flush the folder")?;
        File::open(self.path.parent().unwrap_or(self.path))?.sync_all()
    }
}
