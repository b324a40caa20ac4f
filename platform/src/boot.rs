//! Repairing the machine when it starts: a systemd unit that runs `recover` before names are resolved.
//!
//! What the unit says is `boot/unit.rs`. It is put where an administrator's units are, and enabled by
//! the link that `systemctl enable` would make; no program is run and nothing is started. Only files
//! with our first line are ever replaced or removed.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::fs::{FsError, Kind, Replaced, RootFs, make_dir};
use crate::sys::Sys;

mod unit;

/// The unit's name.
pub const UNIT: &str = "kubebridge-recover.service";

/// Where the units of the machine's administrator are.
const UNITS: &str = "/etc/systemd/system";
/// What is started as early as a unit may write files.
const WANTS: &str = "sysinit.target.wants";
/// What there is where systemd runs the machine (`sd_booted(3)`).
const BOOTED: &str = "/run/systemd/system";

/// Why recovery at boot could not be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// Another program starts the machine.
    #[error("systemd does not run this machine")]
    NoSystemd,
    /// A unit cannot name the program, or the folder of the hosts file.
    #[error("a path with other characters than letters, digits and /._+-@: cannot stand in a unit: {}", .0.display())]
    Program(PathBuf),
    /// A file of somebody else is in the way.
    #[error("{} is not of kubebridge", .0.display())]
    Foreign(PathBuf),
    /// A file could not be read or written.
    #[error("using the unit's files")]
    Files(#[from] FsError),
}

/// What recovery at boot consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// The unit's file.
    pub unit: PathBuf,
    /// Its content.
    pub content: String,
    /// The link that has it started.
    pub link: PathBuf,
    /// Where that leads.
    pub target: PathBuf,
}

/// Plans recovery at boot by a program.
pub fn plan(sys: &Sys, program: &Path) -> Result<Installation, BootError> {
    if !sys.path(BOOTED).is_dir() {
        return Err(BootError::NoSystemd);
    }
    // A hosts file that is a link is edited where it is.
    let hosts = RootFs::new(sys).resolve(Path::new("/etc/hosts"))?;
    let hosts = hosts.strip_prefix(&sys.root).unwrap_or(&hosts);
    let folder = Path::new("/").join(hosts.parent().unwrap_or_else(|| Path::new("etc")));
    let content = unit::content(program, &sys.state_dir, &folder);
    let content = content.ok_or_else(|| BootError::Program(program.to_owned()))?;
    Ok(Installation {
        unit: Path::new(UNITS).join(UNIT),
        content,
        link: Path::new(UNITS).join(WANTS).join(UNIT),
        target: Path::new("..").join(UNIT),
    })
}

/// Writes what was planned; returns the files that were not so before.
pub fn install(sys: &Sys, plan: &Installation) -> Result<Vec<PathBuf>, BootError> {
    let files = RootFs::new(sys);
    let mut written = Vec::new();
    let before = own_unit(&files, &plan.unit)?;
    check_link(sys, plan)?;
    make_dir(&sys.path(UNITS), 0o755, &sys.faults)?;
    if before.as_deref() != Some(plan.content.as_bytes()) {
        let new = plan.content.as_bytes();
        // What was there is ours, and made anew by the next call.
        let replaced = files.replace(&plan.unit, before.as_deref(), new, &mut |_| Ok(()))?;
        if replaced == Replaced::Changed {
            return Err(FsError::Contended(plan.unit.clone()).into());
        }
        written.push(plan.unit.clone());
    }
    let link = sys.path(&plan.link);
    if fs::symlink_metadata(&link).is_err() {
        make_dir(&sys.path(UNITS).join(WANTS), 0o755, &sys.faults)?;
        let made = sys.faults.step("make a link");
        made.and_then(|()| symlink(&plan.target, &link))
            .map_err(FsError::io("creating", &link))?;
        written.push(plan.link.clone());
    }
    Ok(written)
}

/// Removes recovery at boot; returns the files that were there.
pub fn remove(sys: &Sys) -> Result<Vec<PathBuf>, BootError> {
    let files = RootFs::new(sys);
    let (unit, wants) = (Path::new(UNITS).join(UNIT), Path::new(UNITS).join(WANTS));
    let link = wants.join(UNIT);
    let mut removed = Vec::new();
    let before = own_unit(&files, &unit)?;
    // The link first: one that leads nowhere is a complaint at each start.
    let at = sys.path(&link);
    if fs::read_link(&at).is_ok_and(|to| to.ends_with(UNIT)) {
        fs::remove_file(&at).map_err(FsError::io("removing", &at))?;
        removed.push(link);
        // As `systemctl disable` does; whatever else is in it keeps it.
        drop(fs::remove_dir(sys.path(&wants)));
    }
    if let Some(before) = before
        && files.remove(&unit, &before)?
    {
        removed.push(unit);
    }
    Ok(removed)
}

/// Reads the unit that is there; one of somebody else is refused.
fn own_unit(files: &RootFs, unit: &Path) -> Result<Option<Vec<u8>>, BootError> {
    match files.snapshot(unit)?.kind {
        Kind::Absent => Ok(None),
        Kind::File(text) if text.starts_with(unit::FIRST_LINE.as_bytes()) => Ok(Some(text)),
        Kind::File(_) | Kind::Symlink(_) | Kind::Other => Err(BootError::Foreign(unit.to_owned())),
    }
}

/// Fails if something else is where the link goes.
fn check_link(sys: &Sys, plan: &Installation) -> Result<(), BootError> {
    let at = sys.path(&plan.link);
    match fs::read_link(&at) {
        Ok(to) if to.ends_with(UNIT) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Ok(_) | Err(_) => Err(BootError::Foreign(plan.link.clone())),
    }
}

#[cfg(test)]
mod tests;
