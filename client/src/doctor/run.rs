//! Looks at everything at once: the sessions say what they know first, the rest goes by that.

use std::path::PathBuf;
use std::time::Duration;

use futures::future::join_all;
use kubebridge_dns::name::Name;
use kubebridge_platform::Sys;
use kubebridge_platform::net::IpNet;
use tokio::time::{Instant, timeout};

use super::{Check, Finding, Report, machine, session, target};
use crate::inquiry::path::PathTarget;
use crate::status::StatusReport;
use crate::status::client::{Session, all_sessions};

/// How long a session may take to say how it stands: it answers from memory.
const STATUS: Duration = Duration::from_secs(1);

/// The most destinations at once: a session has room for 16 questions.
pub(crate) const MOST_TARGETS: usize = 8;

/// What is to be looked at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    /// Destinations.
    pub(crate) targets: Vec<PathTarget>,
    /// Names outside the cluster.
    pub(crate) probes: Vec<Name>,
    /// Networks beside the cluster's.
    pub(crate) include: Vec<IpNet>,
    /// Networks that are left alone.
    pub(crate) exclude: Vec<IpNet>,
    /// The only session, by its id.
    pub(crate) session: Option<String>,
    /// The only session, by its context.
    pub(crate) context: Option<String>,
    /// The kubeconfig, in place of the usual ones.
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// Looks, and reports.
pub(crate) async fn examine(asked: &Asked) -> Report {
    let begun = Instant::now();
    let sys = Sys::default();
    let (sessions, mut found) = sessions(asked).await;
    let (of_machine, of_sessions, of_targets) = futures::join!(
        machine::findings(&sys, asked, &sessions),
        session::findings(&sys, &sessions),
        target::findings(asked, &sessions),
    );
    found.extend(of_machine);
    found.extend(of_sessions);
    found.extend(of_targets);
    Report::new(found, begun.elapsed())
}

/// How the sessions stand, and what is to be said of those that do not say.
async fn sessions(asked: &Asked) -> (Vec<StatusReport>, Vec<Finding>) {
    let (mut known, mut found) = (Vec::new(), Vec::new());
    let wanted = |session: &Session| asked.session.as_ref().is_none_or(|id| *id == session.id);
    let all = match all_sessions().await {
        Ok(all) => all,
        // Whoever may not ask them has a machine all the same.
        Err(failure) => {
            let why = format!("sessions cannot be asked: {:#}", failure.error);
            let none = Finding::skipped(Check::Session, why);
            let hint = failure
                .hint
                .unwrap_or_else(|| "sudo kubebridge doctor".to_owned());
            return (known, vec![none.help(hint)]);
        }
    };
    let told = all.into_iter().filter(wanted).map(|session| async move {
        let about = format!("session {}", session.id);
        match timeout(STATUS, session.status()).await {
            Ok(Ok(report)) => Ok(report),
            Ok(Err(error)) => Err(silent(&format!("{error:#}")).about(about)),
            Err(_) => Err(silent(&format!("no word within {STATUS:?}")).about(about)),
        }
    });
    for told in join_all(told).await {
        match told {
            Ok(report) => known.push(report),
            Err(finding) => found.push(finding),
        }
    }
    let is_meant = |one: &StatusReport| asked.context.is_none() || one.context == asked.context;
    known.retain(is_meant);
    if known.is_empty() && found.is_empty() {
        let none = Finding::skipped(Check::Session, "no session of this user runs");
        found.push(none.help("kubebridge connect"));
    }
    (known, found)
}

fn silent(why: &str) -> Finding {
    let why = format!("it does not say how it stands: {why}");
    Finding::fail(Check::Session, "silent", why)
        .help("kubebridge disconnect; else end its process, then sudo kubebridge recover")
}
