//! How the program ends when it cannot go on: an exit code, one line, and a hint where one is known.

use std::fmt;

/// The exit codes of the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Something else.
    Other = 1,
    /// The flags, environment or command make no sense.
    Usage = 64,
    /// No manager answers.
    Unreachable = 69,
    /// An address is in use.
    Busy = 73,
    /// The operating system does not allow it.
    Privilege = 77,
    /// A file is missing or wrong.
    File = 78,
}

/// A failure with an exit code; attached to an error as its context, found again by [`report`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What went wrong, in lower case and without a full stop.
    pub message: String,
    /// What would help.
    pub hint: Option<String>,
}

impl Failure {
    /// Describes a failure.
    #[must_use]
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            hint: None,
        }
    }

    /// Adds what would help.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// Returns what to write on stderr, and the exit code.
#[must_use]
pub fn report(error: &anyhow::Error) -> (String, u8) {
    let mut text = format!("error: {error:#}").replace('\n', " ");
    let Some(failure) = error.downcast_ref::<Failure>() else {
        return (text, Exit::Other as u8);
    };
    if let Some(hint) = &failure.hint {
        text.push_str("\nhint: ");
        text.push_str(hint);
    }
    (text, failure.exit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn a_failure_is_found_below_and_above_other_errors() {
        let failure = Failure::new(Exit::Busy, "cannot bind").hint("stop the other one");
        let error = anyhow!("in use").context(failure).context("cannot start");
        let (text, code) = report(&error);
        assert_eq!(
            text,
            "error: cannot start: cannot bind: in use\nhint: stop the other one"
        );
        assert_eq!(code, 73);
    }

    #[test]
    fn any_other_error_is_one_line_and_exit_1() {
        assert_eq!(report(&anyhow!("a\nb")), ("error: a b".to_owned(), 1));
    }
}
