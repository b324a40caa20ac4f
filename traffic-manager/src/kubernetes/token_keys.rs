//! The keys with which the cluster signs tokens of ServiceAccounts, from the API server itself.
//!
//! Every ServiceAccount may read them (`system:service-account-issuer-discovery`). The address that
//! the discovery document names for the keys is not followed: it may lie outside the cluster.

use anyhow::{Context, Result};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Request;
use kube::Client;
use serde::Deserialize;

use super::cluster::{Cluster, Trouble};
use crate::access::keeper::{KeySource, Published};
use crate::access::keys::KeySet;

/// Who issues, by OpenID Connect Discovery.
const DISCOVERY: &str = "/.well-known/openid-configuration";
/// Where API servers serve their keys.
const KEYS: &str = "/openid/v1/jwks";

/// Where a cluster publishes its keys.
#[derive(Debug, Clone)]
pub struct TokenKeys(pub Cluster);

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
}

impl KeySource for TokenKeys {
    fn fetch(&self) -> BoxFuture<'_, Result<Published>> {
        async move {
            let connection = self.0.connection();
            let error = match fetch(&connection.client).await {
                Ok(published) => return Ok(published),
                Err(error) => error,
            };
            let trouble = error
                .downcast_ref::<kube::Error>()
                .map_or(Trouble::None, Trouble::of);
            match self.0.instead(connection.generation, trouble).await {
                Some(other) => fetch(&other.client).await,
                None => Err(error),
            }
        }
        .boxed()
    }
}

async fn fetch(client: &Client) -> Result<Published> {
    let discovery: Discovery = serde_json::from_str(&get(client, DISCOVERY).await?)
        .with_context(|| format!("{DISCOVERY} makes no sense"))?;
    let keys = KeySet::from_json(&get(client, KEYS).await?)
        .with_context(|| format!("{KEYS} makes no sense"))?;
    Ok(Published {
        issuer: discovery.issuer,
        keys,
    })
}

async fn get(client: &Client, path: &'static str) -> Result<String> {
    let request = Request::get(path).body(Vec::new())?;
    client
        .request_text(request)
        .await
        .with_context(|| format!("cannot read {path}"))
}
