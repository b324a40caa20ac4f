//! Reads the kubeconfig: which API server, as whom, by which proxy. Contacts nobody, runs nothing.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use http::Uri;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};

use super::problem::Place;
use super::proxy::{self, Proxy, ProxyEnvironment};
use crate::failure::{Exit, Failure};

/// What the environment says about the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `KUBECONFIG`: files, of which the first to say something wins.
    pub kubeconfig: Option<OsString>,
    /// The home directory.
    pub home: Option<PathBuf>,
    /// Whether sudo has put another user's environment in the place of ours.
    pub by_sudo: bool,
    /// The proxies.
    pub proxies: ProxyEnvironment,
}

impl Environment {
    /// Reads the process's own.
    #[must_use]
    pub fn of_process() -> Self {
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty()),
            home: std::env::home_dir(),
            by_sudo: std::env::var_os("SUDO_USER").is_some(),
            proxies: ProxyEnvironment::read(|name| std::env::var(name).ok()),
        }
    }
}

/// Where to look, and for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// `--kubeconfig`, which stands for all files.
    pub file: Option<PathBuf>,
    /// `--context`, else the current one.
    pub context: Option<String>,
    /// What holds where a flag says nothing.
    pub environment: Environment,
}

/// The chosen cluster and user.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) context: String,
    pub(super) user: String,
    pub(super) files: String,
    /// With the proxy left out: it is chosen by our own rules.
    pub(super) config: Config,
    pub(super) proxy: Option<Proxy>,
}

impl Target {
    /// What is being reached, in words.
    pub(super) fn place(&self) -> Place {
        Place {
            server: shown(&self.config.cluster_url),
            context: self.context.clone(),
            proxy: self.proxy.as_ref().map(ToString::to_string),
        }
    }
}

impl Source {
    /// Checks the files, and says which context and namespace they mean: those stay, whatever
    /// becomes the current context while a session lives.
    ///
    /// # Errors
    ///
    /// As for reading them: exit codes 78 and 64.
    pub async fn settle(self) -> Result<(Self, String), Failure> {
        let target = self.load().await?;
        let namespace = target.config.default_namespace.clone();
        let source = Self {
            context: Some(target.context),
            ..self
        };
        Ok((source, namespace))
    }

    /// Reads the files anew.
    ///
    /// # Errors
    ///
    /// A file or what it says cannot be used (exit code 78); the wanted context is not there (64).
    pub(super) async fn load(&self) -> Result<Target, Failure> {
        let files = self.files()?;
        let merged = merge(&files)?;
        let names = shown_files(&files);
        let context = self.context_name(&merged, &names)?;
        let user = user_of(&merged, &context);
        let proxy_url = proxy_url_of(&merged, &context);
        let options = KubeConfigOptions {
            context: Some(context.clone()),
            ..KubeConfigOptions::default()
        };
        let mut config = Config::from_custom_kubeconfig(merged, &options)
            .await
            .map_err(|error| unusable(&names, &context, &error))?;
        config.proxy_url = None;
        // One attempt each time: who calls knows how often it is worth trying.
        config.default_retry = false;
        if let Some(provider) = &config.auth_info.auth_provider {
            return Err(Failure::message(
                Exit::File,
                format!(
                    "{names}: user {user} uses the auth-provider {}, which Kubernetes has removed",
                    provider.name
                ),
            )
            .with_hint(
                "use its exec plugin; your provider's command line writes a new kubeconfig",
            ));
        }
        let proxy = proxy::choose(
            &config.cluster_url,
            proxy_url.as_deref(),
            &self.environment.proxies,
        )
        .map_err(|error| Failure::message(Exit::File, error))?;
        Ok(Target {
            context,
            user,
            files: names,
            config,
            proxy,
        })
    }

    /// The files that are there.
    fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        if let Some(file) = &self.file {
            return Ok(vec![file.clone()]);
        }
        let environment = &self.environment;
        let named: Vec<PathBuf> = match &environment.kubeconfig {
            Some(list) => std::env::split_paths(list)
                .filter(|path| !path.as_os_str().is_empty())
                .collect(),
            None => environment
                .home
                .iter()
                .map(|home| home.join(".kube/config"))
                .collect(),
        };
        // Files of the list that are not there are passed over, as kubectl does.
        let there: Vec<_> = named.iter().filter(|path| path.exists()).cloned().collect();
        if there.is_empty() {
            let looked = if named.is_empty() {
                "no home directory".to_owned()
            } else {
                format!("looked at {}", shown_files(&named))
            };
            let failure =
                Failure::message(Exit::File, format!("there is no kubeconfig ({looked})"));
            return Err(failure.with_hint(self.where_else()));
        }
        Ok(there)
    }

    fn where_else(&self) -> &'static str {
        if self.environment.by_sudo {
            "sudo leaves out your own: add --kubeconfig ~/.kube/config, or sudo --preserve-env=KUBECONFIG,HTTPS_PROXY,NO_PROXY"
        } else {
            "--kubeconfig FILE, or KUBECONFIG=FILE; `kubebridge demo` needs no cluster"
        }
    }

    fn context_name(&self, config: &Kubeconfig, files: &str) -> Result<String, Failure> {
        let names: Vec<_> = config
            .contexts
            .iter()
            .map(|context| context.name.as_str())
            .collect();
        let there_are = if names.is_empty() {
            "there are none".to_owned()
        } else {
            format!("there are: {}", names.join(", "))
        };
        let current = config.current_context.as_deref();
        match (
            self.context.as_deref(),
            current.filter(|name| !name.is_empty()),
        ) {
            (Some(wanted), _) if names.contains(&wanted) => Ok(wanted.to_owned()),
            (Some(wanted), _) => Err(Failure::usage(format!(
                "--context {wanted}: {files} has no such context"
            ))
            .with_hint(there_are)),
            (None, Some(current)) if names.contains(&current) => Ok(current.to_owned()),
            (None, Some(current)) => Err(Failure::message(
                Exit::File,
                format!("{files}: the current context {current} is not among its contexts"),
            )
            .with_hint(format!("--context NAME; {there_are}"))),
            (None, None) => Err(Failure::message(
                Exit::File,
                format!("{files} names no current context"),
            )
            .with_hint(format!("--context NAME; {there_are}"))),
        }
    }
}

fn merge(files: &[PathBuf]) -> Result<Kubeconfig, Failure> {
    files
        .iter()
        .try_fold(Kubeconfig::default(), |merged, path| {
            Kubeconfig::read_from(path)
                .and_then(|next| merged.merge(next))
                .map_err(|error| {
                    let text = one_line(&error.to_string());
                    Failure::message(Exit::File, format!("kubeconfig {}: {text}", path.display()))
                        .with_hint("kubectl config view --kubeconfig FILE")
                })
        })
}

fn unusable(files: &str, context: &str, error: &kube::config::KubeconfigError) -> Failure {
    Failure::message(
        Exit::File,
        format!(
            "{files}: context {context}: {}",
            one_line(&error.to_string())
        ),
    )
    .with_hint(format!("kubectl config view --context {context} --minify"))
}

fn user_of(config: &Kubeconfig, context: &str) -> String {
    let found = config.contexts.iter().find(|named| named.name == context);
    found
        .and_then(|named| named.context.as_ref()?.user.clone())
        .unwrap_or_default()
}

fn proxy_url_of(config: &Kubeconfig, context: &str) -> Option<String> {
    let found = config.contexts.iter().find(|named| named.name == context)?;
    let cluster = &found.context.as_ref()?.cluster;
    let found = config
        .clusters
        .iter()
        .find(|named| &named.name == cluster)?;
    found.cluster.as_ref()?.proxy_url.clone()
}

fn shown_files(files: &[PathBuf]) -> String {
    let shown: Vec<_> = files
        .iter()
        .map(|path| Path::display(path).to_string())
        .collect();
    shown.join(", ")
}

/// The URL without what it need not say.
fn shown(url: &Uri) -> String {
    url.to_string().trim_end_matches('/').to_owned()
}

fn one_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests;
