//! The Kubernetes cluster as the user reaches it: kubeconfig, credentials, API server.
//!
//! The only place that knows Kubernetes types. [`PortForward`] is the way to the manager,
//! [`AccountTokens`] what a session shows there. Changes nothing in the cluster but by [`apply`],
//! which only installing uses.

mod accounts;
mod addresses;
pub mod apply;
mod credentials;
mod exec;
mod expiry;
mod forward;
mod kubeconfig;
pub mod meshes;
mod pods;
mod problem;
mod proxy;
mod rights;
mod transport;

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::ListParams;
use kube::config::AuthInfo;
use kube::{Api, Client};
use kubebridge_dns::name::Name;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::timeout;

pub use accounts::AccountTokens;
pub use forward::PortForward;
pub use kubeconfig::{Environment, Source};
pub use problem::Problem;
pub use proxy::ProxyEnvironment;

use addresses::Addresses;
use credentials::Credentials;
use exec::Issued;
use kubeconfig::Target;
use pods::Candidate;
use problem::{Kind, Place};
use rights::Right;

use crate::install::manifests::ACCESS as ACCOUNT;
use crate::install::settings::HOME;

use crate::failure::Failure;
use crate::originals::Originals;

/// Which Pods are the manager's.
const MANAGER: &str = "app.kubernetes.io/name=traffic-manager";
/// How long the API server may take for a list of a few Pods.
const LIST: Duration = Duration::from_secs(3);

/// How the user's credentials stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorisation {
    /// The kubeconfig's user.
    pub user: String,
    /// Until when they are good, where that is known.
    pub until: Option<String>,
    /// Why they could not be used the last time; what is connected stays so.
    pub trouble: Option<String>,
    /// The command that renews them.
    pub renew: String,
}

/// The cluster.
#[derive(Debug)]
pub struct Cluster {
    source: Source,
    addresses: Addresses,
    credentials: Credentials,
    state: Mutex<State>,
    authorisation: watch::Sender<Authorisation>,
}

#[derive(Debug)]
struct State {
    target: Target,
    client: Option<Held>,
}

/// A client and what it proves itself by.
#[derive(Clone)]
struct Held {
    client: Client,
    issued: Option<Arc<Issued>>,
}

impl fmt::Debug for Held {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Held")
            .field("issued", &self.issued)
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Reads the kubeconfig. Contacts nobody, and runs nothing yet.
    ///
    /// # Errors
    ///
    /// The kubeconfig cannot be used; the failure has the exit code.
    pub async fn load(source: Source, originals: Arc<Originals>) -> Result<Self, Failure> {
        let target = source.load().await?;
        let (authorisation, _) = watch::channel(Authorisation {
            user: target.user.clone(),
            until: known_end(&target).map(|end| end.to_string()),
            trouble: None,
            renew: renewal(&target),
        });
        Ok(Self {
            source,
            addresses: Addresses::new(originals, PathBuf::from("/etc/hosts")),
            credentials: Credentials::default(),
            state: Mutex::new(State {
                target,
                client: None,
            }),
            authorisation,
        })
    }

    /// Follows how the user's credentials stand.
    #[must_use]
    pub fn authorisation(&self) -> watch::Receiver<Authorisation> {
        self.authorisation.subscribe()
    }

    /// The kubeconfig's context.
    #[must_use]
    pub fn context(&self) -> String {
        self.state.lock().target.context.clone()
    }

    /// The API server's name, where it is reached by one that DNS may know.
    #[must_use]
    pub fn host(&self) -> Option<Name> {
        let state = self.state.lock();
        let host = state.target.config.cluster_url.host()?;
        let name: Name = host.parse().ok()?;
        let is_address = host.starts_with('[') || host.parse::<IpAddr>().is_ok();
        (!is_address && name.label_count() > 1).then_some(name)
    }

    /// Finds the addresses of the API server and of the proxy before it, as far as they can be had.
    pub(super) async fn endpoints(&self) -> Vec<IpAddr> {
        let hosts: Vec<String> = {
            let state = self.state.lock();
            let server = state.target.config.cluster_url.host();
            let proxy = state
                .target
                .proxy
                .as_ref()
                .and_then(|proxy| proxy.uri.host());
            server.into_iter().chain(proxy).map(str::to_owned).collect()
        };
        let mut found = Vec::new();
        for host in hosts {
            let plain = host.trim_start_matches('[').trim_end_matches(']');
            match plain.parse() {
                Ok(address) => found.push(address),
                Err(_) => found.extend(self.addresses.find(plain).await.unwrap_or_default()),
            }
        }
        found
    }

    /// Asks the API server for its version.
    ///
    /// # Errors
    ///
    /// It does not answer, or does not let the user in.
    pub async fn version(&self) -> Result<String, Problem> {
        let asking = self.ask("version", LIST, |client| async move {
            client.apiserver_version().await
        });
        Ok(asking.await?.git_version)
    }

    /// Lists the manager's Pods.
    async fn pods(&self) -> Result<Vec<Candidate>, Problem> {
        let listed = self
            .ask("list of the manager's pods", LIST, |client| async move {
                let pods: Api<Pod> = Api::namespaced(client, HOME);
                pods.list(&ListParams::default().labels(MANAGER)).await
            })
            .await;
        match listed {
            Ok(listed) => Ok(listed.items.iter().map(Candidate::read).collect()),
            Err(problem) if problem.kind == Kind::Forbidden => {
                Err(self.name_missing(problem, &rights::of_reach()).await)
            }
            Err(problem) => Err(problem),
        }
    }

    /// Replaces a refusal by the names of what is missing of `rights`, where that can be had.
    async fn name_missing(&self, refusal: Problem, rights: &[Right]) -> Problem {
        let Ok(held) = self.client().await else {
            return refusal;
        };
        let asking = timeout(LIST, rights::missing(&held.client, rights));
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
            .with_hint(format!(
                "have the cluster's administrator bind {}; `kubebridge install --allow-user NAME` makes and binds it",
                rights::role(&missing)
            )),
            Ok(_) | Err(_) => refusal.with_hint(
                "have the cluster's administrator run `kubebridge install --allow-user NAME`, which makes the Role and binds it",
            ),
        }
    }

    /// Does one thing at the API server, a second time by a kubeconfig read anew when one side does
    /// not accept what the other proves itself by.
    async fn ask<T, F: Future<Output = Result<T, kube::Error>>>(
        &self,
        doing: &str,
        limit: Duration,
        request: impl Fn(Client) -> F,
    ) -> Result<T, Problem> {
        let mut is_second = false;
        loop {
            let held = match self.client().await {
                Ok(held) => held,
                Err(problem) => {
                    self.note_trouble(&problem);
                    return Err(problem);
                }
            };
            let place = self.place();
            let problem = match timeout(limit, request(held.client.clone())).await {
                Ok(Ok(done)) => {
                    self.note_use(&held);
                    return Ok(done);
                }
                Ok(Err(error)) => Problem::read(&place, doing, &error),
                Err(_) => Problem::late(&place, doing, limit),
            };
            // Credentials are renewed, and authorities replaced, where the kubeconfig points to.
            let is_of_file = matches!(problem.kind, Kind::Unauthorized | Kind::Untrusted);
            if is_of_file && is_second {
                self.note_trouble(&problem);
            }
            if !is_of_file || is_second {
                return Err(problem);
            }
            is_second = true;
            self.renew(&held).await;
        }
    }

    /// The client for the credentials of now.
    async fn client(&self) -> Result<Held, Problem> {
        let (exec, user) = {
            let state = self.state.lock();
            let target = &state.target;
            (target.config.auth_info.exec.clone(), target.user.clone())
        };
        let issued = match exec {
            Some(exec) => Some(self.credentials.current(&exec, &user).await?),
            None => None,
        };
        let mut state = self.state.lock();
        let held = state.client.as_ref();
        if let Some(held) = held.filter(|held| is_same(held.issued.as_ref(), issued.as_ref())) {
            return Ok(held.clone());
        }
        let held = Held {
            client: build(&state.target, issued.as_deref(), self.addresses.clone())?,
            issued,
        };
        state.client = Some(held.clone());
        Ok(held)
    }

    /// Drops credentials that are not accepted, and reads the kubeconfig again: somebody may have
    /// logged in since, or the cluster have another authority.
    async fn renew(&self, refused: &Held) {
        if let Some(issued) = &refused.issued {
            self.credentials.reject(issued);
        }
        let loaded = self.source.load().await;
        let mut state = self.state.lock();
        state.client = None;
        match loaded {
            Ok(target) => state.target = target,
            Err(failure) => {
                tracing::warn!(error = %format!("{:#}", failure.error), "kubeconfig not read again");
            }
        }
    }

    fn place(&self) -> Place {
        self.state.lock().target.place()
    }

    fn note_use(&self, held: &Held) {
        let until = match &held.issued {
            Some(issued) => issued.expiry,
            None => known_end(&self.state.lock().target),
        };
        self.authorisation.send_if_modified(|authorisation| {
            let new = Authorisation {
                until: until.map(|end| end.to_string()),
                trouble: None,
                ..authorisation.clone()
            };
            let is_new = *authorisation != new;
            *authorisation = new;
            is_new
        });
    }

    fn note_trouble(&self, problem: &Problem) {
        let trouble = problem.to_string();
        self.authorisation
            .send_modify(|authorisation| authorisation.trouble = Some(trouble));
    }
}

/// `API server https://… (context lab)`.
impl fmt::Display for Cluster {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place {
            server,
            context,
            proxy,
        } = self.place();
        write!(formatter, "API server {server} (context {context}")?;
        match proxy {
            Some(proxy) => write!(formatter, ", proxy {proxy})"),
            None => formatter.write_str(")"),
        }
    }
}

fn is_same(one: Option<&Arc<Issued>>, other: Option<&Arc<Issued>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, None) => true,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Makes a client; what a plugin has issued stands in the place of the plugin.
fn build(
    target: &Target,
    issued: Option<&Issued>,
    addresses: Addresses,
) -> Result<Client, Problem> {
    let unusable = |what: String| {
        Problem::new(
            Kind::File,
            format!(
                "{}: credentials of user {}: {what}",
                target.files, target.user
            ),
        )
        .with_hint(format!("kubectl --context {} version", target.context))
    };
    let mut config = target.config.clone();
    if let Some(issued) = issued {
        let shown = with_issued(&config.auth_info, issued);
        config.auth_info = shown.map_err(|error| unusable(error.to_string()))?;
    }
    transport::client(&config, target.proxy.as_ref(), addresses)
        .map_err(|error| unusable(error.to_string()))
}

/// The kubeconfig's own form of credentials, base64 where it wants it.
fn with_issued(kept: &AuthInfo, issued: &Issued) -> serde_json::Result<AuthInfo> {
    let mut fields = serde_json::Map::new();
    if let Some(token) = &issued.token {
        fields.insert("token".to_owned(), token.clone().into());
    }
    if let Some((certificate, key)) = &issued.certificate {
        let bytes = |text: &str| k8s_openapi::ByteString(text.as_bytes().to_vec());
        let mut put = |name: &str, text| {
            serde_json::to_value(bytes(text)).map(|value| fields.insert(name.to_owned(), value))
        };
        put("client-certificate-data", certificate)?;
        put("client-key-data", key)?;
    }
    let mut shown: AuthInfo = serde_json::from_value(fields.into())?;
    shown.impersonate.clone_from(&kept.impersonate);
    shown.impersonate_uid.clone_from(&kept.impersonate_uid);
    shown
        .impersonate_groups
        .clone_from(&kept.impersonate_groups);
    shown
        .impersonate_user_extra
        .clone_from(&kept.impersonate_user_extra);
    Ok(shown)
}

/// The end of credentials that stand in the kubeconfig, where they say it themselves.
fn known_end(target: &Target) -> Option<Timestamp> {
    let auth: &AuthInfo = &target.config.auth_info;
    let as_json = serde_json::to_value(auth).ok()?;
    let text = |name: &str| Some(as_json.get(name)?.as_str()?.to_owned());
    if let Some(end) = text("token").and_then(|token| expiry::of_token(&token)) {
        return Some(end);
    }
    if let Some(data) = text("client-certificate-data") {
        let k8s_openapi::ByteString(pem) = serde_json::from_value(data.into()).ok()?;
        return expiry::of_certificate(std::str::from_utf8(&pem).ok()?);
    }
    let path = text("client-certificate")?;
    expiry::of_certificate(&std::fs::read_to_string(path).ok()?)
}

/// Writes a time as RFC 3339 has it, in UTC and whole seconds.
#[must_use]
pub fn timestamp(time: SystemTime) -> String {
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since_1970.map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).map_or_else(|_| String::new(), |time| time.to_string())
}

/// The command that renews the credentials, or shows that they are.
fn renewal(target: &Target) -> String {
    match &target.config.auth_info.exec {
        Some(exec) => exec::command_line(exec),
        None => format!("kubectl --context {} version", target.context),
    }
}

#[cfg(test)]
mod tests;
