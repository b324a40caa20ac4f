//! Waits until the managers are ready, or something is gone, and says what it waits for.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::manifests::MANAGER;
use super::object::Identity;
use super::rollout::{Rollout, look};
use super::settings::HOME;
use super::site::Site;
use crate::failure::{Exit, Failure};

/// How often the cluster is asked: it makes pods in seconds.
const EVERY: Duration = Duration::from_secs(1);

/// Waits until all managers are new and ready.
///
/// # Errors
///
/// They are not in time; the failure says why.
pub(super) async fn until_ready(site: &Site, limit: Duration) -> Result<(), Failure> {
    if limit.is_zero() {
        return Ok(());
    }
    let started = Instant::now();
    let mut told = None;
    loop {
        let why = match progress(site).await? {
            Rollout::Ready(count) => {
                let detail = format!("{count} ready");
                site.reporter.step("managers", &detail, started.elapsed());
                return Ok(());
            }
            Rollout::Waiting(why) => why,
        };
        if started.elapsed() >= limit {
            return Err(Failure::message(
                Exit::Unreachable,
                format!("the manager is not ready after {limit:?}: {why}"),
            )
            .with_hint(format!(
                "kubectl describe pods -n {HOME}; kubectl logs -n {HOME} deploy/{MANAGER}"
            )));
        }
        if told.as_ref() != Some(&why) {
            site.reporter.say(&format!("waiting: {why}"));
            told = Some(why);
        }
        sleep(EVERY).await;
    }
}

async fn progress(site: &Site) -> Result<Rollout, Failure> {
    let of = |api_version: &str, kind: &str| Identity {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: Some(HOME.to_owned()),
        name: MANAGER.to_owned(),
    };
    let deployment = match site.cluster.read(&of("apps/v1", "Deployment")).await {
        Ok(Some(deployment)) => deployment,
        Ok(None) => return Ok(Rollout::Waiting("the Deployment has gone".to_owned())),
        // It may come back: there is a limit anyway.
        Err(problem) if problem.is_unreachable() => {
            return Ok(Rollout::Waiting(problem.to_string()));
        }
        Err(problem) => return Err(problem.into()),
    };
    let label = format!("app.kubernetes.io/name={MANAGER}");
    let pods = site.cluster.list(&of("v1", "Pod"), &label).await;
    // Without the right to see pods it only says less.
    Ok(look(&deployment, &pods.unwrap_or_default()))
}

/// Waits until none of the objects is there.
///
/// # Errors
///
/// Some are still there in the end.
pub(super) async fn until_gone(
    site: &Site,
    identities: &[Identity],
    limit: Duration,
) -> Result<(), Failure> {
    let started = Instant::now();
    let mut left = identities.to_vec();
    loop {
        let found = site.cluster.read_all(&left).await?;
        left = left
            .into_iter()
            .zip(found)
            .filter_map(|(identity, live)| live.map(|_| identity))
            .collect();
        if left.is_empty() || limit.is_zero() {
            return Ok(());
        }
        if started.elapsed() >= limit {
            let names: Vec<_> = left.iter().map(ToString::to_string).collect();
            return Err(Failure::message(
                Exit::Other,
                format!("still being removed after {limit:?}: {}", names.join(", ")),
            )
            .with_hint(
                "something holds it: kubectl get it -o yaml shows finalizers and conditions",
            ));
        }
        sleep(EVERY).await;
    }
}
