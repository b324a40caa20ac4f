//! All findings, and what they come to.

use std::time::Duration;

use super::{Finding, Verdict};

/// What the doctor found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order of the checks.
    pub findings: Vec<Finding>,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    /// Puts findings in order.
    #[must_use]
    pub fn new(mut findings: Vec<Finding>, took: Duration) -> Self {
        findings.sort_by(|one, other| (one.check, &one.about).cmp(&(other.check, &other.about)));
        Self { findings, took }
    }

    /// The worst verdict; what was not looked at is not bad.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let all = self.findings.iter().map(|finding| finding.verdict);
        all.max().unwrap_or(Verdict::Ok).max(Verdict::Ok)
    }

    /// The exit code: 0 unless something fails, else that of the first that does.
    #[must_use]
    pub fn exit(&self) -> u8 {
        let mut all = self.findings.iter();
        let failing = all.find(|finding| finding.verdict == Verdict::Fail);
        failing.map_or(0, |finding| finding.exit as u8)
    }

    /// How many findings have a verdict.
    #[must_use]
    pub fn count(&self, verdict: Verdict) -> usize {
        let all = self.findings.iter();
        all.filter(|finding| finding.verdict == verdict).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Check;
    use crate::failure::Exit;

    #[test]
    fn the_exit_code_is_that_of_the_first_check_that_fails_and_nothing_else_counts() {
        let warn = Finding::warn(Check::ResolvConf, "dangling", "x");
        let skipped = Finding::skipped(Check::Tunnel, "no session");
        let fail = |check| Finding::fail(check, "x", "x");
        for (findings, verdict, exit) in [
            (vec![], Verdict::Ok, 0),
            (vec![skipped.clone()], Verdict::Ok, 0),
            (vec![warn.clone(), skipped], Verdict::Warn, 0),
            (
                vec![fail(Check::Tunnel), warn, fail(Check::Leftovers)],
                Verdict::Fail,
                71,
            ),
            (vec![fail(Check::Tunnel)], Verdict::Fail, 69),
            (
                vec![fail(Check::Target).exiting(Exit::Unreachable)],
                Verdict::Fail,
                69,
            ),
        ] {
            let report = Report::new(findings, Duration::ZERO);
            assert_eq!((report.verdict(), report.exit()), (verdict, exit));
        }
    }
}
