//! What is in the cluster where objects are to be applied, and whether they may be: everything is
//! tried before anything is done.

use futures::{StreamExt, stream};
use serde_json::Value;

use super::difference;
use super::object::{Identity, Object};
use super::owner;
use super::record::{Entry, Record};
use super::report::{Change, Kind};
use super::settings::HOME;
use super::site::Site;
use crate::cluster::Problem;
use crate::cluster::apply::{Applied, Contested, Mode};
use crate::failure::{Exit, Failure};

/// Trials under way at once: enough to hide round trips, few enough for an API server's limits.
const AT_ONCE: usize = 8;

/// What an installation takes of the user.
const VERBS: [&str; 3] = ["get", "create", "patch"];

/// An object to apply, and what is there now.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) object: Object,
    pub(super) live: Option<Value>,
    /// What would come of it; `None` where that cannot be told before other objects are there.
    pub(super) trial: Option<Value>,
}

/// What is to be done.
#[derive(Debug)]
pub(super) struct Survey {
    pub(super) found: Vec<Found>,
    /// What was applied once and is not wanted any more, as it is now.
    pub(super) gone: Vec<(Identity, Value)>,
    /// What was recorded so far.
    pub(super) before: Option<Record>,
}

impl Survey {
    /// What would change, with the differences.
    pub(super) fn changes(&self) -> Vec<Change> {
        let applied = self.found.iter().map(|found| {
            let after = found.trial.as_ref().unwrap_or(&found.object.body);
            let kind = match &found.live {
                None => Kind::Created,
                Some(live) if difference::is_same(live, after) => Kind::Unchanged,
                Some(_) => Kind::Changed,
            };
            Change::new(
                &found.object.identity,
                kind,
                found.live.as_ref(),
                Some(after),
            )
        });
        let removed = self
            .gone
            .iter()
            .map(|(identity, live)| Change::new(identity, Kind::Removed, Some(live), None));
        applied.chain(removed).collect()
    }
}

/// Looks at what is there and tries what is to be applied.
///
/// # Errors
///
/// Something belongs to somebody else, a right or a namespace is missing, or the API server does
/// not take an object.
pub(super) async fn look(
    site: &Site,
    mut objects: Vec<Object>,
    before: Option<Record>,
    contested: Contested,
) -> Result<Survey, Failure> {
    leave_foreign_home(site, &mut objects).await?;
    let identities: Vec<_> = objects.iter().map(|one| one.identity.clone()).collect();
    let recorded = before.as_ref().map(|record| &record.objects[..]);
    let live = read(site, &identities).await?;
    refuse_foreign(
        objects.iter().map(|one| &one.identity).zip(&live),
        contested,
    )?;
    let gone = left_out(site, recorded.unwrap_or_default(), &identities, contested).await?;
    let is_home_new = objects
        .iter()
        .zip(&live)
        .any(|(object, live)| object.identity.kind == "Namespace" && live.is_none());
    let trials = try_all(site, &objects, contested, is_home_new).await;
    let trials = match trials {
        Ok(trials) => trials,
        Err(problem) => return Err(explained(site, problem, &VERBS, &identities).await),
    };
    let found = objects.into_iter().zip(live).zip(trials);
    Ok(Survey {
        found: found
            .map(|((object, live), trial)| Found {
                object,
                live,
                trial,
            })
            .collect(),
        gone,
        before,
    })
}

/// A namespace that somebody else has made is used as it is, and never removed.
async fn leave_foreign_home(site: &Site, objects: &mut Vec<Object>) -> Result<(), Failure> {
    let Some(home) = objects
        .iter()
        .position(|one| one.identity.kind == "Namespace")
    else {
        return Ok(());
    };
    let live = match site.cluster.read(&objects[home].identity).await {
        Ok(None) => return Ok(()),
        Ok(Some(live)) => Some(live),
        // Who may not see namespaces cannot make one either.
        Err(problem) if problem.is_forbidden() => None,
        Err(problem) => return Err(problem.into()),
    };
    if live
        .as_ref()
        .is_some_and(|live| owner::foreign(live).is_none())
    {
        return Ok(());
    }
    site.reporter.say(&format!(
        "namespace {HOME} is used as it is: it is not ours"
    ));
    objects.remove(home);
    Ok(())
}

/// Fails naming every object that somebody else keeps.
fn refuse_foreign<'a>(
    objects: impl Iterator<Item = (&'a Identity, &'a Option<Value>)>,
    contested: Contested,
) -> Result<(), Failure> {
    if contested == Contested::Take {
        return Ok(());
    }
    let owned: Vec<_> = objects
        .filter_map(|(identity, live)| {
            let owner = owner::foreign(live.as_ref()?)?;
            Some(format!("{identity} belongs to {owner}"))
        })
        .collect();
    if owned.is_empty() {
        return Ok(());
    }
    Err(Failure::message(Exit::Busy, owned.join("; ")).with_hint(
        "have its owner install kubebridge (`kubebridge manifest` prints what); --force takes it over",
    ))
}

/// What is not wanted any more and is still ours.
async fn left_out(
    site: &Site,
    before: &[Entry],
    kept: &[Identity],
    contested: Contested,
) -> Result<Vec<(Identity, Value)>, Failure> {
    let gone: Vec<_> = before
        .iter()
        .filter(|entry| !kept.contains(&entry.identity) && entry.identity.kind != "Namespace")
        .cloned()
        .collect();
    let identities: Vec<_> = gone.iter().map(|entry| entry.identity.clone()).collect();
    let live = read(site, &identities).await?;
    let there = gone.iter().zip(live);
    let there: Vec<_> = there
        .filter_map(|(entry, live)| Some((entry, live.filter(|live| is_recorded(entry, live))?)))
        .collect();
    let owners: Vec<_> = there
        .iter()
        .map(|(entry, live)| (&entry.identity, Some(live.clone())))
        .collect();
    let owners = owners.iter().map(|(identity, live)| (*identity, live));
    refuse_foreign(owners, contested)?;
    Ok(there
        .into_iter()
        .map(|(entry, live)| (entry.identity.clone(), live))
        .collect())
}

/// Whether an object is the one that was applied, and still says that we keep it.
pub(super) fn is_recorded(entry: &Entry, live: &Value) -> bool {
    let uid = live["metadata"]["uid"].as_str();
    let label = live["metadata"]["labels"][super::manifests::MANAGED_BY].as_str();
    label == Some(owner::FIELD_MANAGER)
        && entry
            .uid
            .as_deref()
            .is_none_or(|recorded| uid == Some(recorded))
}

async fn read(site: &Site, identities: &[Identity]) -> Result<Vec<Option<Value>>, Failure> {
    match site.cluster.read_all(identities).await {
        Ok(live) => Ok(live),
        Err(problem) => Err(explained(site, problem, &VERBS, identities).await),
    }
}

pub(super) async fn explained(
    site: &Site,
    problem: Problem,
    verbs: &[&'static str],
    identities: &[Identity],
) -> Failure {
    let problem = site.cluster.explain(problem, verbs, identities).await;
    let is_conflict = problem.is_conflict();
    let failure = Failure::from(problem);
    if is_conflict {
        failure.with_hint("have its owner leave these fields alone; --force takes them over")
    } else {
        failure
    }
}

async fn try_all(
    site: &Site,
    objects: &[Object],
    contested: Contested,
    is_home_new: bool,
) -> Result<Vec<Option<Value>>, Problem> {
    let trials: Vec<_> = objects
        .iter()
        .map(|object| try_one(site, object, contested, is_home_new))
        .collect();
    let outcomes: Vec<_> = stream::iter(trials).buffered(AT_ONCE).collect().await;
    outcomes.into_iter().collect()
}

async fn try_one(
    site: &Site,
    object: &Object,
    contested: Contested,
    is_home_new: bool,
) -> Result<Option<Value>, Problem> {
    let identity = &object.identity;
    match site.cluster.apply(object, contested, Mode::Trial).await {
        Ok(Applied::Object(body)) => Ok(Some(body)),
        Ok(Applied::NoNamespace) if is_home_new && identity.namespace.as_deref() == Some(HOME) => {
            Ok(None)
        }
        Ok(Applied::NoNamespace) => Err(Problem::no_namespace(identity)),
        // A binding is checked against its Role, which is yet to come.
        Err(problem) if problem.is_missing() && identity.kind.ends_with("Binding") => Ok(None),
        Err(problem) => Err(problem),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::install::record::NAME;

    #[test]
    fn install_only_what_was_recorded_and_says_it_is_ours_is_removed() {
        let entry = |uid: Option<&str>| Entry {
            identity: Identity {
                name: NAME.to_owned(),
                ..Record::identity()
            },
            uid: uid.map(str::to_owned),
        };
        let live = |uid: &str, by: &str| json!({"metadata": {"uid": uid, "labels": {"app.kubernetes.io/managed-by": by}}});
        assert!(is_recorded(&entry(Some("1")), &live("1", "kubebridge")));
        assert!(is_recorded(&entry(None), &live("1", "kubebridge")));
        assert!(!is_recorded(&entry(Some("1")), &live("2", "kubebridge")));
        assert!(!is_recorded(&entry(Some("1")), &live("1", "Helm")));
        assert!(!is_recorded(
            &entry(None),
            &json!({"metadata": {"uid": "1"}})
        ));
    }

    #[test]
    fn lifecycle_20_every_foreign_object_is_named_and_force_takes_them() {
        let identity = Record::identity();
        let live = Some(json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}}));
        let all = || [(&identity, &live), (&identity, &None), (&identity, &live)].into_iter();
        let failure = refuse_foreign(all(), Contested::Refuse).unwrap_err();
        assert_eq!(failure.exit, Exit::Busy);
        let named = "ConfigMap kubebridge/kubebridge-install belongs to Helm";
        assert_eq!(failure.error.to_string(), format!("{named}; {named}"));
        assert!(failure.hint.unwrap().contains("--force"));
        refuse_foreign(all(), Contested::Take).unwrap();
    }
}
