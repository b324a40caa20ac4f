//! `privilege`: how a session would become root here, without asking for anything.

use crate::doctor::{Check, Finding};
use crate::failure::Failure;
use crate::helper;

const CHECK: Check = Check::Privilege;

/// What needs no root.
const WITHOUT: &str = "connect --mode proxy needs no root";

/// Looks for sudo and pkexec, and judges.
pub(super) fn check() -> Finding {
    if rustix::process::geteuid().is_root() {
        return Finding::ok(CHECK, "root", "this is root");
    }
    judge(helper::launchers())
}

fn judge(found: Result<Vec<String>, Failure>) -> Finding {
    match found {
        Ok(found) if found.is_empty() => {
            let why = "neither sudo nor pkexec is here: a link cannot be made";
            Finding::warn(CHECK, "none", why).help(WITHOUT)
        }
        Ok(found) => {
            let why = format!("{} starts the helper", found.join(", else "));
            Finding::ok(CHECK, "helper", why)
        }
        Err(failure) => {
            let hint = failure.hint.unwrap_or_else(|| WITHOUT.to_owned());
            Finding::warn(CHECK, "not-run", format!("{:#}", failure.error)).help(hint)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;
    use crate::failure::Exit;

    #[test]
    fn a_machine_without_a_way_to_root_is_told_what_needs_none() {
        let none = judge(Ok(vec![]));
        assert_eq!((none.verdict, none.found), (Verdict::Warn, "none"));
        assert!(none.help.unwrap().contains("--mode proxy"));
        let sudo = judge(Ok(vec!["/usr/bin/sudo".to_owned()]));
        assert_eq!((sudo.verdict, sudo.found), (Verdict::Ok, "helper"));
        let refused = Failure::message(Exit::Privilege, "could be changed").with_hint("move it");
        let refused = judge(Err(refused));
        assert_eq!((refused.verdict, refused.found), (Verdict::Warn, "not-run"));
        assert_eq!(refused.help.as_deref(), Some("move it"));
    }
}
