//! What a link needs: `/dev/net/tun`, IPv6, and the MTU it got.

use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

use crate::sys::Sys;

/// The device links are made with.
const TUN: &str = "/dev/net/tun";

/// How `/dev/net/tun` is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
    /// It can be opened, by this user.
    Usable,
    /// There is none.
    Absent,
    /// Something else is in its place.
    NoDevice,
    /// This user may not open it.
    Denied,
    /// The kernel has no driver for it, or refuses for another reason.
    Refused(String),
}

/// Opens the device and closes it again: no link comes of that.
#[must_use]
pub fn tun_device(sys: &Sys) -> Device {
    let path = sys.path(Path::new(TUN));
    match std::fs::metadata(&path) {
        Ok(found) if found.file_type().is_char_device() => {}
        Ok(_) => return Device::NoDevice,
        Err(error) if error.kind() == ErrorKind::NotFound => return Device::Absent,
        Err(error) => return Device::Refused(error.to_string()),
    }
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let open = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nonblocking)
        .open(&path);
    match open {
        Ok(_) => Device::Usable,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Device::Denied,
        Err(error) => Device::Refused(error.to_string()),
    }
}

/// Tells whether a link made now would have no IPv6.
#[must_use]
pub fn ipv6_switched_off(sys: &Sys) -> bool {
    crate::routes::has_no_ipv6(sys)
}

/// Reads the MTU of a link.
#[must_use]
pub fn link_mtu(sys: &Sys, link: &str) -> Option<u32> {
    // A name is one component of a path, whatever it holds.
    let name = Path::new(link).file_name()?;
    let path = Path::new("/sys/class/net").join(name).join("mtu");
    let text = std::fs::read_to_string(sys.path(path)).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_device_that_is_absent_or_something_else_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let sys = Sys {
            root: folder.path().to_owned(),
            ..Sys::default()
        };
        assert_eq!(tun_device(&sys), Device::Absent);
        fs::create_dir_all(folder.path().join("dev/net")).unwrap();
        fs::write(folder.path().join("dev/net/tun"), "").unwrap();
        assert_eq!(tun_device(&sys), Device::NoDevice);
    }

    #[test]
    fn the_mtu_of_a_link_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("sys/class/net/kb0");
        fs::create_dir_all(&link).unwrap();
        fs::write(link.join("mtu"), "16000\n").unwrap();
        let sys = Sys {
            root: folder.path().to_owned(),
            ..Sys::default()
        };
        assert_eq!(link_mtu(&sys, "kb0"), Some(16000));
        assert_eq!(link_mtu(&sys, "kb1"), None);
        assert_eq!(link_mtu(&sys, ".."), None);
    }
}
