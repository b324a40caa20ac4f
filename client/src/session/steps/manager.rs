//! Reaching the manager and opening a session with it.

use std::sync::Arc;
use std::time::Duration;

use kubebridge_dns::name::{Name, RecordType};
use kubebridge_proto::token::Reason;
use tokio::time::timeout;
use tonic::{Code, Status};

use super::missing;
use crate::cluster::{self, Problem};
use crate::control::way::Reach;
use crate::control::{self, Control, OpenError};
use crate::failure::{Exit, Failure};
use crate::flows::Flows;
use crate::originals::Originals;
use crate::probe::Finding;
use crate::routes::RouteTable;
use crate::session::Health;
use crate::session::os::Os;
use crate::session::parts::{Cluster, Parts};
use crate::skew;

/// How long the first snapshot of the routes may take; afterwards they come when they come.
const ROUTES_WAIT: Duration = Duration::from_secs(2);

pub(in crate::session) async fn dial<O: Os>(parts: &mut Parts<'_, O>) -> Result<String, Failure> {
    let found = parts
        .found
        .as_ref()
        .ok_or_else(|| missing("system's DNS"))?;
    let (reach, cluster) = parts.config.reach(&found.originals).await?;
    let mut version = String::new();
    if let Some(cluster) = cluster {
        let authorisation = cluster.authorisation();
        parts
            .board
            .note(|facts| facts.authorisation = Some(authorisation));
        if parts.config.probe.is_none() {
            parts.config.probe = outside_name(&cluster, &found.originals).await;
        }
        // The first request waits as long as an exec plugin may take; the dial would not.
        version = format!(", Kubernetes {}", cluster.version().await?);
    }
    let channel = control::dial(&reach)
        .await
        .map_err(|error| unreachable(&reach, error))?;
    let detail = format!("{}{version}", reach.way);
    parts.channel = Some(channel);
    parts.reach = Some(reach);
    Ok(detail)
}

/// The API server's name has to go on resolving, where it does.
async fn outside_name(cluster: &cluster::Cluster, originals: &Originals) -> Option<Name> {
    let name = cluster.host()?;
    let found = originals.find(&name, RecordType::A).await;
    matches!(found, Ok(Finding::Addresses(_))).then_some(name)
}

pub(in crate::session) async fn open_session<O: Os>(
    parts: &mut Parts<'_, O>,
) -> Result<String, Failure> {
    let channel = parts.channel.clone().ok_or_else(|| missing("channel"))?;
    let reach = parts.reach.clone().ok_or_else(|| missing("way"))?;
    let request = parts.request();
    let session = control::open_session(&reach, channel.clone(), &request)
        .await
        .map_err(|error| not_opened(&reach, error))?;
    skew::check(&session).map_err(|error| {
        Failure::new(Exit::Other, error)
            .with_hint("upgrade kubebridge, or connect to a manager of this version")
    })?;
    if let Some(warning) = skew::warning(&session) {
        parts.warn_once(warning);
    }
    let way = Arc::clone(&reach.way);
    let control = Control::start(
        reach,
        channel,
        request,
        session.clone(),
        parts.clock.clone(),
    );
    let mut routes = control.routes();
    let settled = routes.wait_for(RouteTable::is_settled);
    if timeout(ROUTES_WAIT, settled).await.is_err() {
        parts
            .reporter
            .warn("the manager has not sent its services yet; they follow when they come");
    }
    let services: usize = routes
        .borrow()
        .namespaces()
        .map(|(_, routes)| routes.len())
        .sum();
    let flows = Flows::start(way, control.session(), parts.config.data_connections);
    parts.board.note(|facts| {
        facts.session = Some(control.session());
        facts.flows = Some(Arc::clone(&flows));
        facts.opened = Some(control.opened());
        facts.changes = Some(control.changes());
        facts.tunnel = Some(control.tunnel());
        facts.routes = Some(control.routes());
    });
    let detail = format!(
        "version {}, cluster domain {}, namespaces {}, {services} services",
        session.manager_version,
        session.cluster_domain,
        parts.config.namespaces.join(" ")
    );
    parts.cluster = Some(Cluster {
        sessions: control.session(),
        tunnel: control.tunnel(),
        health: Health::Good,
        control,
        flows,
        session,
    });
    Ok(detail)
}

fn not_opened(reach: &Reach, error: OpenError) -> Failure {
    match error {
        OpenError::Refused(status) => refused(reach, &status),
        OpenError::Lacking(lacking) => lacking.into(),
        OpenError::Tokens(error) => no_token(error),
    }
}

/// What stands in the way of a token is told as it is where it is known.
fn no_token(error: anyhow::Error) -> Failure {
    match error.downcast::<Problem>() {
        Ok(problem) => problem.into(),
        Err(error) => Failure::new(Exit::Privilege, error)
            .context("cannot get a token for each namespace")
            .with_hint("kubectl -n NAMESPACE create token kubebridge-access --audience kubebridge"),
    }
}

/// What the manager says to a request it understood is no matter of reaching it.
fn refused(reach: &Reach, status: &Status) -> Failure {
    let said = anyhow::anyhow!("{}: {}", status.code(), words(status));
    let (exit, hint) = match (Reason::of(status), status.code()) {
        (Some(Reason::TokenMissing), _) => (
            Exit::Privilege,
            "each namespace needs a token of its ServiceAccount kubebridge-access: --token NAMESPACE=FILE",
        ),
        (Some(Reason::TokenExpired | Reason::TokenInvalid | Reason::KeyUnknown), _) => (
            Exit::Privilege,
            "kubectl -n NAMESPACE create token kubebridge-access --audience kubebridge",
        ),
        (_, Code::InvalidArgument) => (Exit::Usage, "correct the -n and --domain it names"),
        (_, Code::PermissionDenied | Code::Unauthenticated) => (
            Exit::Privilege,
            "ask whoever runs the manager for the namespaces you may use",
        ),
        (_, Code::Unimplemented) => (
            Exit::Other,
            "is that port a traffic-manager of a supported version?",
        ),
        _ => return unreachable(reach, said),
    };
    Failure::new(exit, said)
        .context(format!("traffic-manager at {}", reach.way))
        .with_hint(hint)
}

/// What a status says, with what lies under it: TLS tells there why a certificate was refused.
fn words(status: &Status) -> String {
    let mut words = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.ends_with(&text) {
            words = format!("{words}: {text}");
        }
        cause = error.source();
    }
    words
}

fn unreachable(reach: &Reach, error: anyhow::Error) -> Failure {
    let error = match error.downcast::<Problem>() {
        Ok(problem) => return problem.into(),
        Err(error) => error,
    };
    Failure::new(Exit::Unreachable, error)
        .context(format!("traffic-manager at {}", reach.way))
        .with_hint("is the port-forward running? kubectl -n kubebridge port-forward deploy/traffic-manager 7080:7080")
}
