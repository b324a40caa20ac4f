//! Carries out what was surveyed: the record first, then the objects in order, then what is to go.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::object::Object;
use super::record::{Entry, Record};
use super::report::{Change, Kind};
use super::settings::Settings;
use super::site::Site;
use super::survey::{Found, Survey, explained};
use crate::cluster::apply::{Applied, Contested, Mode};
use crate::failure::{Exit, Failure};

/// How long objects may take to be seen by the server itself, which looks at its own cache for the
/// Role of a binding.
const SETTLING: Duration = Duration::from_secs(10);
/// How often that is tried.
const AGAIN: Duration = Duration::from_millis(300);

/// Applies and removes; returns what changed.
///
/// # Errors
///
/// The API server does not do it; what was done so far is recorded.
pub(super) async fn carry_out(
    site: &Site,
    settings: &Settings,
    survey: Survey,
    contested: Contested,
) -> Result<Vec<Change>, Failure> {
    let mut entries = Vec::new();
    let mut changes = Vec::new();
    let Survey {
        found,
        gone,
        before,
    } = survey;
    let planned: Vec<_> = found
        .iter()
        .map(|one| one.object.identity.clone())
        .collect();
    let mut kept = None;
    for one in &found {
        // The record has its place in the namespace, which is first where it is ours.
        if kept.is_none() && one.object.identity.kind != "Namespace" {
            let all = planned.iter().map(|identity| Entry {
                identity: identity.clone(),
                uid: None,
            });
            let old = before.iter().flat_map(|record| record.without(&planned));
            let union = all.chain(old.cloned()).collect();
            let record = Record::new(settings.clone(), union);
            kept = Some(keep(site, record.after(before.as_ref())).await?);
        }
        let (entry, change) = apply(site, one, contested).await?;
        entries.push(entry);
        changes.push(change);
    }
    for (identity, live) in &gone {
        let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
        let removed = site.cluster.remove(identity, uid).await;
        match removed {
            Ok(_) => {}
            Err(problem) => {
                let all = [identity.clone()];
                return Err(explained(site, problem, &["delete"], &all).await);
            }
        }
        changes.push(Change::new(identity, Kind::Removed, Some(live), None));
    }
    let record = Record::new(settings.clone(), entries);
    keep(site, record.after(kept.as_ref())).await?;
    Ok(changes)
}

async fn apply(
    site: &Site,
    found: &Found,
    contested: Contested,
) -> Result<(Entry, Change), Failure> {
    let Found { object, live, .. } = found;
    let after = put(site, object, contested).await?;
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let kind = match live {
        None => Kind::Created,
        Some(live) if version(live) == version(&after) => Kind::Unchanged,
        Some(_) => Kind::Changed,
    };
    let entry = Entry {
        identity: object.identity.clone(),
        uid: after["metadata"]["uid"].as_str().map(str::to_owned),
    };
    let change = Change::new(&object.identity, kind, live.as_ref(), Some(&after));
    Ok((entry, change))
}

/// Applies an object, again for a while where the server has not seen yet what is there.
async fn put(site: &Site, object: &Object, contested: Contested) -> Result<Value, Failure> {
    let deadline = Instant::now() + SETTLING;
    loop {
        let problem = match site.cluster.apply(object, contested, Mode::Real).await {
            Ok(Applied::Object(after)) => return Ok(after),
            Ok(Applied::NoNamespace) => None,
            Err(problem) if problem.is_missing() => Some(problem),
            Err(problem) => {
                let all = [object.identity.clone()];
                return Err(explained(site, problem, &["create", "patch"], &all).await);
            }
        };
        if Instant::now() >= deadline {
            return Err(match problem {
                Some(problem) => problem.into(),
                None => Failure::message(
                    Exit::Unreachable,
                    format!("{}: its namespace has gone meanwhile", object.identity),
                ),
            });
        }
        sleep(AGAIN).await;
    }
}

/// Writes the record, which is ours whatever somebody has done to it, and reads it back.
async fn keep(site: &Site, record: Record) -> Result<Record, Failure> {
    match put(site, &record.object()?, Contested::Take).await {
        Ok(written) => Ok(Record::read(&written)?),
        Err(failure) if failure.exit == Exit::Busy => Err(failure
            .context("somebody else installs at the same time")
            .with_hint("run it again")),
        Err(failure) => Err(failure),
    }
}
