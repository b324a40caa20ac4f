//! How a command ends when it fails: exit code, chain of causes, and what to do about it.
//!
//! Does not print or exit; `main` does.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The exit codes of the program.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// Anything without a code of its own.
    Other = 1,
    /// Wrong arguments.
    Usage = 64,
    /// The traffic-manager cannot be reached.
    Unreachable = 69,
    /// The operating system refused a change.
    HostOs = 71,
    /// Another session, or a port that is in use.
    Busy = 73,
    /// The user may not do this.
    Privilege = 77,
    /// A file that cannot be read or understood.
    File = 78,
}

impl Exit {
    /// Reads the code that another process of ours ended with.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        let all = [
            Self::Usage,
            Self::Unreachable,
            Self::HostOs,
            Self::Busy,
            Self::Privilege,
            Self::File,
        ];
        let known = all.into_iter().find(|exit| *exit as u8 == code);
        known.unwrap_or(Self::Other)
    }
}

/// An error with the exit code it leads to and, where known, the way out.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What went wrong, with its causes.
    pub error: anyhow::Error,
    /// The command or setting that helps.
    pub hint: Option<String>,
}

impl Failure {
    /// Makes a failure from an error or a message.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self {
            exit,
            error: error.into(),
            hint: None,
        }
    }

    /// Makes a failure from a message alone.
    #[must_use]
    pub fn message(
        exit: Exit,
        message: impl fmt::Display + fmt::Debug + Send + Sync + 'static,
    ) -> Self {
        Self {
            exit,
            error: anyhow::Error::msg(message),
            hint: None,
        }
    }

    /// Makes the failure of a wrong command line.
    #[must_use]
    pub fn usage(message: impl fmt::Display + fmt::Debug + Send + Sync + 'static) -> Self {
        Self::message(Exit::Usage, message).with_hint("kubebridge --help")
    }

    /// Adds what helps.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts what was being done in front of the chain.
    #[must_use]
    pub fn context(self, context: impl fmt::Display + Send + Sync + 'static) -> Self {
        Self {
            error: self.error.context(context),
            ..self
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Exit::Other, error)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Other, error)
    }
}

/// One line with the chain of causes, and a `hint:` line where there is one.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&chain(&self.error))?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// Writes an error with its causes on one line; a cause that only says what stands there already
/// is left out: some libraries put the same words around what they were given.
#[must_use]
pub fn chain(error: &anyhow::Error) -> String {
    let mut words: Vec<String> = Vec::new();
    for cause in error.chain().map(ToString::to_string) {
        match words.last_mut() {
            Some(last) if last.ends_with(&cause) => {}
            Some(last) if cause.starts_with(&*last) => *last = cause,
            Some(_) | None => words.push(cause),
        }
    }
    words.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_words_are_said_once() {
        let twice = anyhow::anyhow!("Connection refused")
            .context("tcp connect error")
            .context("tcp connect error")
            .context("transport error");

        let text = "transport error: tcp connect error: Connection refused";
        assert_eq!(chain(&twice), text);
        let around = anyhow::anyhow!("tcp connect error: Connection refused")
            .context("tcp connect error")
            .context("transport error");
        assert_eq!(chain(&around), text);
    }

    #[test]
    fn a_failure_prints_its_chain_on_one_line_and_the_hint_on_the_next() {
        let failure = Failure::new(Exit::HostOs, anyhow::anyhow!("access denied"))
            .context("link")
            .with_hint("sudo kubebridge connect");

        assert_eq!(
            failure.to_string(),
            "link: access denied\nhint: sudo kubebridge connect"
        );
    }
}
