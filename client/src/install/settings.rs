//! What can be chosen about an installation: given by flags, kept in the cluster. Pure.

use serde::{Deserialize, Serialize};

use super::image::Image;

/// The namespace of the manager; clients look there.
pub const HOME: &str = "kubebridge";

/// How many managers there may be.
pub const REPLICAS: std::ops::RangeInclusive<u8> = 1..=5;

/// The most namespaces of an installation: each adds up to five objects and a flag of the manager.
pub const NAMESPACES: usize = 200;

/// An installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// The namespaces that sessions may open, in order, each once.
    pub namespaces: Vec<String>,
    /// What the manager may read.
    pub scope: Scope,
    /// How many managers.
    pub replicas: u8,
    /// The manager's image, as it was released.
    pub image: Image,
    /// Where the image is taken from instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry: Option<String>,
    /// Secrets of [`HOME`] that the image is pulled with.
    #[serde(default)]
    pub image_pull_secrets: Vec<String>,
    /// Whether pods may ask the manager for names.
    #[serde(default)]
    pub dns_service: bool,
    /// A Secret of [`HOME`] with `tls.crt`, `tls.key` and `ca.crt`, for gRPC on the network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_secret: Option<String>,
    /// Users who may open sessions.
    #[serde(default)]
    pub users: Vec<String>,
    /// Groups whose members may open sessions.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// What the manager may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The Services of its namespaces, by a Role in each.
    Namespaced,
    /// The Services of all namespaces there are and will be, by a ClusterRole.
    ClusterWide,
}

/// What flags say; the rest is as it was, or as it is by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// See [`Settings::namespaces`]; empty says nothing.
    pub namespaces: Vec<String>,
    /// See [`Settings::scope`].
    pub scope: Option<Scope>,
    /// See [`Settings::replicas`].
    pub replicas: Option<u8>,
    /// See [`Settings::image`].
    pub image: Option<Image>,
    /// See [`Settings::registry`]; an empty one takes it away.
    pub registry: Option<String>,
    /// See [`Settings::image_pull_secrets`]; empty says nothing.
    pub image_pull_secrets: Vec<String>,
    /// See [`Settings::dns_service`].
    pub dns_service: Option<bool>,
    /// See [`Settings::tls_secret`]; an empty name takes it away.
    pub tls_secret: Option<String>,
    /// See [`Settings::users`]; empty says nothing.
    pub users: Vec<String>,
    /// See [`Settings::groups`]; empty says nothing.
    pub groups: Vec<String>,
}

/// How namespaces, users and groups that are named go together with those that are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// They are added.
    Add,
    /// They are all there shall be.
    Replace,
}

impl Wishes {
    /// Completes the wishes by what is installed, else by the defaults.
    ///
    /// # Errors
    ///
    /// They make no sense together, or nothing says which image.
    pub fn complete(
        &self,
        before: Option<&Settings>,
        lists: Lists,
        default_namespace: &str,
        released: Option<&str>,
    ) -> Result<Settings, String> {
        let joined = |old: fn(&Settings) -> &Vec<String>, new: &[String]| {
            let old = before.map(old).cloned().unwrap_or_default();
            match lists {
                Lists::Replace if !new.is_empty() => once(new.to_vec()),
                Lists::Replace | Lists::Add => once([&old[..], new].concat()),
            }
        };
        let mut namespaces = joined(|settings| &settings.namespaces, &self.namespaces);
        if namespaces.is_empty() {
            namespaces.push(default_namespace.to_owned());
        }
        let kept = |given: &Option<String>, old: fn(&Settings) -> &Option<String>| match given {
            Some(name) => Some(name.clone()).filter(|name| !name.is_empty()),
            None => before.and_then(|settings| old(settings).clone()),
        };
        let secrets = match &self.image_pull_secrets[..] {
            [] => before.map(|settings| settings.image_pull_secrets.clone()),
            given => Some(once(given.to_vec())),
        };
        let settings = Settings {
            namespaces,
            scope: self
                .scope
                .or_else(|| before.map(|settings| settings.scope))
                .unwrap_or(Scope::Namespaced),
            replicas: self
                .replicas
                .or_else(|| before.map(|settings| settings.replicas))
                .unwrap_or(1),
            image: self.image(before, released)?,
            registry: kept(&self.registry, |settings| &settings.registry),
            image_pull_secrets: secrets.unwrap_or_default(),
            dns_service: self
                .dns_service
                .or_else(|| before.map(|settings| settings.dns_service))
                .unwrap_or_default(),
            tls_secret: kept(&self.tls_secret, |settings| &settings.tls_secret),
            users: joined(|settings| &settings.users, &self.users),
            groups: joined(|settings| &settings.groups, &self.groups),
        };
        settings.check()?;
        Ok(settings)
    }

    fn image(&self, before: Option<&Settings>, released: Option<&str>) -> Result<Image, String> {
        let given = self.image.clone();
        let released = || released.and_then(|text| text.parse::<Image>().ok());
        let kept = || before.map(|settings| settings.image.clone());
        let image = given.or_else(released).or_else(kept);
        Ok(image.ok_or(
            "this build names no image of the manager: --image REGISTRY/NAME@sha256:DIGEST",
        )?)
    }
}

impl Settings {
    /// The image as nodes pull it.
    ///
    /// # Errors
    ///
    /// The registry is none.
    pub fn pulled(&self) -> Result<Image, String> {
        match &self.registry {
            Some(registry) => self.image.at(registry),
            None => Ok(self.image.clone()),
        }
    }

    /// Fails for what cannot be installed.
    fn check(&self) -> Result<(), String> {
        if self.namespaces.iter().any(|name| name == HOME) {
            return Err(format!(
                "namespace {HOME} is the manager's own: nobody opens it"
            ));
        }
        if self.namespaces.len() > NAMESPACES {
            return Err(format!(
                "{} namespaces, of at most {NAMESPACES}",
                self.namespaces.len()
            ));
        }
        if !REPLICAS.contains(&self.replicas) {
            return Err(format!("{} replicas, of 1 to 5", self.replicas));
        }
        self.pulled().map(drop)
    }
}

/// Each once, where it is first.
fn once(names: Vec<String>) -> Vec<String> {
    let mut kept: Vec<String> = Vec::with_capacity(names.len());
    for name in names {
        if !kept.contains(&name) {
            kept.push(name);
        }
    }
    kept
}

#[cfg(test)]
mod tests;
