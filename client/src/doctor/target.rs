//! `target` and `ping`: the way to a destination, and what the failure on it is in words.

use super::run::Asked;
use super::{Check, Finding};
use crate::status::StatusReport;

/// Has the sessions follow the ways, and judges.
pub(super) async fn findings(asked: &Asked, sessions: &[StatusReport]) -> Vec<Finding> {
    let _ = sessions;
    let none = |wanted: &super::wanted::Wanted| {
        Finding::fail(Check::Target, "no-session", "no session runs").about(wanted.to_string())
    };
    std::future::ready(asked.targets.iter().map(none).collect()).await
}
