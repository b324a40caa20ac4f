//! `target` and `ping`: the way to a destination, and what the failure on it is in words.

mod judge;
mod manifests;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kubebridge_platform::{Sys, read_host_dns};
use kubebridge_proto::flow::Protocol;
use tokio::time::timeout;

use super::run::Asked;
use super::{Check, Finding};
use crate::cluster::meshes::Mesh;
use crate::cluster::{Cluster, Environment, Source};
use crate::inquiry::path::{PathReport, PathTarget};
use crate::originals::Originals;
use crate::status::StatusReport;
use crate::status::client;
use judge::{Injected, Seen, is_suspicious, service_of};

/// How long following a way may take: a name has 4.5 s, a dial in the cluster 5 s, and few need both.
const FOLLOWING: Duration = Duration::from_secs(7);
/// How long a look at a namespace may take: together with the above less than the whole may take.
const LOOKING: Duration = Duration::from_secs(2);

/// Has the sessions follow the ways, and judges.
pub(super) async fn findings(asked: &Asked, sessions: &[StatusReport]) -> Vec<Finding> {
    if sessions.is_empty() {
        let none = |wanted: &PathTarget| {
            let why = "no session runs: nothing leads into a cluster";
            let none = Finding::fail(Check::Target, "no-session", why);
            none.about(name(wanted)).help("kubebridge connect")
        };
        return asked.targets.iter().map(none).collect();
    }
    let ways = asked.targets.iter();
    let ways = ways.flat_map(|wanted| sessions.iter().map(move |session| (wanted, session)));
    let each = ways.map(|(wanted, session)| async move {
        let about = match sessions {
            [_] => name(wanted),
            _ => format!("{} (session {})", name(wanted), session.session),
        };
        one(asked, wanted, session).await.about(about)
    });
    join_all(each).await
}

/// The destination as it is asked for.
fn name(wanted: &PathTarget) -> String {
    match wanted.protocol {
        Protocol::Icmp => wanted.target.host.to_string(),
        Protocol::Tcp | Protocol::Udp => wanted.to_string(),
    }
}

async fn one(asked: &Asked, wanted: &PathTarget, session: &StatusReport) -> Finding {
    let report = match follow(wanted, &session.session).await {
        Ok(report) => report,
        Err(error) => {
            let why = format!("the session does not tell: {error}");
            return Finding::fail(Check::Target, "not-told", why).help("kubebridge status");
        }
    };
    let mut seen = Seen::new(wanted, &report, session);
    if is_suspicious(&seen)
        && let Some(service) = service_of(&report)
    {
        let looking = Box::pin(mesh_of(asked, session, service.namespace));
        seen.mesh = match timeout(LOOKING, looking).await {
            Ok(Ok(Some(mesh))) => Injected::In(mesh),
            Ok(Ok(None)) => Injected::NotSaid,
            Ok(Err(error)) => Injected::Unknown(error),
            Err(_) => Injected::Unknown(format!("no answer within {LOOKING:?}")),
        };
    }
    judge::judge(&seen)
}

async fn follow(wanted: &PathTarget, session: &str) -> Result<PathReport, String> {
    let following = async {
        let found = client::session(session).await;
        let found = found.map_err(|failure| failure.to_string())?;
        let found = found.ok_or("the session is gone")?;
        let report = found.path(wanted).await;
        report.map_err(|error| format!("{error:#}"))
    };
    let late = |_| Err(format!("no answer within {FOLLOWING:?}"));
    timeout(FOLLOWING, following).await.unwrap_or_else(late)
}

/// Looks at a namespace with the user's own credentials, where there is a kubeconfig.
async fn mesh_of(
    asked: &Asked,
    session: &StatusReport,
    namespace: &str,
) -> Result<Option<Mesh>, String> {
    let source = Source {
        file: asked.kubeconfig.clone(),
        context: session.context.clone().or_else(|| asked.context.clone()),
        environment: Environment::of_process(),
    };
    let in_words = |failure: crate::failure::Failure| format!("{:#}", failure.error);
    let (source, _) = source.settle().await.map_err(in_words)?;
    let originals = match read_host_dns(&Sys::default()).await {
        Ok(found) => Originals::new(&found.servers, &found.search),
        Err(_) => Originals::new(&[], &[]),
    };
    let cluster = Cluster::load(source, Arc::new(originals)).await;
    let cluster = cluster.map_err(in_words)?;
    let mesh = cluster.mesh_of(namespace).await;
    mesh.map_err(|problem| problem.to_string())
}

#[cfg(test)]
mod tests;
