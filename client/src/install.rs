//! `install`, `upgrade`, `uninstall` and `manifest`: the only commands that write to a cluster, and
//! the one that shows what they would write.
//!
//! What is written, whether it may be, and what may be removed is decided purely ([`manifests`],
//! [`owner`], [`record`], [`rollout`], [`difference`]); [`cluster::apply`](crate::cluster::apply)
//! carries it out. Nothing is written before everything was tried: a refusal leaves the cluster as
//! it was.

pub mod difference;
pub mod image;
pub mod manifests;
pub mod object;
pub mod owner;
pub mod record;
pub mod rollout;
pub mod settings;

mod carry;
mod removal;
mod report;
mod site;
mod survey;
mod waiting;

use tokio::time::Instant;

use crate::cli::{Global, InstallArgs, ManifestArgs, Output, UninstallArgs};
use crate::cluster::apply::Contested;
use crate::failure::{Exit, Failure};
use crate::output::{print, print_line};
use crate::skew::CLIENT;
use manifests::MANAGED_BY;
use object::Object;
use owner::FIELD_MANAGER;
use record::Record;
use settings::{Lists, Settings};
use site::Site;

/// Installs the manager, or adds to what is installed.
///
/// # Errors
///
/// The cluster cannot be reached, something belongs to somebody else, a right is missing, or the
/// managers do not become ready in time.
pub async fn install(arguments: &InstallArgs, global: &Global) -> Result<(), Failure> {
    let site = Site::open(global).await?;
    let before = site.record().await?;
    apply(&site, before, Lists::Add, arguments, global).await
}

/// Brings what is installed to this version.
///
/// # Errors
///
/// As for [`install`], and when nothing is installed.
pub async fn upgrade(arguments: &InstallArgs, global: &Global) -> Result<(), Failure> {
    let site = Site::open(global).await?;
    let Some(before) = site.record().await? else {
        return Err(Failure::message(
            Exit::Unreachable,
            "nothing is installed by kubebridge there",
        )
        .with_hint("kubebridge install"));
    };
    apply(&site, Some(before), Lists::Replace, arguments, global).await
}

/// Removes what was installed.
///
/// # Errors
///
/// The cluster cannot be reached, a right is missing, or it is not gone in time.
pub async fn uninstall(arguments: &UninstallArgs, global: &Global) -> Result<(), Failure> {
    let site = Site::open(global).await?;
    removal::uninstall(&site, arguments, global.output).await
}

/// Prints the manifests.
///
/// # Errors
///
/// The options make no sense; exit code 64.
pub fn manifest(arguments: &ManifestArgs, global: &Global) -> Result<(), Failure> {
    let wishes = arguments.installation.wishes(&global.namespaces);
    // The same everywhere: no kubeconfig is read.
    let settings = wishes
        .complete(None, Lists::Add, "default", image::RELEASED)
        .map_err(Failure::usage)?;
    let objects = manifests::render(&settings).map_err(Failure::usage)?;
    match global.output {
        Output::Text => print(&manifests::yaml(&objects)?),
        Output::Json => print_line(&report::list(&objects)?),
    }
    Ok(())
}

/// The objects as `install` applies them: they say who keeps them.
fn ours(settings: &Settings) -> Result<Vec<Object>, Failure> {
    let objects = manifests::render(settings).map_err(Failure::usage)?;
    let label = |object: Object| object.labelled(MANAGED_BY, FIELD_MANAGER);
    Ok(objects.into_iter().map(label).collect())
}

async fn apply(
    site: &Site,
    before: Option<Record>,
    lists: Lists,
    arguments: &InstallArgs,
    global: &Global,
) -> Result<(), Failure> {
    if let Some(newer) = before
        .as_ref()
        .filter(|record| record.is_newer_than(CLIENT) && !arguments.force)
    {
        return Err(Failure::message(
            Exit::Busy,
            format!(
                "kubebridge {} has installed what is there, and this is {CLIENT}",
                newer.version
            ),
        )
        .with_hint("use that version or a later one; --force goes back to this one"));
    }
    let wishes = arguments.installation.wishes(&global.namespaces);
    let known = before.as_ref().map(|record| &record.settings);
    let settings = wishes
        .complete(known, lists, &site.namespace, image::RELEASED)
        .map_err(Failure::usage)?;
    if !settings.image.is_pinned() {
        site.reporter.warn(&format!(
            "image {} is named by a tag: what it means may change",
            settings.image
        ));
    }
    let contested = match arguments.force {
        true => Contested::Take,
        false => Contested::Refuse,
    };
    let started = Instant::now();
    let survey = survey::look(site, ours(&settings)?, before, contested).await?;
    let detail = format!(
        "{} objects, {} to remove",
        survey.found.len(),
        survey.gone.len()
    );
    site.reporter.step("check", &detail, started.elapsed());
    if arguments.dry_run {
        return report::dry_run(&survey.changes(), global.output);
    }
    let changes = carry::carry_out(site, &settings, survey, contested).await?;
    report::done(&changes, &site.reporter, global.output)?;
    waiting::until_ready(site, arguments.wait).await?;
    let flags: Vec<_> = settings
        .namespaces
        .iter()
        .map(|name| format!(" -n {name}"))
        .collect();
    site.reporter
        .say(&format!("next: kubebridge connect{}", flags.concat()));
    Ok(())
}
