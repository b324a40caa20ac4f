//! The shape of `/etc/resolv.conf`: what it is, not only what it says.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::dns::resolv_conf;
use crate::sys::Sys;

/// The file.
const PATH: &str = "/etc/resolv.conf";

/// What there is in the place of `/etc/resolv.conf`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResolvConfFile {
    /// Whether it can be read: a link that leads nowhere cannot.
    pub readable: bool,
    /// Where it leads, if it is a symbolic link.
    pub link: Option<PathBuf>,
    /// Whether something is mounted on it, as in containers: it cannot be replaced.
    pub mounted: bool,
    /// The servers it names, in order.
    pub nameservers: Vec<IpAddr>,
    /// The search domains it names.
    pub search: Vec<String>,
}

/// Looks at the file.
///
/// # Errors
///
/// It is there and cannot be read.
pub fn resolv_conf_file(sys: &Sys) -> io::Result<ResolvConfFile> {
    let bytes = super::file(sys, PATH)?;
    let parsed = resolv_conf::parse(bytes.as_deref().unwrap_or_default());
    let mounts = std::fs::read_to_string(sys.path(Path::new("/proc/self/mountinfo")));
    Ok(ResolvConfFile {
        readable: bytes.is_some(),
        link: std::fs::read_link(sys.path(Path::new(PATH))).ok(),
        mounted: mounts.is_ok_and(|text| is_mount_point(&text, PATH)),
        nameservers: parsed.nameservers.iter().map(|one| one.address).collect(),
        search: parsed.search,
    })
}

/// Tells whether something is mounted on exactly this path: the fifth field of a line.
fn is_mount_point(mountinfo: &str, path: &str) -> bool {
    let points = mountinfo
        .lines()
        .filter_map(|line| line.split_whitespace().nth(4));
    points.into_iter().any(|point| point == path)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn machine() -> (tempfile::TempDir, Sys) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["etc", "proc/self"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        let sys = Sys {
            root: folder.path().to_owned(),
            ..Sys::default()
        };
        (folder, sys)
    }

    #[test]
    fn a_file_a_link_a_dangling_link_and_none_are_told_apart() {
        let (folder, sys) = machine();
        let path = folder.path().join("etc/resolv.conf");
        assert_eq!(resolv_conf_file(&sys).unwrap(), ResolvConfFile::default());

        fs::write(&path, "nameserver 192.0.2.1\nsearch lan\n").unwrap();
        let file = resolv_conf_file(&sys).unwrap();
        assert!(file.readable && file.link.is_none());
        assert_eq!(file.nameservers, ["192.0.2.1".parse::<IpAddr>().unwrap()]);
        assert_eq!(file.search, ["lan"]);

        fs::rename(&path, folder.path().join("etc/other")).unwrap();
        symlink("other", &path).unwrap();
        let link = resolv_conf_file(&sys).unwrap();
        assert!(link.readable);
        assert_eq!(link.link.as_deref(), Some(Path::new("other")));

        fs::remove_file(folder.path().join("etc/other")).unwrap();
        let dangling = resolv_conf_file(&sys).unwrap();
        assert!(!dangling.readable && dangling.link.is_some());
    }

    #[test]
    fn a_mount_on_the_file_itself_is_seen_and_one_above_it_is_not() {
        let (folder, sys) = machine();
        let mounts = folder.path().join("proc/self/mountinfo");
        for (point, mounted) in [("/etc/resolv.conf", true), ("/etc", false)] {
            let line = format!("36 35 0:40 /x {point} rw,relatime - ext4 /dev/vda1 rw\n");
            fs::write(&mounts, line).unwrap();
            assert_eq!(resolv_conf_file(&sys).unwrap().mounted, mounted, "{point}");
        }
    }
}
