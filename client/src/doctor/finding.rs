//! What came of one check.

use serde::Serialize;

use super::Check;
use crate::failure::Exit;

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It could not be looked at, or there is nothing to look at.
    Skipped,
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Something may not work because of it.
    Warn,
    /// Something does not work because of it.
    Fail,
}

impl Verdict {
    /// The verdict as people read it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Skipped => "skipped",
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check.
    pub check: Check,
    /// What it is about, where there are several: a name, a session, a destination.
    pub about: Option<String>,
    /// How it is.
    pub verdict: Verdict,
    /// What was found, one word for programs.
    pub found: &'static str,
    /// The same for people, in one line.
    pub why: String,
    /// What was seen, line by line.
    pub evidence: Vec<String>,
    /// The command or setting that helps.
    pub help: Option<String>,
    /// What to apply in the cluster, where that helps.
    pub manifest: Option<String>,
    /// How the command ends for it, if it fails.
    #[serde(skip)]
    pub exit: Exit,
}

impl Finding {
    /// What was found, and how that is.
    #[must_use]
    pub fn of(check: Check, verdict: Verdict, found: &'static str, why: impl Into<String>) -> Self {
        Self {
            check,
            about: None,
            verdict,
            found,
            why: why.into(),
            evidence: Vec::new(),
            help: None,
            manifest: None,
            exit: check.exit(),
        }
    }

    /// All is well.
    #[must_use]
    pub fn ok(check: Check, found: &'static str, why: impl Into<String>) -> Self {
        Self::of(check, Verdict::Ok, found, why)
    }

    /// Good to know.
    #[must_use]
    pub fn note(check: Check, found: &'static str, why: impl Into<String>) -> Self {
        Self::of(check, Verdict::Note, found, why)
    }

    /// Something may not work.
    #[must_use]
    pub fn warn(check: Check, found: &'static str, why: impl Into<String>) -> Self {
        Self::of(check, Verdict::Warn, found, why)
    }

    /// Something does not work.
    #[must_use]
    pub fn fail(check: Check, found: &'static str, why: impl Into<String>) -> Self {
        Self::of(check, Verdict::Fail, found, why)
    }

    /// It was not looked at.
    #[must_use]
    pub fn skipped(check: Check, why: impl Into<String>) -> Self {
        Self::of(check, Verdict::Skipped, "skipped", why)
    }

    /// Says what it is about.
    #[must_use]
    pub fn about(self, about: impl Into<String>) -> Self {
        Self {
            about: Some(about.into()),
            ..self
        }
    }

    /// Adds what was seen.
    #[must_use]
    pub fn seen(mut self, evidence: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.evidence.extend(evidence.into_iter().map(Into::into));
        self
    }

    /// Adds what helps.
    #[must_use]
    pub fn help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    /// Adds what to apply.
    #[must_use]
    pub fn manifest(self, manifest: String) -> Self {
        Self {
            manifest: Some(manifest),
            ..self
        }
    }

    /// Ends the command otherwise than the check does.
    #[must_use]
    pub fn exiting(self, exit: Exit) -> Self {
        Self { exit, ..self }
    }
}

/// What a reading brought, or why it brought nothing.
pub(super) type Reading<T> = Result<T, String>;
