//! Files of the host under a root: exact reading, exact replacing.
//!
//! A replaced file keeps its mode, owner and extended attributes, and a symbolic link keeps being
//! one: its target is edited. Normally the new content is written beside the file, flushed and
//! renamed over it, so that a crash leaves the old or the new file. Where a rename cannot work (a
//! bind mount, a second hard link, a folder we may not write) the file is written in place, after
//! the caller has put the old content into safety. What to write is decided elsewhere.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::RenameFlags;

pub use error::FsError;
pub(crate) use lock::try_lock;
pub use lock::{Lock, make_dir};
pub use snapshot::{Kind, Snapshot};

mod error;
mod lock;
mod snapshot;

/// As many as the kernel follows in one path.
const MAX_LINKS: usize = 40;

/// The permissions of a file we have to create: a hosts file is for everyone to read.
const NEW_FILE_MODE: u32 = 0o644;

/// The files below one folder, `/` except in tests.
#[derive(Debug, Clone)]
pub struct RootFs {
    root: PathBuf,
}

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

impl RootFs {
    /// Makes the file system below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Follows every symbolic link of an absolute path, inside the root; the end may be missing.
    pub fn resolve(&self, path: &Path) -> Result<PathBuf, FsError> {
        let mut waiting: Vec<PathBuf> = vec![path.to_owned()];
        let mut done = PathBuf::new();
        let mut links = 0;
        while let Some(part) = waiting.pop() {
            let mut components = part.components();
            match components.next() {
                None => continue,
                Some(Component::RootDir) => done.clear(),
                Some(Component::ParentDir) => drop(done.pop()),
                Some(Component::Normal(name)) => done.push(name),
                Some(Component::CurDir | Component::Prefix(_)) => {}
            }
            waiting.push(components.as_path().to_owned());
            let Ok(target) = fs::read_link(self.root.join(&done)) else {
                continue;
            };
            links += 1;
            if links > MAX_LINKS {
                return Err(FsError::TooManyLinks(path.to_owned()));
            }
            done.pop();
            waiting.push(target);
        }
        Ok(self.root.join(done))
    }

    /// Reads a regular file through symbolic links; `None` if there is none.
    pub fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, FsError> {
        read_place(&self.resolve(path)?)
    }

    /// Takes an exact picture of what stands at `path`, without following a link there.
    pub fn snapshot(&self, path: &Path) -> Result<Snapshot, FsError> {
        let folder = self.resolve(path.parent().unwrap_or(path))?;
        Snapshot::take(&folder.join(path.file_name().unwrap_or_default()))
    }

    /// Replaces the content of `path`, provided it still is `expected` (`None`: no such file).
    pub fn replace(
        &self,
        path: &Path,
        expected: Option<&[u8]>,
        new: &[u8],
        before_in_place: BeforeInPlace<'_>,
    ) -> Result<Replaced, FsError> {
        let place = self.resolve(path)?;
        let Some(old) = expected else {
            return create(&place, new);
        };
        let metadata = fs::metadata(&place).map_err(FsError::io("reading", &place))?;
        if metadata.nlink() == 1 {
            match replace_by_rename(&place, &metadata, old, new) {
                Ok(replaced) => return Ok(replaced),
                Err(error) => {
                    tracing::debug!(path = %place.display(), %error, "rename impossible, writing in place");
                }
            }
        }
        replace_in_place(&place, old, new, before_in_place)
    }

    /// Removes a file that still is `expected`; tells whether it did.
    pub fn remove(&self, path: &Path, expected: &[u8]) -> Result<bool, FsError> {
        let place = self.resolve(path)?;
        if read_place(&place)?.as_deref() != Some(expected) {
            return Ok(false);
        }
        fs::remove_file(&place).map_err(FsError::io("removing", &place))?;
        sync_folder(&place).map_err(FsError::io("flushing the folder of", &place))?;
        Ok(true)
    }

    /// Removes the half-written file that a crash during [`RootFs::replace`] may have left.
    pub fn remove_stale_temporary(&self, path: &Path) -> Result<(), FsError> {
        let temporary = temporary(&self.resolve(path)?);
        match fs::remove_file(&temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(FsError::io("removing", &temporary)(error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

fn read_place(place: &Path) -> Result<Option<Vec<u8>>, FsError> {
    // A fifo or a device would block or never end: look before opening.
    match fs::metadata(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FsError::io("reading", place)(error)),
        Ok(metadata) if !metadata.is_file() => return Err(FsError::NotRegular(place.to_owned())),
        Ok(_) => {}
    }
    fs::read(place)
        .map(Some)
        .map_err(FsError::io("reading", place))
}

/// Creates a file that must not exist yet.
fn create(place: &Path, new: &[u8]) -> Result<Replaced, FsError> {
    let temporary = temporary(place);
    let made = (|| {
        write_temporary(&temporary, new, |file| {
            file.set_permissions(fs::Permissions::from_mode(NEW_FILE_MODE))
        })?;
        let here = rustix::fs::CWD;
        rustix::fs::renameat_with(here, &temporary, here, place, RenameFlags::NOREPLACE)?;
        sync_folder(place)
    })();
    match made {
        Ok(()) => Ok(Replaced::Renamed),
        Err(error) => {
            drop(fs::remove_file(&temporary));
            if error.kind() == io::ErrorKind::AlreadyExists {
                return Ok(Replaced::Changed);
            }
            Err(FsError::io("creating", place)(error))
        }
    }
}

/// Writes the new content beside the file and renames it over; any error leaves the file as it was.
fn replace_by_rename(
    place: &Path,
    metadata: &fs::Metadata,
    old: &[u8],
    new: &[u8],
) -> io::Result<Replaced> {
    let temporary = temporary(place);
    let replaced = (|| {
        write_temporary(&temporary, new, |file| {
            copy_attributes(place, metadata, &temporary, file)
        })?;
        if fs::read(place)? != old {
            fs::remove_file(&temporary)?;
            return Ok(Replaced::Changed);
        }
        fs::rename(&temporary, place)?;
        sync_folder(place)?;
        Ok(Replaced::Renamed)
    })();
    if replaced.is_err() {
        drop(fs::remove_file(&temporary));
    }
    replaced
}

/// Writes into the file itself; a failure half-way puts the old content back.
fn replace_in_place(
    place: &Path,
    old: &[u8],
    new: &[u8],
    before: BeforeInPlace<'_>,
) -> Result<Replaced, FsError> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(place)
        .map_err(FsError::io("opening", place))?;
    let mut now = Vec::new();
    file.read_to_end(&mut now)
        .map_err(FsError::io("reading", place))?;
    if now != old {
        return Ok(Replaced::Changed);
    }
    before(old).map_err(|source| FsError::Journal {
        path: place.to_owned(),
        source,
    })?;
    overwrite(&mut file, new).map_err(|error| {
        drop(overwrite(&mut file, old));
        FsError::io("writing", place)(error)
    })?;
    Ok(Replaced::InPlace)
}

fn overwrite(file: &mut File, bytes: &[u8]) -> io::Result<()> {
    file.rewind()?;
    file.write_all(bytes)?;
    file.set_len(bytes.len() as u64)?;
    file.sync_all()
}

fn write_temporary(
    temporary: &Path,
    new: &[u8],
    dress: impl FnOnce(&File) -> io::Result<()>,
) -> io::Result<()> {
    // Only a crash of ours leaves this name behind: every writer holds our lock.
    drop(fs::remove_file(temporary));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(temporary)?;
    file.write_all(new)?;
    dress(&file)?;
    file.sync_all()
}

/// Gives the new file the owner, extended attributes and mode of the old one.
fn copy_attributes(
    place: &Path,
    metadata: &fs::Metadata,
    temporary: &Path,
    file: &File,
) -> io::Result<()> {
    std::os::unix::fs::fchown(file, Some(metadata.uid()), Some(metadata.gid()))?;
    for name in xattr::list(place).into_iter().flatten() {
        if let Some(value) = xattr::get(place, &name)?
            && xattr::get(temporary, &name)?.as_ref() != Some(&value)
        {
            xattr::set(temporary, &name, &value)?;
        }
    }
    // Last, because changing the owner clears set-id bits and an ACL changes the group bits.
    file.set_permissions(metadata.permissions())
}

/// The one name a half-written copy of `place` has.
fn temporary(place: &Path) -> PathBuf {
    let name = place.file_name().unwrap_or_else(|| OsStr::new("file"));
    place.with_file_name(format!(".{}.kubebridge-new", name.to_string_lossy()))
}

fn sync_folder(place: &Path) -> io::Result<()> {
    File::open(place.parent().unwrap_or(place))?.sync_all()
}

#[cfg(test)]
mod tests;
