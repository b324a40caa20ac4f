//! An API server for tests and figures: Services only, over real sockets, with the failures of real ones.
//!
//! Lists in pages, watches from a version, 401, 403 and 410 as told. Built for the program's own
//! tests and the figures; knows no validation, no other resource, and keeps every event.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::response::Response;
use axum::serve::Listener;
use futures::{Stream, stream};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use self::issuer::Issuer;

pub mod issuer;

/// A scripted API server; clones are the same one.
#[derive(Debug, Clone)]
pub struct ApiServer {
    shared: Arc<Mutex<Store>>,
    version: watch::Sender<u64>,
    issuer: Arc<Issuer>,
}

type Key = (String, String);

#[derive(Debug)]
struct Store {
    version: u64,
    objects: BTreeMap<Key, Value>,
    events: Vec<(u64, Arc<str>, String)>,
    /// Watches from before this are answered 410.
    oldest: u64,
    /// Verb and namespace that are not allowed.
    forbidden: BTreeSet<(String, String)>,
    /// The only token that is let in.
    token: Option<String>,
    requests: BTreeMap<&'static str, u64>,
    /// Connections of an earlier one are broken off.
    epoch: u64,
    /// Open watches tell nothing.
    silent: bool,
}

/// One time of serving.
#[derive(Debug, Clone)]
struct Serving {
    server: ApiServer,
    epoch: u64,
}

impl Default for ApiServer {
    fn default() -> Self {
        let store = Store {
            version: 1,
            objects: BTreeMap::new(),
            events: Vec::new(),
            oldest: 0,
            forbidden: BTreeSet::new(),
            token: None,
            requests: BTreeMap::new(),
            epoch: 0,
            silent: false,
        };
        Self {
            shared: Arc::new(Mutex::new(store)),
            version: watch::Sender::new(1),
            issuer: Arc::default(),
        }
    }
}

impl ApiServer {
    /// Serves until the returned future is dropped; see [`Self::break_connections`] for what is open.
    ///
    /// # Errors
    /// When the listener fails.
    pub async fn serve<L: Listener>(self, listener: L) -> std::io::Result<()>
    where
        L::Addr: std::fmt::Debug,
    {
        let epoch = self.shared.lock().epoch;
        let serving = Serving {
            server: self,
            epoch,
        };
        let router = Router::new().fallback(answer).with_state(serving);
        axum::serve(listener, router).await
    }

    /// Returns what signs the tokens of its ServiceAccounts.
    #[must_use]
    pub fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// Creates or replaces a Service with a `ClusterIP`, as large as real ones are.
    pub fn apply(&self, namespace: &str, name: &str, ip: &str) {
        self.change(namespace, name, Some(service(namespace, name, ip)));
    }

    /// Deletes a Service.
    pub fn delete(&self, namespace: &str, name: &str) {
        self.change(namespace, name, None);
    }

    /// Allows or forbids a verb in a namespace.
    pub fn allow(&self, verb: &str, namespace: &str, allowed: bool) {
        let right = (verb.to_owned(), namespace.to_owned());
        let mut store = self.shared.lock();
        if allowed {
            store.forbidden.remove(&right);
        } else {
            store.forbidden.insert(right);
        }
    }

    /// Lets in this token only.
    pub fn set_token(&self, token: &str) {
        self.shared.lock().token = Some(token.to_owned());
    }

    /// Forgets all events so far: open watches break off, and older versions are 410 Gone.
    pub fn compact(&self) {
        let mut store = self.shared.lock();
        store.version += 1;
        store.oldest = store.version;
        store.events.clear();
        self.version.send_replace(store.version);
    }

    /// Breaks every connection off, in the middle of what it carries.
    pub fn break_connections(&self) {
        let mut store = self.shared.lock();
        store.epoch += 1;
        self.version.send_replace(store.version);
    }

    /// Makes open watches tell nothing, or go on where they were.
    pub fn silence(&self, silent: bool) {
        let mut store = self.shared.lock();
        store.silent = silent;
        self.version.send_replace(store.version);
    }

    /// Returns how many requests of a verb were allowed.
    #[must_use]
    pub fn requests(&self, verb: &str) -> u64 {
        self.shared.lock().requests.get(verb).copied().unwrap_or(0)
    }

    fn change(&self, namespace: &str, name: &str, object: Option<Value>) {
        let mut store = self.shared.lock();
        store.version += 1;
        let version = store.version;
        let key = (namespace.to_owned(), name.to_owned());
        let known = store.objects.contains_key(&key);
        let (kind, mut told) = match (&object, known) {
            (Some(object), false) => ("ADDED", object.clone()),
            (Some(object), true) => ("MODIFIED", object.clone()),
            (None, _) => ("DELETED", service(namespace, name, "10.0.0.1")),
        };
        told["metadata"]["resourceVersion"] = version.to_string().into();
        match object {
            Some(_) => drop(store.objects.insert(key, told.clone())),
            None => drop(store.objects.remove(&key)),
        }
        let line = format!("{}\n", json!({"type": kind, "object": told}));
        store
            .events
            .push((version, line.into(), namespace.to_owned()));
        self.version.send_replace(version);
    }
}

/// A Service with the baggage that comes with real ones.
fn service(namespace: &str, name: &str, ip: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": namespace, "resourceVersion": "1",
            "uid": "6f1d7a52-3c1e-4f0a-9a66-0d8d7e0f8f4d",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"meta.helm.sh/release-name": name, "note": "x".repeat(400)},
            "managedFields": [{"manager": "helm", "operation": "Update", "apiVersion": "v1",
                "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:ports": {"y".repeat(300): {}}}}}]
        },
        "spec": {
            "type": "ClusterIP", "clusterIP": ip, "clusterIPs": [ip],
            "selector": {"app": name}, "sessionAffinity": "None",
            "ports": [
                {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080},
                {"name": "metrics", "port": 9090, "protocol": "TCP", "targetPort": 9090}
            ]
        },
        "status": {"loadBalancer": {}}
    })
}

async fn answer(State(serving): State<Serving>, request: Request) -> Response {
    // axum's handlers are async, and there is nothing to wait for.
    std::future::ready(()).await;
    let query = |key: &str| {
        let pairs = request.uri().query().unwrap_or_default().split('&');
        pairs
            .filter_map(|pair| pair.split_once('='))
            .find(|(found, _)| *found == key)
            .map(|(_, value)| value.to_owned())
    };
    let published = match request.uri().path() {
        "/.well-known/openid-configuration" => Some(Issuer::discovery()),
        "/openid/v1/jwks" => Some(serving.server.issuer.jwks()),
        _ => None,
    };
    let scope = namespace(request.uri().path());
    if published.is_none() && scope.is_none() {
        return refusal(404, "NotFound", "the server could not find it");
    }
    let token = request.headers().get(AUTHORIZATION);
    let token = token.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let is_watch = query("watch").as_deref() == Some("true");
    let verb = if is_watch { "watch" } else { "list" };
    let mut store = serving.server.shared.lock();
    if store.epoch != serving.epoch {
        return Response::new(Body::from_stream(stream::iter([Err::<String, _>(Broken)])));
    }
    if store.token.is_some() && store.token.as_deref() != token {
        return refusal(401, "Unauthorized", "Unauthorized");
    }
    if let Some(published) = published {
        return Response::new(Body::from(published));
    }
    let namespace = scope.flatten();
    let right = (verb.to_owned(), namespace.clone().unwrap_or_default());
    if store.forbidden.contains(&right) {
        return refusal(403, "Forbidden", "services is forbidden");
    }
    *store.requests.entry(verb).or_default() += 1;
    if !is_watch {
        return store.list(namespace.as_deref(), query("continue").as_deref());
    }
    let number = |key| query(key).and_then(|value| value.parse().ok());
    let from: u64 = number("resourceVersion").unwrap_or(0);
    drop(store);
    let seconds = number("timeoutSeconds").unwrap_or(60);
    let until = Instant::now() + Duration::from_secs(seconds);
    let lines = serving.clone().watch(namespace, from, until);
    Response::new(Body::from_stream(lines))
}

/// Makes the HTTP server break the connection off.
#[derive(Debug)]
struct Broken;

impl std::fmt::Display for Broken {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("broken off")
    }
}

impl std::error::Error for Broken {}

/// Returns the namespace of a path for Services, `None` within for all of them.
fn namespace(path: &str) -> Option<Option<String>> {
    if path == "/api/v1/services" {
        return Some(None);
    }
    let name = path
        .strip_prefix("/api/v1/namespaces/")?
        .strip_suffix("/services")?;
    Some(Some(name.to_owned()))
}

fn refusal(code: u16, reason: &str, message: &str) -> Response {
    let mut response = Response::new(Body::from(status(code, reason, message).to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::BAD_REQUEST);
    response
}

fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message})
}

impl Store {
    /// The most objects in a page, as the client asks by default.
    const PAGE: usize = 500;

    fn list(&self, namespace: Option<&str>, after: Option<&str>) -> Response {
        let after = after.and_then(|text| text.split_once('.'));
        let start = after.map(|(space, name)| (space.to_owned(), name.to_owned()));
        let start = start.map_or(Bound::Unbounded, Bound::Excluded);
        let fits = |entry: &(&Key, &Value)| namespace.is_none_or(|name| entry.0.0 == name);
        let mut rest = self.objects.range((start, Bound::Unbounded)).filter(fits);
        let page: Vec<_> = rest.by_ref().take(Self::PAGE).collect();
        let more = match (rest.next(), page.last()) {
            (Some(_), Some(((space, name), _))) => format!("{space}.{name}"),
            _ => String::new(),
        };
        let items: Vec<_> = page.into_iter().map(|(_, object)| object).collect();
        let version = self.version.to_string();
        let list = json!({"kind": "ServiceList", "apiVersion": "v1",
            "metadata": {"resourceVersion": version, "continue": more}, "items": items});
        Response::new(Body::from(list.to_string()))
    }

    /// Returns the events after a version as lines, or `None` when they are forgotten.
    fn since(&self, namespace: Option<&str>, from: u64) -> Option<Vec<Arc<str>>> {
        if from < self.oldest {
            return None;
        }
        let start = self
            .events
            .partition_point(|(version, ..)| *version <= from);
        let fits = |space: &str| namespace.is_none_or(|name| space == name);
        let newer = self.events[start..].iter();
        Some(
            newer
                .filter(|(.., space)| fits(space))
                .map(|(_, line, _)| Arc::clone(line))
                .collect(),
        )
    }
}

impl Serving {
    fn watch(
        self,
        namespace: Option<String>,
        from: u64,
        until: Instant,
    ) -> impl Stream<Item = Result<String, Broken>> {
        let changes = self.server.version.subscribe();
        stream::unfold(Some((self, changes, from)), move |state| {
            let namespace = namespace.clone();
            async move {
                let (serving, mut changes, from) = state?;
                loop {
                    let now = *changes.borrow_and_update();
                    match serving.told(namespace.as_deref(), from) {
                        Told::Nothing => {}
                        Told::Lines(lines) => {
                            return Some((Ok(lines), Some((serving, changes, now))));
                        }
                        Told::Gone => {
                            let gone = status(410, "Expired", "too old resource version");
                            let line = format!("{}\n", json!({"type": "ERROR", "object": gone}));
                            return Some((Ok(line), None));
                        }
                        Told::Broken => return Some((Err(Broken), None)),
                    }
                    let changed = tokio::time::timeout_at(until, changes.changed()).await;
                    changed.ok()?.ok()?;
                }
            }
        })
    }

    fn told(&self, namespace: Option<&str>, from: u64) -> Told {
        let store = self.server.shared.lock();
        if store.epoch != self.epoch {
            return Told::Broken;
        }
        if store.silent {
            return Told::Nothing;
        }
        match store.since(namespace, from) {
            None => Told::Gone,
            Some(lines) if lines.is_empty() => Told::Nothing,
            Some(lines) => Told::Lines(lines.concat()),
        }
    }
}

/// What a watch has to say now.
enum Told {
    Nothing,
    Lines(String),
    Gone,
    Broken,
}
