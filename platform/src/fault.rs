//! Making the operating system fail at a chosen step, for tests of what a crash leaves behind.
//!
//! Every step that reads or changes the host asks here first. In production the answer is always
//! yes and costs one comparison; nothing else in this crate knows about tests.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

/// The failures to come; [`Faults::default`] has none.
#[derive(Debug, Clone, Default)]
pub struct Faults(Option<Arc<Mutex<Script>>>);

#[derive(Debug)]
struct Script {
    /// The step the trouble begins at, counted from 0; `usize::MAX` for never.
    at: usize,
    trouble: Trouble,
    /// The steps so far.
    steps: Vec<&'static str>,
}

/// What happens at the chosen step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// The process dies: neither this step nor any later one happens; a write stops half-way.
    Death,
    /// This step fails, later ones work.
    Once(Errno),
    /// This step and all later ones fail, as on a disk that stays full or read-only, but removing
    /// and shortening files goes on working.
    FromThenOn(Errno),
}

impl Faults {
    /// Lets everything work and counts.
    pub fn none_but_count() -> Self {
        Self::at(usize::MAX, Trouble::Death)
    }

    /// Makes trouble at the step of this number, counted from 0.
    pub fn at(step: usize, trouble: Trouble) -> Self {
        Self(Some(Arc::new(Mutex::new(Script {
            at: step,
            trouble,
            steps: Vec::new(),
        }))))
    }

    /// Returns the steps so far.
    pub fn steps(&self) -> Vec<&'static str> {
        self.0
            .as_ref()
            .map(|script| script.lock().steps.clone())
            .unwrap_or_default()
    }

    /// Makes other trouble from now on.
    pub fn script(&self, step: usize, trouble: Trouble) {
        if let Some(script) = &self.0 {
            let mut script = script.lock();
            script.at = step;
            script.trouble = trouble;
        }
    }

    /// Ends all trouble: the disk has room again.
    pub fn heal(&self) {
        self.script(usize::MAX, Trouble::Death);
    }

    /// Asks whether a step may happen.
    pub(crate) fn step(&self, name: &'static str) -> io::Result<()> {
        self.ask(name, Need::Other)
    }

    /// Asks whether a step may happen that a full disk does not hinder.
    pub(crate) fn step_without_space(&self, name: &'static str) -> io::Result<()> {
        self.ask(name, Need::NoSpace)
    }

    /// Writes all bytes, or half of them when this is the step of the trouble.
    pub(crate) fn write(
        &self,
        name: &'static str,
        file: &mut File,
        bytes: &[u8],
    ) -> io::Result<()> {
        match self.ask(name, Need::Other) {
            Ok(()) => file.write_all(bytes),
            Err(error) => {
                if self.is_at_trouble() {
                    file.write_all(&bytes[..bytes.len() / 2])?;
                }
                Err(error)
            }
        }
    }

    fn ask(&self, name: &'static str, need: Need) -> io::Result<()> {
        let Some(script) = &self.0 else {
            return Ok(());
        };
        let mut script = script.lock();
        let number = script.steps.len();
        script.steps.push(name);
        if number < script.at {
            return Ok(());
        }
        match script.trouble {
            Trouble::Death => Err(io::Error::other("the process died here")),
            Trouble::Once(errno) if number == script.at => Err(errno.into()),
            Trouble::FromThenOn(errno) if errno != Errno::NOSPC || need == Need::Other => {
                Err(errno.into())
            }
            Trouble::Once(_) | Trouble::FromThenOn(_) => Ok(()),
        }
    }

    /// Tells whether the last step asked for is the one where the trouble began.
    fn is_at_trouble(&self) -> bool {
        self.0.as_ref().is_some_and(|script| {
            let script = script.lock();
            script.steps.len() == script.at.saturating_add(1)
        })
    }
}

/// What a step needs from the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    NoSpace,
    Other,
}

/// Two handles are equal when they share their script.
impl PartialEq for Faults {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(two)) => Arc::ptr_eq(one, two),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }
}

impl Eq for Faults {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn death_stops_every_later_step_and_leaves_half_a_write() {
        let faults = Faults::at(1, Trouble::Death);
        let mut file = tempfile::tempfile().unwrap();
        assert!(faults.step("open").is_ok());
        assert!(faults.write("write", &mut file, b"abcd").is_err());
        assert!(faults.write("again", &mut file, b"efgh").is_err());
        assert!(faults.step_without_space("remove").is_err());
        assert_eq!(file.metadata().unwrap().len(), 2);
        assert_eq!(faults.steps(), ["open", "write", "again", "remove"]);
    }

    #[test]
    fn a_full_disk_still_removes_files() {
        let faults = Faults::at(0, Trouble::FromThenOn(Errno::NOSPC));
        assert!(faults.step("write").is_err());
        assert!(faults.step_without_space("remove").is_ok());
        faults.heal();
        assert!(faults.step("write").is_ok());
    }

    #[test]
    fn without_a_script_everything_works() {
        assert!(Faults::default().step("open").is_ok());
        assert_eq!(Faults::default(), Faults::default());
    }
}
