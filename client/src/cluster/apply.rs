//! Objects in the cluster, written by server-side apply, read and removed.
//!
//! The only thing here that changes a cluster. What is applied, and whether it may be, is decided
//! by [`install`](crate::install), which alone uses this.

mod namespace;

use std::time::Duration;

use futures::{StreamExt, stream};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions,
    PropagationPolicy,
};
use kube::{Api, Client};
use serde_json::Value;
use tokio::time::timeout;

use super::Cluster;
use super::problem::{Kind, Problem};
use super::rights::{self, Right};
use crate::install::object::{Identity, Object};
use crate::install::owner::FIELD_MANAGER;

/// How long one request may take: admission webhooks of others have 10 s by default.
const PATIENCE: Duration = Duration::from_secs(15);

/// Requests under way at once: enough to hide round trips, few enough for an API server's limits.
const AT_ONCE: usize = 8;

/// Whether something is done or only tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is done.
    Real,
    /// The API server says what would come of it.
    Trial,
}

/// What becomes of fields that others have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contested {
    /// Nothing is applied.
    Refuse,
    /// They become ours.
    Take,
}

/// What came of applying.
#[derive(Debug)]
pub enum Applied {
    /// The object as it is now, or would be.
    Object(Value),
    /// Its namespace is not there.
    NoNamespace,
}

impl Cluster {
    /// Reads an object; `None` when it is not there.
    ///
    /// # Errors
    ///
    /// The API server cannot be asked, or does not let the user.
    pub async fn read(&self, identity: &Identity) -> Result<Option<Value>, Problem> {
        let found = self
            .ask(&format!("read {identity}"), PATIENCE, |client| async move {
                objects(client, identity).get_opt(&identity.name).await
            })
            .await;
        match found {
            Ok(found) => found.map(|object| value(identity, object)).transpose(),
            // The API itself is not there.
            Err(problem) if problem.kind == Kind::Missing => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    /// Reads objects, in the order of the names.
    ///
    /// # Errors
    ///
    /// As for one.
    pub async fn read_all(&self, identities: &[Identity]) -> Result<Vec<Option<Value>>, Problem> {
        let reads: Vec<_> = identities.iter().map(|one| self.read(one)).collect();
        let found: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        found.into_iter().collect()
    }

    /// Applies an object as our own.
    ///
    /// # Errors
    ///
    /// The user may not, somebody else holds a field of it, or the API server cannot be asked.
    pub async fn apply(
        &self,
        object: &Object,
        contested: Contested,
        mode: Mode,
    ) -> Result<Applied, Problem> {
        let identity = &object.identity;
        let mut parameters = PatchParams::apply(FIELD_MANAGER);
        parameters.force = contested == Contested::Take;
        parameters.dry_run = mode == Mode::Trial;
        let (parameters, patch) = (&parameters, &Patch::Apply(&object.body));
        let applied = self
            .ask(
                &format!("apply {identity}"),
                PATIENCE,
                |client| async move {
                    objects(client, identity)
                        .patch(&identity.name, parameters, patch)
                        .await
                },
            )
            .await;
        match applied {
            Ok(object) => Ok(Applied::Object(value(identity, object)?)),
            Err(problem)
                if problem.kind == Kind::Missing
                    && problem.to_string().contains("namespaces \"") =>
            {
                Ok(Applied::NoNamespace)
            }
            Err(problem) => Err(problem),
        }
    }

    /// Removes the object of this name and no successor of it; whether it was there.
    ///
    /// # Errors
    ///
    /// The user may not, or the API server cannot be asked.
    pub async fn remove(&self, identity: &Identity, uid: &str) -> Result<bool, Problem> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid: Some(uid.to_owned()),
                resource_version: None,
            }),
            // A Deployment is there until its pods are gone.
            propagation_policy: (identity.kind == "Deployment")
                .then_some(PropagationPolicy::Foreground),
            ..DeleteParams::default()
        };
        let parameters = &parameters;
        let removed = self
            .ask(
                &format!("remove {identity}"),
                PATIENCE,
                |client| async move {
                    objects(client, identity)
                        .delete(&identity.name, parameters)
                        .await
                },
            )
            .await;
        match removed {
            Ok(_) => Ok(true),
            // It is gone, or another one is there.
            Err(problem) if matches!(problem.kind, Kind::Missing | Kind::Conflict) => Ok(false),
            Err(problem) => Err(problem),
        }
    }

    /// Lists objects of the kind and in the namespace of `like`, with these labels.
    ///
    /// # Errors
    ///
    /// The user may not, or the API server cannot be asked.
    pub async fn list(&self, like: &Identity, labels: &str) -> Result<Vec<Value>, Problem> {
        let parameters = &ListParams::default().labels(labels);
        let doing = format!("list {}", like.resource());
        let listed = self.ask(&doing, PATIENCE, |client| async move {
            objects(client, like).list(parameters).await
        });
        let items = listed.await?.items;
        items.into_iter().map(|item| value(like, item)).collect()
    }

    /// Says in the place of a refusal which of the rights to `verbs` on objects are missing.
    pub async fn explain(
        &self,
        problem: Problem,
        verbs: &[&'static str],
        identities: &[Identity],
    ) -> Problem {
        if problem.kind != Kind::Forbidden {
            return problem;
        }
        let on = |identity| verbs.iter().map(move |verb| Right::on(verb, identity));
        let mut rights: Vec<_> = identities.iter().flat_map(on).collect();
        rights.sort();
        rights.dedup();
        let Ok(held) = self.client().await else {
            return problem;
        };
        let asking = timeout(PATIENCE, rights::missing(&held.client, &rights));
        match asking.await {
            Ok(Some(missing)) if !missing.is_empty() => Problem::new(
                Kind::Forbidden,
                format!(
                    "user {} of context {} may not: {}",
                    self.authorisation.borrow().user,
                    self.context(),
                    rights::words(&missing)
                ),
            )
            .with_hint("docs/rbac.md has the rights that installing takes; or have the cluster's administrator apply what `kubebridge manifest` prints"),
            // All verbs are there: it is what would be given that the user does not have.
            Ok(Some(_) | None) | Err(_) => problem.with_hint(
                "nobody may give rights that they do not have: have the cluster's administrator do it",
            ),
        }
    }
}

impl Problem {
    /// Whether the user may not do it.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.kind == Kind::Forbidden
    }

    /// Whether nobody has answered, or only with a failure of its own.
    #[must_use]
    pub fn is_unreachable(&self) -> bool {
        self.kind == Kind::Unreachable
    }

    /// Whether what was asked for is not there.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.kind == Kind::Missing
    }

    /// Says that the namespace an object belongs in is not there.
    #[must_use]
    pub fn no_namespace(identity: &Identity) -> Self {
        let namespace = identity.namespace.as_deref().unwrap_or_default();
        Self::new(
            Kind::Missing,
            format!("{identity}: there is no namespace {namespace}"),
        )
        .with_hint(format!("kubectl create namespace {namespace}"))
    }

    /// Whether somebody else holds what was to be changed.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.kind == Kind::Conflict
    }
}

fn objects(client: Client, identity: &Identity) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: identity.group().to_owned(),
        version: identity.version().to_owned(),
        api_version: identity.api_version.clone(),
        kind: identity.kind.clone(),
        plural: identity.resource(),
    };
    match &identity.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

fn value(identity: &Identity, object: DynamicObject) -> Result<Value, Problem> {
    serde_json::to_value(object).map_err(|error| {
        Problem::new(
            Kind::Unreachable,
            format!("{identity}: the API server's answer makes no sense: {error}"),
        )
    })
}
