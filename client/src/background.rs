//! Sessions that outlive the command that began them.
//!
//! `connect` starts this program once more, as [`NAME`], and prints what that process says until
//! the session is connected ([`command`]); the process has no terminal and goes on by itself
//! ([`session`]). A fork would not do: our threads would not be in the child. What a session does
//! is not decided here.

pub mod command;
pub mod log;
pub mod session;
mod voice;

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

/// The name under which a session's process runs; its first argument says that it is one.
pub const NAME: &str = "kubebridge-session";

/// The same of one whose standard error is the socket of its privileged helper.
const HELPED: &str = "kubebridge-session-helped";

/// Tells whether these are the arguments of a session's process.
#[must_use]
pub fn is_session(arguments: &[OsString]) -> bool {
    let first = arguments.first();
    first.is_some_and(|first| first == NAME) || is_helped(arguments)
}

fn is_helped(arguments: &[OsString]) -> bool {
    arguments.first().is_some_and(|first| first == HELPED)
}

/// What a session's process says to the command, one JSON object per line.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    /// Text for stderr, as it is.
    Talk(String),
    /// Text for stdout, as it is.
    Data(String),
    /// The session is connected, and waits to be left alone.
    Connected,
    /// It is not connected, and all is undone.
    Failed {
        /// The exit code.
        exit: u8,
        /// What went wrong.
        error: String,
        /// What helps.
        hint: Option<String>,
    },
}

/// What the command says to a session's process. When it goes without a word, that is a stop.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Order {
    /// To go on alone.
    Keep,
    /// To undo everything and end.
    Stop,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_known_by_its_first_argument_alone() {
        let is = |words: &[&str]| {
            let arguments: Vec<_> = words.iter().map(OsString::from).collect();
            is_session(&arguments)
        };
        assert!(is(&["kubebridge-session", "connect"]));
        assert!(!is(&["kubebridge", "connect"]));
        assert!(!is(&["kubebridge", "kubebridge-session"]));
        assert!(!is(&[]));
    }
}
