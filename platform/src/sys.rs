//! `Sys`: the one value through which this crate reaches the operating system, and session ids.
//!
//! A test gives another root, bus and directories. It holds places only: no handle is opened here.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::fault::Faults;

/// Where the operating system is to be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sys {
    /// The root of the file system that `/etc/hosts` and its like are taken from.
    pub root: PathBuf,
    /// The D-Bus address of the system bus; `None` means `DBUS_SYSTEM_BUS_ADDRESS` or the default.
    pub bus_address: Option<String>,
    /// Where journals live across reboots (not under `root`).
    pub state_dir: PathBuf,
    /// Where locks and sockets live until the next boot (not under `root`).
    pub runtime_dir: PathBuf,
    /// Failures to come, in tests; none otherwise.
    pub faults: Faults,
}

impl Default for Sys {
    fn default() -> Self {
        Self {
            root: PathBuf::from("/"),
            bus_address: None,
            state_dir: PathBuf::from("/var/lib/kubebridge"),
            runtime_dir: PathBuf::from("/run/kubebridge"),
            faults: Faults::default(),
        }
    }
}

impl Sys {
    /// Returns the place of an absolute path under the root.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.root
            .join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// Returns the folder of the session journals.
    pub fn journals(&self) -> PathBuf {
        self.state_dir.join("sessions")
    }

    /// Returns the journal of one session.
    pub fn journal(&self, session: &SessionId) -> PathBuf {
        self.journals().join(format!("{session}.journal"))
    }

    /// Returns the file whose lock is held while sessions claim, make links or repair.
    pub fn machine_lock(&self) -> PathBuf {
        self.runtime_dir.join("machine.lock")
    }

    /// Returns the folder of what the sessions have for themselves.
    pub fn claims(&self) -> PathBuf {
        self.runtime_dir.join("claims")
    }

    /// Returns the file whose lock guards our edits of the hosts file.
    pub fn hosts_lock(&self) -> PathBuf {
        self.runtime_dir.join("hosts.lock")
    }
}

/// The name of one session: 8 lower-case hexadecimal digits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SessionId(String);

/// The text is no session id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a session id (8 lower-case hexadecimal digits)")]
pub struct SessionIdError(String);

impl SessionId {
    /// Draws a new id.
    pub fn random() -> Self {
        Self(format!("{:08x}", rand::random::<u32>()))
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SessionId {
    type Err = SessionIdError;

    fn from_str(text: &str) -> Result<Self, SessionIdError> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 8 && text.bytes().all(digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(SessionIdError(text.to_owned()))
        }
    }
}

impl TryFrom<String> for SessionId {
    type Error = SessionIdError;

    fn try_from(text: String) -> Result<Self, SessionIdError> {
        text.parse()
    }
}

impl From<SessionId> for String {
    fn from(id: SessionId) -> Self {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_id_is_eight_lower_case_hex_digits() {
        assert!("0a1b2c3d".parse::<SessionId>().is_ok());
        for text in [
            "",
            "0a1b2c3",
            "0A1b2c3d",
            "0a1b2c3d0",
            "../../ab",
            "0a1b2c3g",
        ] {
            assert!(text.parse::<SessionId>().is_err(), "{text}");
        }
        let drawn = SessionId::random();
        assert_eq!(drawn.to_string().parse(), Ok(drawn));
    }

    #[test]
    fn absolute_paths_are_taken_under_the_root() {
        let sys = Sys {
            root: PathBuf::from("/tmp/root"),
            ..Sys::default()
        };
        assert_eq!(sys.path("/etc/hosts"), Path::new("/tmp/root/etc/hosts"));
        assert_eq!(Sys::default().path("/etc/hosts"), Path::new("/etc/hosts"));
    }
}
