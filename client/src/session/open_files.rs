//! How many files a session may have open. Knows nothing of what they are.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many as macOS gives at most, and ten times what a session without a proxy's load test needs.
/// Not more where there is more: the credential plugins that are run inherit it, and some close all
/// numbers there could be.
const OPEN_FILES: u64 = 10_240;

/// Takes more than a login gives (1,024, on macOS 256): by proxy each flow is a socket.
pub(super) fn raise() {
    let limits = getrlimit(Resource::Nofile);
    let most = limits.maximum.unwrap_or(OPEN_FILES).min(OPEN_FILES);
    if limits.current.is_none_or(|current| current >= most) {
        return;
    }
    let raised = Rlimit {
        current: Some(most),
        ..limits
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => tracing::debug!(open_files = most, "limit raised"),
        Err(error) => tracing::warn!(%error, "cannot raise the limit of open files"),
    }
}
