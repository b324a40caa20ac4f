//! `uninstall`: removes what is recorded and still says that it is ours, and nothing else.

use serde_json::Value;

use super::manifests;
use super::object::Identity;
use super::owner;
use super::record::{Entry, Record};
use super::report::{self, Change, Kind};
use super::settings::HOME;
use super::site::Site;
use super::survey::{explained, is_recorded};
use super::waiting::until_gone;
use crate::cli::{Output, UninstallArgs};
use crate::failure::{Exit, Failure};

/// What was applied, and what becomes of it.
struct Removal {
    remove: Vec<(Identity, Value)>,
    left: Vec<Change>,
}

pub(super) async fn uninstall(
    site: &Site,
    arguments: &UninstallArgs,
    output: Output,
) -> Result<(), Failure> {
    let record = site.record().await?;
    let entries = match &record {
        Some(record) => record.objects.clone(),
        // It may have died between making the namespace and the record.
        None => vec![home_entry()],
    };
    let is_complete = record.is_some();
    let mut plan = plan(site, &entries, arguments.force).await?;
    if !is_complete && plan.remove.is_empty() {
        return nothing(site).await;
    }
    leave_inhabited_home(site, &mut plan, &entries).await?;
    if arguments.dry_run {
        let removed = plan
            .remove
            .iter()
            .map(|(identity, live)| Change::new(identity, Kind::Removed, Some(live), None));
        let changes: Vec<_> = removed.chain(plan.left).collect();
        return report::dry_run(&changes, output);
    }
    let mut changes = Vec::new();
    let identities: Vec<_> = plan.remove.iter().map(|(one, _)| one.clone()).collect();
    for (identity, live) in &plan.remove {
        // The namespace takes the record with it, which has to outlive everything else.
        if identity.kind == "Namespace" {
            let before = &identities[..identities.len() - 1];
            until_gone(site, before, arguments.wait).await?;
        }
        take(site, identity, live).await?;
        changes.push(Change::new(identity, Kind::Removed, Some(live), None));
    }
    until_gone(site, &identities, arguments.wait).await?;
    let holds_record = !identities.iter().any(|one| one.kind == "Namespace");
    if holds_record && let Some(live) = site.cluster.read(&Record::identity()).await? {
        take(site, &Record::identity(), &live).await?;
    }
    changes.extend(plan.left);
    report::done(&changes, &site.reporter, output)
}

/// Divides what is recorded into what goes, last applied first, and what stays.
async fn plan(site: &Site, entries: &[Entry], force: bool) -> Result<Removal, Failure> {
    let identities: Vec<_> = entries.iter().map(|entry| entry.identity.clone()).collect();
    let live = match site.cluster.read_all(&identities).await {
        Ok(live) => live,
        Err(problem) => return Err(explained(site, problem, &["get", "delete"], &identities).await),
    };
    let mut removal = Removal {
        remove: Vec::new(),
        left: Vec::new(),
    };
    for (entry, live) in entries.iter().zip(live).rev() {
        let identity = &entry.identity;
        let Some(live) = live else { continue };
        if !is_recorded(entry, &live) {
            let reason = "it is not the one that was installed".to_owned();
            removal.left.push(Change::left(identity, reason));
        } else if let Some(owner) = owner::foreign(&live).filter(|_| !force) {
            let reason = format!("it belongs to {owner}");
            removal.left.push(Change::left(identity, reason));
        } else {
            removal.remove.push((identity.clone(), live));
        }
    }
    Ok(removal)
}

/// Keeps the namespace where something is in it that was not installed.
async fn leave_inhabited_home(
    site: &Site,
    plan: &mut Removal,
    entries: &[Entry],
) -> Result<(), Failure> {
    let Some(place) = plan
        .remove
        .iter()
        .position(|(one, _)| one.kind == "Namespace")
    else {
        return Ok(());
    };
    let record = Record::identity();
    let known = entries.iter().map(|entry| &entry.identity).chain([&record]);
    let known: Vec<_> = known
        .map(|one| format!("{}/{}", one.kind, one.name))
        .collect();
    let reason = match site.cluster.inhabitants(HOME).await {
        Ok(mut names) => {
            names.retain(|name| !known.contains(name));
            if names.is_empty() {
                return Ok(());
            }
            format!("it holds {}", names.join(", "))
        }
        // A right is missing, or one of the cluster's own extensions does not answer.
        Err(problem) => format!("what is in it cannot be told: {problem}"),
    };
    let (identity, _) = plan.remove.remove(place);
    plan.left.push(Change::left(&identity, reason));
    Ok(())
}

async fn take(site: &Site, identity: &Identity, live: &Value) -> Result<(), Failure> {
    let uid = live["metadata"]["uid"].as_str().unwrap_or_default();
    match site.cluster.remove(identity, uid).await {
        Ok(_) => Ok(()),
        Err(problem) => {
            let all = [identity.clone()];
            Err(explained(site, problem, &["delete"], &all).await)
        }
    }
}

fn home_entry() -> Entry {
    Entry {
        identity: Identity {
            api_version: "v1".to_owned(),
            kind: "Namespace".to_owned(),
            namespace: None,
            name: HOME.to_owned(),
        },
        uid: None,
    }
}

/// There is no record: whoever has installed what is there has to remove it.
async fn nothing(site: &Site) -> Result<(), Failure> {
    let manager = Identity {
        api_version: "apps/v1".to_owned(),
        kind: "Deployment".to_owned(),
        namespace: Some(HOME.to_owned()),
        name: manifests::MANAGER.to_owned(),
    };
    match site.cluster.read(&manager).await? {
        None => {
            site.reporter.say("nothing is installed");
            Ok(())
        }
        Some(live) => {
            let owner = owner::foreign(&live)
                .unwrap_or_else(|| "kubebridge, whose record is gone".to_owned());
            Err(Failure::message(
                Exit::Busy,
                format!(
                    "{manager} belongs to {owner}: it was not installed by `kubebridge install`"
                ),
            )
            .with_hint(
                "remove it with what has applied it, as helm uninstall or kubectl delete -f",
            ))
        }
    }
}
