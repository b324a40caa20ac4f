//! `kubebridge doctor` on machines with one thing wrong each, and on one where all is well.
//!
//! Machines without a cluster have an /etc of their own and no D-Bus; the others are the lab's.

mod bare;
mod sessions;

use std::process::Output;

use anyhow::{Context, Result, ensure};
use kubebridge_tests::{machine::Machine, parts::program};
use serde_json::Value;

/// What the doctor said.
#[derive(Debug)]
pub(crate) struct Said {
    code: Option<i32>,
    document: Value,
}

impl Said {
    fn read(output: &Output) -> Result<Self> {
        let text = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        let document: Value =
            serde_json::from_str(&text).with_context(|| format!("{text}{error}"))?;
        ensure!(document["schema"] == "kubebridge.doctor/v1", "{document}");
        Ok(Self {
            code: output.status.code(),
            document,
        })
    }

    /// The findings of a check.
    fn all(&self, check: &str) -> Vec<&Value> {
        let findings = self.document["findings"].as_array();
        let findings = findings.into_iter().flatten();
        findings.filter(|one| one["check"] == check).collect()
    }

    /// The only finding of a check.
    pub(crate) fn of(&self, check: &str) -> Result<&Value> {
        match self.all(check).as_slice() {
            [one] => Ok(one),
            other => anyhow::bail!("{check}: {other:?} in {}", self.document),
        }
    }

    /// Fails unless the check has this verdict and word, and all the words are in what it says.
    pub(crate) fn must(
        &self,
        check: &str,
        verdict: &str,
        found: &str,
        words: &[&str],
    ) -> Result<()> {
        must(self.of(check)?, verdict, found, words)
    }

    /// Fails unless the command ended with the code.
    pub(crate) fn ends(&self, code: i32) -> Result<()> {
        ensure!(
            self.code == Some(code) && self.document["exit"] == code,
            "it ended with {:?}: {}",
            self.code,
            self.document
        );
        Ok(())
    }

    /// The words of all checks that are worse than `note`.
    fn troubles(&self) -> Vec<String> {
        let findings = self.document["findings"].as_array();
        let findings = findings.into_iter().flatten();
        let bad = findings
            .filter(|one| ["warn", "fail"].contains(&one["verdict"].as_str().unwrap_or_default()));
        bad.map(Value::to_string).collect()
    }
}

fn must(finding: &Value, verdict: &str, found: &str, words: &[&str]) -> Result<()> {
    ensure!(
        finding["verdict"] == verdict && finding["found"] == found,
        "not {verdict} {found}: {finding}"
    );
    let text = finding.to_string();
    for word in words {
        ensure!(text.contains(word), "no {word:?} in {finding}");
    }
    if ["warn", "fail"].contains(&verdict) {
        let why = finding["why"].as_str().unwrap_or_default();
        ensure!(!why.is_empty(), "it does not say why: {finding}");
    }
    Ok(())
}

/// Runs the doctor in a machine.
pub(crate) fn doctor(machine: &Machine, words: &[&str]) -> Result<Said> {
    let program = program("kubebridge")?.display().to_string();
    let first = [program.as_str(), "doctor", "-o", "json"];
    Said::read(&machine.run(&[&first[..], words].concat())?)
}
