//! `leftovers`: what sessions left that died without undoing it.

use std::collections::BTreeSet;

use super::hosts_lines;
use crate::command::leftovers;
use crate::doctor::{Check, Finding};
use crate::status::{LeftoverReport, Leftovers, StatusReport};

const CHECK: Check = Check::Leftovers;

/// What repairs them.
const HELP: &str = "sudo kubebridge recover";

/// Looks for them, and judges.
pub(super) async fn check(sessions: &[StatusReport], hosts: &str) -> Finding {
    let live: BTreeSet<_> = sessions.iter().map(|one| one.session.as_str()).collect();
    let marked = hosts_lines::sessions(hosts);
    let strangers: Vec<_> = marked.difference(&live).copied().collect();
    let is_root = rustix::process::geteuid().is_root();
    judge(&leftovers().await, &strangers, is_root)
}

/// Judges the journals, and the sessions with lines in the hosts file that are not known to run.
fn judge(left: &Leftovers, strangers: &[&str], is_root: bool) -> Finding {
    let known = |session: &str| left.leftovers.iter().any(|one| one.session == session);
    let lines = strangers.iter().filter(|session| !known(session));
    let lines = lines.map(|session| format!("hosts lines of session {session}"));
    let evidence: Vec<_> = left.leftovers.iter().map(words).chain(lines).collect();
    if !left.leftovers.is_empty() || is_root && !strangers.is_empty() {
        let why = "sessions died without undoing what they did";
        return Finding::fail(CHECK, "dead-session", why)
            .seen(evidence)
            .help(HELP);
    }
    match &left.leftovers_error {
        _ if !strangers.is_empty() => Finding::warn(
            CHECK,
            "hosts-lines",
            "the hosts file has lines of sessions that are not this user's, or are dead",
        )
        .seen(evidence)
        .help(HELP),
        Some(error) => Finding::skipped(CHECK, error.clone()).help("sudo kubebridge doctor"),
        None => Finding::ok(CHECK, "none", "nothing is left of dead sessions"),
    }
}

fn words(left: &LeftoverReport) -> String {
    let what = match left.changes.as_slice() {
        [] => "its journal".to_owned(),
        changes => changes.join(", "),
    };
    format!("session {} (pid {}): {what}", left.session, left.pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    fn dead() -> Leftovers {
        Leftovers {
            leftovers: vec![LeftoverReport {
                session: "0a1b2c3d".to_owned(),
                pid: 7,
                changes: vec!["lines in the hosts file".to_owned()],
            }],
            ..Leftovers::default()
        }
    }

    #[test]
    fn what_is_left_fails_and_what_may_be_somebody_elses_is_a_warning() {
        let none = Leftovers::default();
        let denied = Leftovers {
            leftovers_error: Some("permission denied".to_owned()),
            ..Leftovers::default()
        };
        for (left, strangers, is_root, verdict, word) in [
            (&none, &[][..], true, Verdict::Ok, "none"),
            (&dead(), &[], true, Verdict::Fail, "dead-session"),
            (&dead(), &["0a1b2c3d"], false, Verdict::Fail, "dead-session"),
            (&none, &["deadbeef"], true, Verdict::Fail, "dead-session"),
            (&denied, &["deadbeef"], false, Verdict::Warn, "hosts-lines"),
            (&denied, &[], false, Verdict::Skipped, "skipped"),
        ] {
            let finding = judge(left, strangers, is_root);
            assert_eq!(
                (finding.verdict, finding.found),
                (verdict, word),
                "{finding:?}"
            );
            assert_eq!(finding.help.is_some(), verdict != Verdict::Ok);
        }
        let told = judge(&dead(), &["0a1b2c3d"], true).evidence;
        assert_eq!(told, ["session 0a1b2c3d (pid 7): lines in the hosts file"]);
    }
}
