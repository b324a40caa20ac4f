//! Many checks against one lab: all are made, all that failed are told.

use std::fmt::Display;

use anyhow::{Result, bail};

/// The checks made so far.
#[derive(Debug, Default)]
pub struct Checks {
    made: usize,
    failures: Vec<String>,
}

impl Checks {
    /// Starts with none.
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks that `got` reads as `wanted`.
    pub fn equal(&mut self, what: impl Display, got: Result<String>, wanted: &str) {
        self.that(
            what,
            got.and_then(|got| match got == wanted {
                true => Ok(()),
                false => bail!("got    {got}\n      wanted {wanted}"),
            }),
        );
    }

    /// Checks that `outcome` is no error.
    pub fn that(&mut self, what: impl Display, outcome: Result<()>) {
        self.made += 1;
        if let Err(error) = outcome {
            self.failures.push(format!("{what}:\n      {error:#}"));
        }
    }

    /// Fails if any check did, with all of them.
    pub fn finish(self) -> Result<()> {
        if !self.failures.is_empty() {
            bail!(
                "{} of {} checks failed:\n  - {}",
                self.failures.len(),
                self.made,
                self.failures.join("\n  - ")
            );
        }
        Ok(())
    }
}
