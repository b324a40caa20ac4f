//! Making a copy look like the file it is to replace, and what it means when that fails.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::io::Errno;

/// Tells whether writing in place may work where renaming did not: the file is a mount point, the
/// folder is not ours to write, or the copy cannot be made to look like the file.
///
/// A full or broken disk is no such case: half a file is worse than the old one.
pub(super) fn is_about_renaming(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| {
        [
            Errno::BUSY,
            Errno::PERM,
            Errno::ACCESS,
            Errno::ROFS,
            Errno::XDEV,
            Errno::OPNOTSUPP,
            Errno::NAMETOOLONG,
        ]
        .contains(&errno)
    })
}

/// Gives the new file the owner, extended attributes and mode of the old one.
pub(super) fn copy_attributes(
    place: &Path,
    metadata: &Metadata,
    temporary: &Path,
    file: &File,
) -> io::Result<()> {
    std::os::unix::fs::fchown(file, Some(metadata.uid()), Some(metadata.gid()))?;
    let attributes = |path: &Path| xattr::list(path).into_iter().flatten();
    for name in attributes(temporary) {
        // A folder with a default access list gives one to every new file.
        if xattr::get(place, &name)?.is_none() {
            xattr::remove(temporary, &name)?;
        }
    }
    for name in attributes(place) {
        if let Some(value) = xattr::get(place, &name)?
            && xattr::get(temporary, &name)?.as_ref() != Some(&value)
        {
            xattr::set(temporary, &name, &value)?;
        }
    }
    // Last, because changing the owner clears set-id bits and an ACL changes the group bits.
    file.set_permissions(metadata.permissions())
}
